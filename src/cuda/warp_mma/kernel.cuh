// Attention by mma.sync: persistent blocks take items (segment, head, 128 query rows) off a list,
// longest first. Each warp walks the key tiles of its rows from the last to the first by the rule
// of lazy softmax (docs/recipes.md).
//
// Fragments (docs/kernels/warp_mma.md): with g = lane / 4 and t = lane % 4 a lane holds the scores
// of rows g and g + 8 of each 16-row block, columns 2t and 2t + 1 of each 8 keys. Index r = 2 *
// block + (row >= 8) numbers the rows of a lane.
#pragma once

#include "cuda/epilogue/output.cuh"
#include "cuda/warp_mma/products.cuh"
#include "cuda/worklist/items.cuh"

namespace quatt::warp_mma {
inline namespace QUATT_ABI {

template <class C>
QUATT_KERNEL(C::kThreads) attention(const WarpMmaParams<C> p) {
    using P = typename C::Probabilities;
    constexpr u32 kLaneRows = C::kLaneRows;
    const u32 thread = ptx::thread_x(), lane = ptx::lane_id(), warp = ptx::warp_id(), g = lane / 4,
              t = lane % 4;
    const ptx::Shared shared = ptx::dynamic_shared(sizeof(SharedPlan<C>));
    constexpr u32 kItem = offsetof(SharedPlan<C>, item);
    const typename C::Tiles tiles(p, shared, thread);
    ptx::grid_wait();  // the packed operands are there
    u32 used = 0;      // tiles since the start of the block, over all items

    QUATT_NO_UNROLL
    for (;;) {
        // ---------------------------------------------------------------- the next item
        if (thread == 0) {
            shared.store(kItem, ptx::atomic_add(p.list.words, worklist::kNextItem, 1u));
        }
        ptx::barrier_sync();
        const u32 number = shared.load<u32>(kItem);
        // Read by all before it is written again; nobody reads a Q in shared memory any more.
        ptx::barrier_sync();
        if (number >= p.list.words.load(worklist::kItems)) {
            break;
        }
        const worklist::Item item = worklist::find_item(number, p.list, C::kRows);
        const worklist::SegmentEntry& seg = item.where;
        const u32 segment = item.segment, head = item.head, kv_head = head / p.heads_per_group;
        const i32 item_row = i32(item.row_tile * C::kRows);
        const i32 warp_row = item_row + i32(warp * 16 * C::kBlocks);
        const auto row_of = [&](u32 r) { return warp_row + i32(16 * (r / 2) + 8 * (r % 2) + g); };
        const auto visible = [&](i32 row) {
            return tile::visible_keys(p.is_causal, row, seg.q_len, seg.k_len);
        };
        const i32 item_visible = visible(item_row + i32(C::kRows) - 1);
        const i32 unmasked = visible(warp_row);  // keys below it are seen by every row of the warp
        const ItemKeys<C> keys{
            {p.walk, {segment, head, item_row, (item_visible + i32(C::kKeys) - 1) / i32(C::kKeys)}},
            seg.k_len,
            i32(kv_head) * i32(p.packed.k_tiles) + seg.k_tile,
            kv_head * p.rows.k_strides.head +
                (p.rows.is_copy ? i64(seg.k_tile) * C::kKeys * p.rows.k_strides.token : seg.k),
            kv_head * p.rows.v_strides.head +
                (p.rows.is_copy ? i64(seg.k_tile) * C::kKeys * p.rows.v_strides.token : seg.v)};
        const typename C::Walk& walk = keys.walk;
        const i32 count = walk.count();

        // ---------------------------------------------------------------- Q and the rows' state
        const Products<C> products(p, seg, segment, head, shared, row_of);
        float factor[kLaneRows];
        QUATT_UNROLL
        for (u32 r = 0; r < kLaneRows; r++) {
            const bool is_real = row_of(r) < seg.q_len;
            const i64 row = i64(head) * p.packed.q_rows + seg.q_row + (is_real ? row_of(r) : 0);
            factor[r] = !C::kIsPacked ? p.score_factor
                        : is_real     ? p.packed.q_factor.load(row)
                                      : 0.0f;
        }
        QUATT_UNROLL
        for (u32 i = 0; i < C::kAhead; i++) {
            if (i32(i) < count) {
                tiles.request(keys, count - 1 - i32(i), used + i);
            }
        }
        float o[C::kBlocks][C::kOutTiles][4] = {};
        const softmax::FarSum far{
            shared.sub(offsetof(SharedPlan<C>, far) +
                           (C::kIsPacked ? ptx::thread_x() : 0) * softmax::FarSum::kBytes,
                       softmax::FarSum::kBytes)};
        if constexpr (C::Recipe::kKeepsFarTokens) {
            far.reset();
        }
        typename C::RowState rows([](u32) { return true; });
        // The next position whose maximum is taken before its exponentials.
        i32 refresh_at = count - 1;
        const auto scale_out = [&](u32 r, float f) {
            QUATT_UNROLL
            for (u32 n = 0; n < C::kOutTiles; n++) {
                o[r / 2][n][2 * (r % 2)] *= f;
                o[r / 2][n][2 * (r % 2) + 1] *= f;
            }
        };

        // ---------------------------------------------------------------- key tiles, last to first
        constexpr i64 kScaleStride = tile::kKeyScaleStride;
        const auto entry_of = [&](i32 n) {
            return p.packed.k_scale.template load<ptx::F32x4>(i64(keys.k_tile + walk.tile(n)) *
                                                              kScaleStride);
        };
        const auto far_keys_of = [](const ptx::F32x4& entry) {
            return softmax::FarKeys{formats::bit_cast<u32>(entry.y),
                                    formats::bit_cast<u32>(entry.z)};
        };
        float next_scale = 1;
        bool next_has_far = false;  // whether a key of that tile is far from V's centre
        const auto load_entry = [&](i32 n) {
            const ptx::F32x4 entry = entry_of(n);
            next_scale = entry.x;
            next_has_far = far_keys_of(entry).any();
        };
        if (C::kIsPacked && count > 0) {
            load_entry(count - 1);
        }
        QUATT_NO_UNROLL
        for (i32 n = count - 1; n >= 0; n--) {
            const u32 stage = used % C::kStages;
            if (C::kIsPacked && n >= i32(C::kAhead)) {
                tiles.request(keys, n - i32(C::kAhead), used + C::kAhead);
            }
            tiles.wait(used);
            used++;

            // t = score * scale_of(r), in log2 units.
            float scale[C::kIsPacked ? kLaneRows : 1];
            const auto set_scale = [&] {
                QUATT_UNROLL
                for (u32 r = 0; r < (C::kIsPacked ? kLaneRows : 1); r++) {
                    scale[r] = factor[r] * next_scale;
                }
            };
            set_scale();
            const auto scale_of = [&](u32 r) -> float& { return scale[C::kIsPacked ? r : 0]; };
            const bool has_far = next_has_far;
            if (C::kIsPacked && n > 0) {
                load_entry(n - 1);
            }

            float s[C::kBlocks][C::kScoreTiles][4];
            const auto score = [&](i32 at) {  // of position `at`
                QUATT_UNROLL
                for (u32 b = 0; b < C::kBlocks; b++) {
                    QUATT_UNROLL
                    for (u32 j = 0; j < C::kScoreTiles; j++) {
                        QUATT_UNROLL
                        for (u32 i = 0; i < 4; i++) {
                            s[b][j][i] = 0;
                        }
                    }
                }
                products.qk(s, tiles.stages.k(stage));
                const i32 first_key = walk.tile(at) * i32(C::kKeys);
                if constexpr (C::Modifier::kChangesScores) {
                    QUATT_UNROLL
                    for (u32 r = 0; r < kLaneRows; r++) {
                        QUATT_UNROLL
                        for (u32 j = 0; j < 2 * C::kScoreTiles; j++) {
                            float& x = s[r / 2][j / 2][2 * (r % 2) + j % 2];
                            const i32 key = first_key + i32(8 * (j / 2) + 2 * t + j % 2);
                            x = C::Modifier::apply(p.modifier, x * scale_of(r), head, row_of(r),
                                                   key);
                        }
                    }
                    QUATT_UNROLL
                    for (float& x : scale) {
                        x = 1;
                    }
                }
                if (first_key + i32(C::kKeys) > unmasked) {
                    QUATT_UNROLL
                    for (u32 r = 0; r < kLaneRows; r++) {
                        scale_of(r) = C::kIsPacked ? tile::not_zero(scale_of(r)) : scale_of(r);
                        const i32 seen = visible(row_of(r)) - first_key -
                                         i32(2 * t);  // of this lane's first key on
                        C::Mask::template apply<C::kScoreTiles>(seen, [&](u32 j, u32 i) -> float& {
                            return s[r / 2][j][2 * (r % 2) + i];
                        });
                    }
                }
            };
            // The row's largest score, NaN ignored. NOTE: pinned, or the compiler hoists it out of
            // the slow branches.
            const auto largest = [&](u32 r) {
                QUATT_UNROLL
                for (u32 j = 0; j < C::kScoreTiles; j++) {
                    ptx::optimizer_barrier(s[r / 2][j][2 * (r % 2)]);
                    ptx::optimizer_barrier(s[r / 2][j][2 * (r % 2) + 1]);
                }
                float x = ptx::max(s[r / 2][0][2 * (r % 2)], s[r / 2][0][2 * (r % 2) + 1]);
                QUATT_UNROLL
                for (u32 j = 1; j < C::kScoreTiles; j++) {
                    x = ptx::max(x,
                                 ptx::max(s[r / 2][j][2 * (r % 2)], s[r / 2][j][2 * (r % 2) + 1]));
                }
                return softmax::row_maximum(x) * scale_of(r);
            };
            score(n);
            if (!C::kIsPacked && n > 0) {
                // Here, while the products of the scores are under way.
                tiles.request(keys, n - 1, used);
            }

            // A refresh. bf16 has one in its first tile alone, since every row would overflow
            // there, and takes maxima besides where an m is large.
            const auto plan_refresh = [&](u32 risen) {
                // Where an m is large, scores become t, so that all of them are rounded alike.
                bool is_coarse = rows.is_coarse(0);
                QUATT_UNROLL
                for (u32 r = 1; r < kLaneRows; r++) {
                    is_coarse = is_coarse || rows.is_coarse(r);
                }
                is_coarse = ptx::any(is_coarse);
                if (is_coarse) {
                    QUATT_UNROLL
                    for (u32 r = 0; r < kLaneRows; r++) {
                        QUATT_UNROLL
                        for (u32 j = 0; j < 2 * C::kScoreTiles; j++) {
                            s[r / 2][j / 2][2 * (r % 2) + j % 2] *= scale_of(r);
                        }
                    }
                    QUATT_UNROLL
                    for (float& x : scale) {
                        x = 1;
                    }
                }
                rows.refresh = C::kPolicy.refreshes ? risen : 0;
                refresh_at = is_coarse || ptx::any(rows.refresh != 0) ? n - 1
                             : C::kPolicy.refreshes                   ? walk.next_border(n)
                                                                      : -1;
            };
            u32 risen = 0;  // bit r: this tile raised m of row r by so much as to ask for a refresh
            if (n == refresh_at) {
                const bool is_border = C::kPolicy.refreshes && walk.is_border(n);
                QUATT_UNROLL
                for (u32 r = 0; r < kLaneRows; r++) {
                    const bool is_refresh = is_border || (rows.refresh >> r & 1) != 0;
                    scale_out(r, rows.update(r, largest(r), is_refresh, false, risen));
                }
                plan_refresh(risen);
            }

            u32 pf[C::kBlocks][C::kPSteps][4];  // P as A fragments
            float sum[kLaneRows];
            QUATT_NO_UNROLL
            for (bool redone = false;; redone = true) {
                bool over[kLaneRows];
                QUATT_UNROLL
                for (u32 b = 0; b < C::kBlocks; b++) {
                    u32 evidence[2] = {0, 0};
                    QUATT_UNROLL
                    for (u32 step = 0; step < C::kPSteps; step++) {
                        QUATT_UNROLL
                        for (u32 i = 0; i < 4; i++) {
                            // Register i of an A fragment: row half i % 2, keys of score tiles j
                            // on.
                            const u32 half = i % 2, r = 2 * b + half;
                            const u32 j = P::kPerRegister / 2 * (2 * step + i / 2);
                            float e[P::kPerRegister];
                            QUATT_UNROLL
                            for (u32 k = 0; k < P::kPerRegister; k++) {
                                e[k] = ptx::ex2(rows.exponent(r, s[b][j + k / 2][2 * half + k % 2],
                                                              scale_of(r)));
                                sum[r] = step == 0 && i < 2 && k == 0 ? e[k] : sum[r] + e[k];
                            }
                            pf[b][step][i] = P::pack(e);
                            evidence[half] |= P::evidence(pf[b][step][i]);
                        }
                    }
                    QUATT_UNROLL
                    for (u32 half = 0; half < 2; half++) {
                        over[2 * b + half] = P::overflows(evidence[half], sum[2 * b + half]);
                    }
                }
                if (redone) {
                    break;  // NOTE: NaN would ask for ever
                }
                bool any_over = over[0];
                QUATT_UNROLL
                for (u32 r = 1; r < kLaneRows; r++) {
                    any_over = any_over || over[r];
                }
                if (!ptx::any(any_over)) {
                    break;
                }
                if constexpr (!C::kIsPacked) {
                    // NOTE: a barrier, or the masks are prepared on the common path.
                    u32 at = u32(n);
                    ptx::optimizer_barrier(at);
                    set_scale();
                    score(i32(at));  // its registers have gone to P
                }
                QUATT_UNROLL
                for (u32 r = 0; r < kLaneRows; r++) {
                    const u32 lanes = ptx::ballot(over[r]) >> (lane & 28u) & 0xFu;
                    const bool row_over = P::row_overflows(lanes, sum[r]);
                    scale_out(r, rows.update(r, largest(r), false, row_over, risen));
                }
                plan_refresh(risen);
            }
            if constexpr (C::Recipe::kKeepsFarTokens) {
                if (has_far) [[unlikely]] {
                    far.template add<C::kKeys / 8>(
                        far_keys_of(entry_of(n)), t, rows.exponent_offset[0],
                        rows.exponent_offset[1], [&](u32 j, u32 r, u32 i) {
                            return ptx::ex2(rows.exponent(r, s[0][j][2 * r + i], scale_of(r)));
                        });
                }
            }
            QUATT_UNROLL
            for (u32 r = 0; r < kLaneRows; r++) {
                rows.sum[r] += sum[r];
            }
            products.pv(o, pf, tiles.stages.v(stage));
            tiles.release(stage);
        }
        if (C::kSharedQ && count <= 0) {
            ptx::cp_async_commit();  // Q's copies, which no tile took along or waited for
            ptx::cp_async_wait<0>();
        }

        // ---------------------------------------------------------------- results
        // NOTE: read again, so that what only the results need takes no registers in the loop.
        const worklist::SegmentEntry to = worklist::load_segment(p.list.segments, segment);
        u32 column = t;
        if constexpr (C::kIsPacked) {
            ptx::optimizer_barrier(column);  // or the channels' numbers take registers in all loops
        }
        const i64 scales_at = (i64(segment) * (p.heads_q / p.heads_per_group) + kv_head) * C::kDim;
        QUATT_UNROLL
        for (u32 r = 0; r < kLaneRows; r++) {
            rows.finish(r);
            // NOTE: without a key the sum may be NaN, where Q or a masked K is.
            const bool has_key = rows.sum[r] != 0 && visible(row_of(r)) > 0;
            if (p.out.has_lse && t == 0 && row_of(r) < to.q_len) {
                float lse = rows.lse(r);
                if constexpr (C::Recipe::kIsCentred) {
                    lse +=
                        p.packed.lse_shift.load(i64(head) * p.packed.q_rows + to.q_row + row_of(r));
                }
                p.out.lse.store(to.lse + head * p.out.lse_head + row_of(r) * p.out.lse_token,
                                has_key ? lse : -INFINITY);
            }
            const float inverse = 1.0f / rows.sum[r];
            float share = 1;  // of the centre of V
            if constexpr (C::Recipe::kKeepsFarTokens) {
                share = (rows.sum[r] - far.finish(r, rows.exponent_offset[r])) * inverse;
            }
            QUATT_UNROLL
            for (u32 j = 0; j < C::kOutTiles; j++) {
                float &y0 = o[r / 2][j][2 * (r % 2)], &y1 = o[r / 2][j][2 * (r % 2) + 1];
                y0 = has_key ? y0 * inverse : 0.0f;
                y1 = has_key ? y1 * inverse : 0.0f;
                if constexpr (C::kIsPacked) {
                    const auto v =
                        p.packed.v_scale.template load<ptx::F32x2>(scales_at + 8 * j + 2 * column);
                    const auto mean =
                        p.packed.v_mean.template load<ptx::F32x2>(scales_at + 8 * j + 2 * column);
                    y0 = has_key ? ptx::fma(y0, v.x, mean.x * share) : 0.0f;
                    y1 = has_key ? ptx::fma(y1, v.y, mean.y * share) : 0.0f;
                }
            }
        }
        epilogue::store_rows<kLaneRows, C::kOutTiles>(
            p.out, to.out + head * p.out.strides.head, to.q_len, column, row_of,
            [&](u32 r, u32 j, u32 i) { return o[r / 2][j][2 * (r % 2) + i]; });
    }
}

}  // namespace QUATT_ABI
}  // namespace quatt::warp_mma
