// Attention by wgmma (sm_90a). A block is kGroups warpgroups that compute, 64 query rows each, and
// one whose first thread loads (producer.cuh). Blocks are persistent: they take items (segment,
// head, kRows query rows; fewer in a last round that would leave most blocks idle) off a list,
// longest first, and walk their key tiles from the last to the first; the groups follow the
// producer, each at its own pace, by the rule of lazy softmax (docs/recipes.md).
//
// Registers (docs/kernels/wgmma.md): with g = lane / 4 and t = lane % 4, a lane holds rows g + 8 r,
// r = 0, 1, of the 16 rows of its warp, and columns 2 t, 2 t + 1 of each 8: x[4 n + 2 r + i] is
// column 8 n + 2 t + i of row r.
#pragma once

#include "cuda/wgmma/config.hpp"
#include "cuda/wgmma/producer.cuh"
#include "cuda/wgmma/promoted.cuh"

namespace quatt::wgmma {
inline namespace QUATT_ABI {

// Which tile is the next slow one: whose maximum is taken before its exponentials, and whose keys
// may be masked. Others take the common path, where no maximum is taken.
template <class C>
struct SlowTiles {
    i32 next;              // position in the walk
    i32 recent = 0, last;  // overflows of late, as of tile `last`

    QUATT_DEV explicit SlowTiles(i32 first) : next(first), last(first) {}

    // After tile n: a border is slow, a tile with masked keys, one that this lane asks for, and any
    // while overflows come often.
    QUATT_DEV void plan(const typename C::Walk& walk, i32 n, i32 unmasked, bool overflowed,
                        bool is_asked) {
        if (overflowed) {
            recent -= last - n;
            recent = (recent < 0 ? 0 : recent) + C::kOverflowWeight;
            last = n;
        }
        const i32 border = walk.next_border(n);
        const bool is_masked = (walk.tile(n - 1) + 1) * i32(C::kKeys) > unmasked;
        next = ptx::any(is_asked || is_masked) || recent - (last - n) >= C::kOften ? n - 1 : border;
    }
};

template <class C>
QUATT_KERNEL(C::kThreads, 1) attention(const WgmmaParams<C> p) {
    const u32 thread = ptx::thread_x(), lane = ptx::lane_id(), warp = ptx::warp_id(),
              group = warp / 4;
    const SharedViews<C> shared{ptx::dynamic_shared(sizeof(SharedPlan<C>))};

    if (thread == 0) {
        QUATT_UNROLL
        for (u32 s = 0; s < C::kStages; s++) {
            ptx::mbarrier_init(shared.full(s), 1);
            ptx::mbarrier_init(shared.empty(s), C::kWarps);
        }
        ptx::mbarrier_init(shared.item_full(), 1);
        ptx::mbarrier_init(shared.item_empty(), C::kWarps);
        ptx::fence_mbarrier_init();
    }
    ptx::barrier_sync();
    ptx::grid_wait();  // the packed operands are there

    if (group == C::kGroups) {
        ptx::setmaxnreg_dec<C::kProducerRegisters>();
        if (thread == C::kGroups * C::kGroupThreads) {
            produce<C>(p, shared);
        }
        return;
    }

    ptx::setmaxnreg_inc<C::kConsumerRegisters>();
    const u32 g = lane / 4, t = lane % 4;
    // NOTE: each warp lets go for itself. Nothing says that its wait for a wgmma covers the other
    // three warps of the group, and one of them may fall behind by a slow tile.
    const bool speaks = lane == 0;
    const u64 q_matrix = ptx::k_major<C::kDim>(shared.q(group));
    const u64 k_matrix = ptx::k_major<C::kDim>(shared.k(0, 0)),
              v_matrix = ptx::k_major<64>(k_matrix,
                                          offsetof(SharedPlan<C>, v) - offsetof(SharedPlan<C>, k));
    u32 stage = 0, phase = 0;  // of the pair of tiles at hand
    const auto next_stage = [&] {
        stage++;
        phase ^= stage == C::kStages ? 1 : 0;
        stage = stage == C::kStages ? 0 : stage;
    };

    QUATT_NO_UNROLL
    for (u32 item = 0;; item++) {  // of this block
        ptx::mbarrier_wait(shared.item_full(), item % 2);
        const auto where = shared.item(item).template load<ptx::U32x4>(offsetof(ItemWords, where));
        if (where.x == 0) {
            ptx::bulk_wait_read<0>();
            return;
        }
        const auto lengths =
            shared.item(item).template load<ptx::U32x4>(offsetof(ItemWords, lengths));
        const u32 head = where.z;
        const i32 queries = i32(lengths.x), keys = i32(lengths.y);
        const i32 group_row = i32(where.w + group * C::kGroupRows);
        // Position in the walk. From the second tile of the last pair down; all keys of that one
        // may be masked.
        i32 tile = i32(where.x) / 2 * 2 - 1;
        const bool has_rows = group_row < i32(lengths.w);
        if (!has_rows || tile < 0) {
            // No rows, or no keys: only let the tiles pass.
            ptx::syncwarp();  // all lanes have read the item
            if (speaks) {
                ptx::mbarrier_arrive(shared.item_empty());
            }
            QUATT_NO_UNROLL
            for (; tile >= 0; tile -= 2) {
                ptx::mbarrier_wait(shared.full(stage), phase);
                ptx::syncwarp();  // all lanes have seen it: none may fall behind by a phase
                if (speaks) {
                    ptx::mbarrier_arrive(shared.empty(stage));
                }
                next_stage();
            }
            if (!has_rows) {
                continue;
            }
        }
        const typename C::Walk walk(p.walk, walked_item<C>(p.is_causal, where.y, head, i32(where.w),
                                                           i32(lengths.w), queries, keys));
        const i32 row0 = group_row + i32(warp % 4 * 16 + g);
        const auto row_of = [&](u32 r) { return row0 + i32(8 * r); };
        const auto visible = [&](i32 row) {
            return tile::visible_keys(p.is_causal, row, queries, keys);
        };
        const i32 unmasked = visible(row0 - i32(g));  // seen by every row of the warp
        const i64 factors = i64(head) * p.packed.q_rows + i32(lengths.z);
        float factor[2];
        QUATT_UNROLL
        for (u32 r = 0; r < 2; r++) {
            factor[r] = row_of(r) < queries ? p.packed.q_factor.load(factors + row_of(r)) : 1.0f;
        }

        float o[C::kOutRegisters];
        typename C::Rows rows([&](u32 r) { return row_of(r) < queries; });
        typename C::Promoted promoted{
            shared.promoted(warp), lane, {C::Rows::kNoOffset, C::Rows::kNoOffset}};
        const softmax::FarSum far = shared.far(warp, lane);
        far.reset();
        SlowTiles<C> slow(tile);
        bool is_coarse = false;  // some m of the warp is large
        QUATT_UNROLL
        for (u32 i = 0; i < C::kOutRegisters; i++) {
            o[i] = 0;
        }
        const auto scale_out = [&](u32 r, float f) {
            QUATT_UNROLL
            for (u32 n = 0; n < C::kOutRegisters / 4; n++) {
                ptx::optimizer_barrier(o[4 * n + 2 * r]);
                ptx::optimizer_barrier(o[4 * n + 2 * r + 1]);
                o[4 * n + 2 * r] *= f;
                o[4 * n + 2 * r + 1] *= f;
            }
        };

        float s[C::kScoreRegisters];
        // Asks for the scores of the tile whose K this is.
        const auto issue_qk = [&](u64 k) {
            QUATT_UNROLL
            for (u32 i = 0; i < C::kKSteps; i++) {
                ptx::wgmma_e4m3<C::kKeys>(s, ptx::advanced(q_matrix, 2 * i),
                                          ptx::advanced(k, 2 * i), i != 0);
            }
            ptx::wgmma_commit();
        };
        float scale[2];     // t = score * scale, in log2 units
        bool has_far_keys;  // the tile at hand, in the lane that reads
        const auto load_scale = [&](u32 half) {
            // NOTE: one lane reads, the one that lets go of the stage: racecheck does not see the
            // order that syncwarp makes where the compiler needs no instruction for it.
            ptx::U32x4 entry{0, 0, 0, 0};
            if (speaks) {
                entry = shared.k_scale(stage, half).template load<ptx::U32x4>(0);
            }
            has_far_keys = (entry.y | entry.z) != 0;
            const float k_scale = formats::bit_cast<float>(ptx::shfl_idx(entry.x, 0));
            scale[0] = factor[0] * k_scale;
            scale[1] = factor[1] * k_scale;
        };
        // Asks for O += P V of the tile whose V^T this is.
        const auto issue_pv = [&](const u32(&pf)[C::kPSteps][4], u64 v) {
            QUATT_UNROLL
            for (u32 i = 0; i < C::kPSteps; i++) {
                ptx::wgmma_e4m3<C::kDim>(o, pf[i], ptx::advanced(v, 2 * i), true);
            }
            ptx::wgmma_commit();
        };
        const auto k_of = [&](u32 n, u32 half) {
            return ptx::advanced(k_matrix, (2 * n + half) * (C::kTileBytes / 16));
        };
        const auto v_of = [&](u32 n, u32 half) {
            return ptx::advanced(v_matrix, (2 * n + half) * (C::kTileBytes / 16));
        };

        // Scores of `tile` in s become its P in `now`, beside the products of the tile before,
        // which `settle` waits for.
        const auto softmax = [&](u32(&now)[C::kPSteps][4], u32 half, bool is_first, auto&& settle) {
            // The largest score of this lane in row r, NaN ignored. NOTE: pinned, or the compiler
            // hoists it out of the slow branches.
            const auto lane_maximum = [&](u32 r) {
                float top[4];
                QUATT_UNROLL
                for (u32 n = 0; n < C::kKeys / 8; n++) {
                    ptx::optimizer_barrier(s[4 * n + 2 * r]);
                    ptx::optimizer_barrier(s[4 * n + 2 * r + 1]);
                    const float x = ptx::max(s[4 * n + 2 * r], s[4 * n + 2 * r + 1]);
                    top[n % 4] = n < 4 ? x : ptx::max(top[n % 4], x);
                }
                return ptx::max(ptx::max(top[0], top[1]), ptx::max(top[2], top[3]));
            };
            const auto overflows = [&](u32 r, float score) {
                return C::Probabilities::exponent_overflows(rows.exponent(r, score, scale[r]));
            };
            // Where an m is large, scores become t, so that all of them are rounded alike.
            const auto round_coarse = [&](bool has_moved) {
                if (has_moved || !C::kAsksOnlyMoved) {
                    is_coarse = ptx::any(rows.is_coarse(0) || rows.is_coarse(1));
                }
                if (is_coarse) {
                    QUATT_UNROLL
                    for (u32 i = 0; i < C::kScoreRegisters; i++) {
                        s[i] *= scale[i / 2 % 2];
                    }
                    scale[0] = scale[1] = 1;
                }
            };
            // Bit r: O waits for a rescale by pending_factor[r]; 4: it joins the promoted
            // accumulator.
            u32 pending = 0;
            float pending_factor[2];
            bool overflowed = false;
            u32 risen = 0;  // rows whose m this tile raised by enough for a refresh
            if constexpr (C::Modifier::kChangesScores) {
                QUATT_UNROLL
                for (u32 i = 0; i < C::kScoreRegisters; i++) {
                    const u32 r = i / 2 % 2;
                    const i32 key =
                        walk.tile(tile) * i32(C::kKeys) + i32(8 * (i / 4) + 2 * t + i % 2);
                    s[i] = C::Modifier::apply(p.modifier, s[i] * scale[r], head, row_of(r), key);
                }
                scale[0] = scale[1] = 1;
            }
            if (tile == slow.next) [[unlikely]] {
                const i32 first_key = walk.tile(tile) * i32(C::kKeys);
                if (first_key + i32(C::kKeys) > unmasked) {
                    QUATT_UNROLL
                    for (u32 r = 0; r < 2; r++) {
                        scale[r] = tile::not_zero(scale[r]);
                        // Of this lane's first key on.
                        const i32 seen = visible(row_of(r)) - first_key - i32(2 * t);
                        C::Mask::template apply<C::kKeys / 8>(
                            seen, [&](u32 n, u32 i) -> float& { return s[4 * n + 2 * r + i]; });
                    }
                }
                const bool is_border = is_first || walk.is_border(tile);
                float top[2] = {lane_maximum(0), lane_maximum(1)};
                top[0] = softmax::row_maximum(top[0]);
                top[1] = softmax::row_maximum(top[1]);
                QUATT_UNROLL
                for (u32 r = 0; r < 2; r++) {
                    const bool is_over = overflows(r, top[r]);
                    pending_factor[r] =
                        rows.update(r, top[r] * scale[r], is_border || (rows.refresh >> r & 1) != 0,
                                    is_over, risen);
                    overflowed |= is_over & (pending_factor[r] < 1);
                    pending |= ptx::any(pending_factor[r] != 1) ? 1u << r : 0u;
                }
                rows.refresh = risen;
                round_coarse(pending != 0);
                slow.plan(walk, tile, unmasked, !is_first && ptx::any(overflowed),
                          is_coarse || rows.refresh != 0);
                pending = is_first ? 0 : is_border ? pending | 4 : pending;  // at first O is 0
            }
            float sum[2];
            // Whether a code of row r may be at the end of its range. No p is larger than a sum
            // that it is in: of 8 here, so that equal ones raise no alarm below 54.
            const auto exponentials = [&](u32 r) {
                float even = 0, odd = 0;
                QUATT_UNROLL
                for (u32 n = 0; n < C::kKeys / 8; n += 2) {
                    float e[4];
                    QUATT_UNROLL
                    for (u32 j = 0; j < 4; j++) {
                        e[j] = ptx::ex2(
                            rows.exponent(r, s[4 * (n + j / 2) + 2 * r + j % 2], scale[r]));
                    }
                    even = n == 0 ? e[0] : even + e[0];
                    odd = n == 0 ? e[1] : odd + e[1];
                    even += e[2];
                    odd += e[3];
                    now[n / 4][2 * (n / 2 % 2) + r] = C::Probabilities::pack(e);
                }
                sum[r] = even + odd;
                return C::Probabilities::may_overflow(even) || C::Probabilities::may_overflow(odd);
            };
            const bool may_overflow[2] = {exponentials(0), exponentials(1)};
            if (ptx::any(may_overflow[0] || may_overflow[1] || has_far_keys)) [[unlikely]] {
                bool is_slow = false;
                QUATT_UNROLL
                for (u32 r = 0; r < 2; r++) {
                    if (ptx::any(may_overflow[r])) {
                        const float top = lane_maximum(r);
                        if (ptx::any(overflows(r, top))) {
                            const float before = (pending >> r & 1) != 0 ? pending_factor[r] : 1.0f;
                            const float all = softmax::row_maximum(top);
                            pending_factor[r] = before * rows.update(r, all * scale[r], false,
                                                                     overflows(r, all), risen);
                            pending |= 1u << r;
                            round_coarse(true);
                            (void)exponentials(r);
                            is_slow = true;
                        }
                    }
                }
                if (is_slow) {
                    rows.refresh |= risen;
                    slow.plan(walk, tile, unmasked, true, is_coarse || rows.refresh != 0);
                }
                if (ptx::any(has_far_keys)) {
                    softmax::FarKeys keys_of_tile{0, 0};
                    if (speaks) {
                        const auto entry = shared.k_scale(stage, half).template load<ptx::U32x4>(0);
                        keys_of_tile = {entry.y, entry.z};
                    }
                    keys_of_tile = {ptx::shfl_idx(keys_of_tile.low, 0),
                                    ptx::shfl_idx(keys_of_tile.high, 0)};
                    far.add<C::kKeys / 8>(
                        keys_of_tile, t, rows.exponent_offset[0], rows.exponent_offset[1],
                        [&](u32 n, u32 r, u32 i) {
                            return ptx::ex2(rows.exponent(r, s[4 * n + 2 * r + i], scale[r]));
                        });
                }
            }
            // NOTE: after a branch, or the compiler waits before the exponentials.
            settle();
            if (pending != 0) [[unlikely]] {
                if ((pending & 4) != 0) {
                    promoted.promote(o, pending_factor, rows.exponent_offset);
                } else {
                    QUATT_UNROLL
                    for (u32 r = 0; r < 2; r++) {
                        if ((pending >> r & 1) != 0) {
                            scale_out(r, pending_factor[r]);
                        }
                    }
                }
            }
            rows.sum[0] += sum[0];
            rows.sum[1] += sum[1];
        };
        const auto release = [&](u32 n) {
            ptx::syncwarp();  // no lane is behind by a phase
            if (speaks) {
                ptx::mbarrier_arrive(shared.empty(n));
            }
        };

        if (tile >= 0) {
            u32 pa[C::kPSteps][4], pb[C::kPSteps][4];
            ptx::mbarrier_wait(shared.full(stage), phase);
            ptx::wgmma_fence();
            issue_qk(k_of(stage, 1));
            load_scale(1);
            ptx::wgmma_wait<0>();
            softmax(pa, 1, true, [] {});
            // The next pair: asked for early, the answer takes a while.
            u32 next = 0, next_phase = 0;
            bool is_there = false;
            // Scores of the next tile, which is in `half` of its stage, and its P in `now`, beside
            // P V of the tile before.
            const auto step = [&](u32 half, const u32(&was)[C::kPSteps][4],
                                  u32(&now)[C::kPSteps][4]) {
                tile--;
                const u32 before = stage;  // of the tile before
                if (half == 1) {
                    stage = next;
                    phase = next_phase;
                    if (!is_there) {
                        ptx::mbarrier_wait(shared.full(stage), phase);
                    }
                }
                load_scale(half);
                ptx::wgmma_fence();
                issue_qk(k_of(stage, half));
                issue_pv(was, v_of(before, 1 - half));
                if (half == 0) {
                    const bool wraps = stage + 1 == C::kStages;
                    next = wraps ? 0 : stage + 1;
                    next_phase = phase ^ (wraps ? 1 : 0);
                    is_there = ptx::mbarrier_test_wait(shared.full(next), next_phase);
                }
                ptx::wgmma_wait<1>();
                softmax(now, half, false, [&] {
                    ptx::wgmma_wait<0>();
                    if (half == 1) {
                        release(before);
                    }
                });
            };
            QUATT_NO_UNROLL
            for (;;) {
                step(0, pa, pb);
                if (tile == 0) {
                    break;
                }
                step(1, pb, pa);
            }
            ptx::syncwarp();
            if (speaks) {
                ptx::mbarrier_arrive(shared.item_empty());  // this warp has read Q and the item
            }
            ptx::wgmma_fence();
            issue_pv(pb, v_of(stage, 0));
            ptx::wgmma_wait<0>();
            release(stage);
            next_stage();
            QUATT_UNROLL
            for (u32 i = 0; i < C::kOutRegisters; i++) {
                ptx::optimizer_barrier(o[i]);
            }
        }

        // ------------------------------------------------------------ results
        const auto results =
            shared.item(item).template load<ptx::U32x4>(offsetof(ItemWords, results));
        const auto offset = [](u32 low, u32 high) { return i64(u64(high) << 32 | low); };
        const ptx::Shared v_scale = shared.v_scale(item), v_mean = shared.v_mean(item);
        float keep[2], add[2], share[2];  // share: of the centre of V
        bool has_key[2];
        QUATT_UNROLL
        for (u32 r = 0; r < 2; r++) {
            rows.finish(r);
            // NOTE: without a key the sum may be NaN, where Q or a masked K is.
            has_key[r] = rows.sum[r] != 0 && visible(row_of(r)) > 0;
            if (p.out.has_lse && t == 0 && row_of(r) < queries) {
                const float lse = rows.lse(r) + p.packed.lse_shift.load(factors + row_of(r));
                p.out.lse.store(offset(results.z, results.w) + head * p.out.lse_head +
                                    row_of(r) * p.out.lse_token,
                                has_key[r] ? lse : -INFINITY);
            }
            const float inverse = 1.0f / rows.sum[r];
            keep[r] = promoted.factor(r, rows.exponent_offset[r]) * inverse;
            add[r] = inverse;
            share[r] = (rows.sum[r] - far.finish(r, rows.exponent_offset[r])) * inverse;
        }
        QUATT_UNROLL
        for (u32 n = 0; n < C::kOutRegisters / 4; n++) {
            float* x = &o[4 * n];
            const ptx::F32x4 y = promoted.load(n);
            const auto v = v_scale.template load<ptx::F32x2>(4 * (8 * n + 2 * t));
            const auto mean = v_mean.template load<ptx::F32x2>(4 * (8 * n + 2 * t));
            x[0] = ptx::fma(ptx::fma(x[0], add[0], y.x * keep[0]), v.x, mean.x * share[0]);
            x[1] = ptx::fma(ptx::fma(x[1], add[0], y.y * keep[0]), v.y, mean.y * share[0]);
            x[2] = ptx::fma(ptx::fma(x[2], add[1], y.z * keep[1]), v.x, mean.x * share[1]);
            x[3] = ptx::fma(ptx::fma(x[3], add[1], y.w * keep[1]), v.y, mean.y * share[1]);
            QUATT_UNROLL
            for (u32 i = 0; i < 4; i++) {
                x[i] = has_key[i / 2] ? x[i] : 0.0f;
            }
        }
        const i64 out_at = offset(results.x, results.y) + head * p.out.strides.head;
        if (p.out.bulk) {
            const i32 first_row = row0 - i32(g);
            promoted.send_rows(o, p.out, out_at + first_row * p.out.strides.token,
                               queries - first_row);
        } else {
            epilogue::store_rows<2, C::kOutRegisters / 4>(
                p.out, out_at, queries, t, row_of,
                [&](u32 r, u32 n, u32 i) { return o[4 * n + 2 * r + i]; });
        }
    }
}

}  // namespace QUATT_ABI
}  // namespace quatt::wgmma
