// Attention by mma.sync: persistent blocks take items (segment, head, 128 query rows) off a list,
// longest first. Each warp walks the key tiles of its rows from the last to the first by the law of
// the softmax reference (docs/recipes.md).
//
// Fragments (docs/kernels/warp_mma.md): with g = lane / 4 and t = lane % 4 a lane holds the scores
// of rows g and g + 8 of each 16-row block, columns 2t and 2t + 1 of each 8 keys. Index r = 2 *
// block + (row >= 8) numbers the rows of a lane.
#pragma once

#include "cuda/tile/items.cuh"
#include "cuda/tile/mask.cuh"
#include "cuda/warp_mma/config.hpp"

namespace quatt::warp_mma {
inline namespace QUATT_ABI {

template <class C>
QUATT_DEV void multiply(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1,
                        ptx::Site site = ptx::Site::current()) {
    if constexpr (C::kArithmetic == Arithmetic::kBf16) {
        ptx::mma_bf16(d, a, b0, b1, site);
    } else if constexpr (C::kArithmetic == Arithmetic::kF16) {
        ptx::mma_f16(d, a, b0, b1, site);
    } else if constexpr (C::kAtom == Atom::kBlockScaled) {
        ptx::mma_e4m3_block_scaled(d, a, b0, b1, 0x7F7F7F7Fu, 0x7F7F7F7Fu, site);
    } else {
        ptx::mma_e4m3_fast(d, a, b0, b1, site);
    }
}

// 16-byte chunk `chunk` of row `row`, in rows of Pitch bytes: eight rows of a matrix fall on eight
// different bank groups, in rows of 64 and 128 bytes because prep swizzled the chunks, in others
// because Pitch is an odd number of chunks.
template <u32 Pitch>
QUATT_DEV u32 place(u32 row, u32 chunk) {
    if constexpr (Pitch == 64 || Pitch == 128) {
        return row * Pitch + tile::swizzled_chunk(Pitch, row, chunk) * 16;
    } else {
        static_assert(Pitch / 16 % 2 == 1);
        return row * Pitch + chunk * 16;
    }
}

template <class C>
QUATT_KERNEL(C::kThreads) attention(const Params p) {
    using Plan = SharedPlan<C>;
    constexpr Mutant kMutant = C::kMutant;
    constexpr u32 kLaneRows = 2 * C::kBlocks;
    const u32 thread = ptx::thread_x(), lane = ptx::lane_id(), warp = ptx::warp_id(), g = lane / 4,
              t = lane % 4;
    const ptx::Shared shared = ptx::dynamic_shared(sizeof(Plan));
    const auto stage_of = [&](u32 array, u32 stage) {
        return shared.sub(array + stage * C::kTileBytes, C::kTileBytes);
    };
    const auto k_stage = [&](u32 stage) { return stage_of(offsetof(Plan, k), stage); };
    const auto v_stage = [&](u32 stage) { return stage_of(offsetof(Plan, v), stage); };
    const auto full = [&](u32 stage) { return shared.sub(offsetof(Plan, full) + 8 * stage, 8); };
    const auto empty = [&](u32 stage) { return shared.sub(offsetof(Plan, empty) + 8 * stage, 8); };

    if constexpr (C::kFp8) {
        if (thread == 0) {
            QUATT_UNROLL
            for (u32 s = 0; s < C::kStages; s++) {
                ptx::mbarrier_init(full(s), 1);
                ptx::mbarrier_init(empty(s), C::kWarps);
            }
            ptx::fence_mbarrier_init();
        }
        ptx::barrier_sync();
    }
    ptx::grid_wait();  // what prep packed is there
    u32 used = 0;      // tiles since the start of the block, over all items

    QUATT_NO_UNROLL
    for (;;) {
        // ---------------------------------------------------------------- the next item
        if (thread == 0) {
            shared.store(offsetof(Plan, item), ptx::atomic_add(p.work, tile::kNextItem, 1u));
        }
        ptx::barrier_sync();
        const u32 item = shared.load<u32>(offsetof(Plan, item));
        ptx::barrier_sync();  // read by all before it is written again; 16 bit: nobody reads Q any
                              // more
        if (item >= p.work.load(tile::kItems)) {
            break;
        }
        const tile::Item next =
            tile::find_item(item, p.work, p.segment_count, p.segments, C::kRows);
        const tile::Segment& seg = next.where;
        const u32 segment = next.segment, head = next.head, kv_head = head / p.heads_per_group;
        const i32 item_row = i32(next.row_tile * C::kRows);
        const i32 warp_row = item_row + i32(warp * 16 * C::kBlocks);
        const auto row_of = [&](u32 r) { return warp_row + i32(16 * (r / 2) + 8 * (r % 2) + g); };
        // Keys that row `row` sees: [0, last(row)). Bottom-right aligned.
        const auto last = [&](i32 row) {
            const i32 end = p.is_causal ? row + seg.k_len - seg.q_len + 1 : seg.k_len;
            return end < 0 ? 0 : end > seg.k_len ? seg.k_len : end;
        };
        const i32 item_last = last(item_row + i32(C::kRows) - 1);
        const i32 tiles = (item_last + i32(C::kKeys) - 1) / i32(C::kKeys);
        const i32 unmasked = last(warp_row);  // keys below it are seen by every row of the warp

        const i64 q8_at = (i64(head) * p.q_tiles + tile::first_query_tile(seg.q_row, segment)) *
                          (tile::kQueryTile * C::kDim);
        const i64 q_at = p.is_copy ? seg.q_row * p.q_strides.token : seg.q;
        const i64 k_at = p.is_copy ? i64(seg.k_tile) * C::kKeys * p.k_strides.token : seg.k;
        const i64 v_at = p.is_copy ? i64(seg.k_tile) * C::kKeys * p.v_strides.token : seg.v;

        // ---------------------------------------------------------------- requests
        const auto fill = [&](i32 key_tile, u32 filled) {
            const u32 stage = filled % C::kStages;
            if constexpr (C::kFp8) {
                if (thread == 0) {
                    const i64 at =
                        (i64(kv_head) * p.k_tiles + seg.k_tile + key_tile) * C::kTileBytes;
                    if constexpr (kMutant != Mutant::kNoFreeWait) {
                        ptx::mbarrier_wait(empty(stage), (filled / C::kStages + 1) % 2);
                    }
                    ptx::mbarrier_arrive_expect_tx(full(stage), 2 * C::kTileBytes);
                    ptx::bulk_load(k_stage(stage), p.k8.sub(at, C::kTileBytes), C::kTileBytes,
                                   full(stage));
                    ptx::bulk_load(v_stage(stage), p.v8.sub(at, C::kTileBytes), C::kTileBytes,
                                   full(stage));
                }
            } else {
                // A thread copies the same chunk of every kStep-th row.
                constexpr u32 kChunks = C::kRowBytes / 16, kStep = C::kThreads / kChunks,
                              kCopies = C::kKeys / kStep;
                const u32 row = thread / kChunks, chunk = thread % kChunks;
                const i64 key = i64(key_tile) * C::kKeys + row;
                const i64 k_from =
                    k_at + kv_head * p.k_strides.head + key * p.k_strides.token + 8 * chunk;
                const i64 v_from =
                    v_at + kv_head * p.v_strides.head + key * p.v_strides.token + 8 * chunk;
                const auto copy = [&](u32 i, bool is_real) {
                    const u32 to = place<C::kPitch>(row + i * kStep, chunk),
                              bytes = is_real ? 16 : 0;
                    ptx::cp_async<16>(k_stage(stage), to, p.k,
                                      is_real ? k_from + i * kStep * p.k_strides.token : 0, bytes);
                    ptx::cp_async<16>(v_stage(stage), to, p.v,
                                      is_real ? v_from + i * kStep * p.v_strides.token : 0, bytes);
                };
                if ((key_tile + 1) * i32(C::kKeys) <= seg.k_len || kMutant == Mutant::kNoZeroFill) {
                    QUATT_UNROLL
                    for (u32 i = 0; i < kCopies; i++) {
                        copy(i, true);
                    }
                } else {
                    QUATT_UNROLL
                    for (u32 i = 0; i < kCopies; i++) {
                        copy(i, key + i * kStep < seg.k_len);
                    }
                }
                ptx::cp_async_commit();
            }
        };

        // ---------------------------------------------------------------- Q and the rows' state
        u32 q[C::kSharedQ ? 1 : C::kKSteps][4];  // A fragments of 16 rows
        float factor[kLaneRows];
        const ptx::Shared q_shared =
            shared.sub(offsetof(Plan, q), C::kSharedQ ? C::kRows * C::kPitch : 16);
        QUATT_UNROLL
        for (u32 r = 0; r < kLaneRows; r++) {
            const bool is_real = row_of(r) < seg.q_len;
            const i64 row = i64(head) * p.q_rows + seg.q_row + (is_real ? row_of(r) : 0);
            factor[r] = !C::kFp8 ? p.score_factor : is_real ? p.q_factor.load(row) : 0.0f;
            // 8 bit: this lane's 4 bytes of a chunk of the row. NOTE: both so, or what they are
            // made of takes registers in the loop over tiles, which sm_120 does not have.
            const i64 codes = is_real ? q8_at + i64(row_of(r)) * C::kDim + 4 * t : 0;
            u32 row_in_8 = g;
            ptx::pin(row_in_8);
            QUATT_UNROLL
            for (u32 s = 0; !C::kSharedQ && s < C::kKSteps; s++)
                QUATT_UNROLL
            for (u32 half = 0; half < 2; half++) {
                u32& a = q[C::kSharedQ ? 0 : s][2 * half + r % 2];
                a = 0;
                if (is_real && C::kFp8) {
                    const u32 chunk = tile::swizzled_chunk(C::kDim, row_in_8, 2 * s + half);
                    a = p.q8.template load<u32>(codes + 16 * chunk);
                } else if (is_real) {
                    a = p.q.template load<u32>(q_at + head * p.q_strides.head +
                                               row_of(r) * p.q_strides.token + 16 * s + 8 * half +
                                               2 * t);
                }
            }
        }
        if constexpr (C::kSharedQ) {
            constexpr u32 kChunks = C::kRowBytes / 16;
            QUATT_UNROLL
            for (u32 i = 0; i < C::kRows * kChunks / C::kThreads; i++) {
                const u32 index = thread + i * C::kThreads, row = index / kChunks,
                          chunk = index % kChunks;
                const bool is_real = item_row + i32(row) < seg.q_len;
                const i64 at = q_at + head * p.q_strides.head +
                               (item_row + i64(row)) * p.q_strides.token + 8 * chunk;
                ptx::cp_async<16>(q_shared, place<C::kPitch>(row, chunk), p.q, is_real ? at : 0,
                                  is_real ? 16 : 0);
            }
        }
        QUATT_UNROLL
        for (u32 i = 0; i < C::kAhead; i++) {
            if (i32(i) < tiles) {
                fill(tiles - 1 - i32(i), used + i);
            }
        }

        float o[C::kBlocks][C::kOutTiles][4] = {};
        float l[kLaneRows] = {}, m[kLaneRows], highest[kLaneRows];
        u32 look = 0;           // bit r: the tile before raised m of row r by 8 or more
        bool any_look = false;  // in some row of the warp
        QUATT_UNROLL
        for (u32 r = 0; r < kLaneRows; r++) {
            m[r] = highest[r] = C::kNoReference;
        }
        // Everything summed under the old reference follows, by an exact power of two.
        const auto move = [&](u32 r, float to) {
            const float f = ptx::ex2(m[r] - to);
            m[r] = to;
            highest[r] = ptx::max(highest[r], to);
            l[r] *= f;
            QUATT_UNROLL
            for (u32 n = 0; n < C::kOutTiles; n++) {
                o[r / 2][n][2 * (r % 2)] *= f;
                o[r / 2][n][2 * (r % 2) + 1] *= f;
            }
        };

        // Where this lane's row of the first ldmatrix is; the others are a constant away. 8 bit:
        u32 k_lanes[C::kFp8 ? C::kKSteps / 2 : 1];
        QUATT_UNROLL
        for (u32 i = 0; C::kFp8 && i < C::kKSteps / 2; i++) {
            k_lanes[i] = place<C::kPitch>(lane % 8, 4 * i + lane / 8);
        }
        u32 v_row = place<64>(lane % 8, lane / 8);
        // NOTE: pinned, or the compiler computes them anew in each tile.
        if constexpr (C::kFp8) {
            QUATT_UNROLL
            for (u32& x : k_lanes) {
                ptx::pin(x);
            }
            ptx::pin(v_row);
        }
        // 16 bit:
        const u32 q_lane = place<C::kPitch>(16 * warp * C::kBlocks + lane % 16, lane / 16);
        const u32 k_lane = place<C::kPitch>(8 * (lane / 16) + lane % 8, lane / 8 % 2);
        const u32 v_lane = place<C::kPitch>(lane % 16, lane / 16);

        // ---------------------------------------------------------------- key tiles, last to first
        constexpr i64 kScaleStride = tile::kKeyScaleStride;
        const auto k_scales =
            p.k_scale.sub(C::kFp8 ? (i64(kv_head) * p.k_tiles + seg.k_tile) * kScaleStride : 0,
                          C::kFp8 ? i64(tiles) * kScaleStride : 0);
        float next_scale = C::kFp8 && tiles > 0 ? k_scales.load((tiles - 1) * kScaleStride) : 1.0f;
        QUATT_NO_UNROLL
        for (i32 key_tile = tiles - 1; key_tile >= 0; key_tile--) {
            const u32 stage = used % C::kStages;
            if constexpr (C::kFp8) {
                if (key_tile >= i32(C::kAhead)) {
                    fill(key_tile - i32(C::kAhead), used + C::kAhead);
                }
                if constexpr (kMutant != Mutant::kNoFullWait) {
                    ptx::mbarrier_wait(full(stage), used / C::kStages % 2);
                }
            } else {
                if constexpr (kMutant != Mutant::kNoFullWait) {
                    ptx::cp_async_wait<0>();
                }
                if constexpr (kMutant != Mutant::kNoFreeWait) {
                    ptx::barrier_sync();  // the tile is here for all, and all have left the other
                                          // stage
                }
            }
            used++;
            const ptx::Shared ks = k_stage(stage), vs = v_stage(stage);

            // t = score * scaled[r], in log2 units
            float scaled[kLaneRows];
            QUATT_UNROLL
            for (u32 r = 0; r < kLaneRows; r++) {
                scaled[r] = factor[r] * next_scale;
            }
            if (C::kFp8 && key_tile > 0) {
                next_scale = k_scales.load((key_tile - 1) * kScaleStride);
            }

            float s[C::kBlocks][C::kScoreTiles][4];
            const auto scores = [&](i32 tile) {
                QUATT_UNROLL
                for (u32 b = 0; b < C::kBlocks; b++)
                    QUATT_UNROLL
                for (u32 n = 0; n < C::kScoreTiles; n++) {
                    QUATT_UNROLL
                    for (u32 i = 0; i < 4; i++) {
                        s[b][n][i] = 0;
                    }
                }
                if constexpr (C::kFp8) {
                    QUATT_UNROLL
                    for (u32 n = 0; n < C::kScoreTiles; n++)
                        QUATT_UNROLL
                    for (u32 i = 0; i < C::kKSteps / 2; i++) {
                        u32 b[4];  // 8 keys x 64 channels
                        ptx::ldmatrix_x4(b, ks, k_lanes[i] + 8 * n * C::kPitch);
                        multiply<C>(s[0][n], q[2 * i], b[0], b[1]);
                        multiply<C>(s[0][n], q[2 * i + 1], b[2], b[3]);
                    }
                } else {
                    QUATT_UNROLL
                    for (u32 step = 0; step < C::kKSteps; step++) {
                        u32 a[C::kBlocks][4];
                        QUATT_UNROLL
                        for (u32 b = 0; b < C::kBlocks; b++) {
                            if constexpr (C::kSharedQ) {
                                ptx::ldmatrix_x4(a[b], q_shared,
                                                 q_lane + 16 * b * C::kPitch + 32 * step);
                            } else {
                                QUATT_UNROLL
                                for (u32 i = 0; i < 4; i++) {
                                    a[b][i] = q[step][i];
                                }
                            }
                        }
                        QUATT_UNROLL
                        for (u32 n = 0; n < C::kScoreTiles; n += 2) {
                            u32 b[4];  // 16 keys x 16 channels
                            ptx::ldmatrix_x4(b, ks, k_lane + 8 * n * C::kPitch + 32 * step);
                            QUATT_UNROLL
                            for (u32 i = 0; i < C::kBlocks; i++) {
                                multiply<C>(s[i][n], a[i], b[0], b[1]);
                                multiply<C>(s[i][n + 1], a[i], b[2], b[3]);
                            }
                        }
                    }
                }
                if ((tile + 1) * i32(C::kKeys) > unmasked && kMutant != Mutant::kNoMask) {
                    QUATT_UNROLL
                    for (u32 r = 0; r < kLaneRows; r++) {
                        // NOTE: of 16 bits it never changes, and stays a constant of the loop.
                        scaled[r] = C::kFp8 ? tile::not_zero(scaled[r]) : scaled[r];
                        const i32 seen = last(row_of(r)) - tile * i32(C::kKeys) -
                                         i32(2 * t);  // of this lane's first key on
                        tile::mask_row<C::kScoreTiles>(seen, [&](u32 n, u32 i) -> float& {
                            return s[r / 2][n][2 * (r % 2) + i];
                        });
                    }
                }
            };
            // ceil of the row's largest t, NaN ignored. NOTE: pinned, or the compiler hoists it out
            // of the rare branches.
            const auto ceil_maximum = [&](u32 r) {
                QUATT_UNROLL
                for (u32 n = 0; n < C::kScoreTiles; n++) {
                    ptx::pin(s[r / 2][n][2 * (r % 2)]);
                    ptx::pin(s[r / 2][n][2 * (r % 2) + 1]);
                }
                float x = ptx::max(s[r / 2][0][2 * (r % 2)], s[r / 2][0][2 * (r % 2) + 1]);
                QUATT_UNROLL
                for (u32 n = 1; n < C::kScoreTiles; n++) {
                    x = ptx::max(x,
                                 ptx::max(s[r / 2][n][2 * (r % 2)], s[r / 2][n][2 * (r % 2) + 1]));
                }
                x = ptx::max(x, ptx::shfl_xor(x, 1));
                x = ptx::max(x, ptx::shfl_xor(x, 2));
                return ptx::ceil(x * scaled[r]);
            };
            scores(key_tile);
            if (!C::kFp8 && key_tile > 0) {
                fill(key_tile - 1, used);  // here, while the products of the scores are under way
            }

            // Looks. Without any, in recipe bf16, one finds the first reference all the same: every
            // row would overflow.
            const bool is_first = key_tile == tiles - 1,
                       is_border = key_tile % i32(C::kIntervalTiles) == i32(C::kIntervalTiles) - 1;
            u32 rose = 0;  // bit r: this tile raised m of row r by 8 or more
            bool any_rose = false;
            if (is_first || (C::kLooks && (is_border || any_look))) {
                QUATT_UNROLL
                for (u32 r = 0; r < kLaneRows; r++) {
                    const float x = ceil_maximum(r);
                    if (is_first || is_border || (look >> r & 1) != 0) {
                        if (x > m[r]) {
                            rose |= x - m[r] >= C::kRise ? 1u << r : 0u;
                            move(r, x);
                        } else if (C::kLooks && x > -INFINITY && x <= m[r] - C::kRise) {
                            move(r, ptx::max(x, highest[r] - C::kFallLimit));
                        }
                    }
                }
                any_rose = ptx::any(rose != 0);
            }

            u32 pf[C::kBlocks][C::kPSteps][4];  // P as A fragments
            float sum[kLaneRows];
            QUATT_NO_UNROLL
            for (bool redone = false;; redone = true) {
                QUATT_UNROLL
                for (u32 r = 0; r < kLaneRows; r++) {
                    sum[r] = 0;
                }
                bool over[kLaneRows];
                QUATT_UNROLL
                for (u32 b = 0; b < C::kBlocks; b++) {
                    u32 top[2] = {0, 0};  // bits that show a code at the end of its range
                    QUATT_UNROLL
                    for (u32 step = 0; step < C::kPSteps; step++)
                        QUATT_UNROLL
                    for (u32 i = 0; i < 4; i++) {
                        // Register i of an A fragment: row half i % 2, keys of score tile(s) n.
                        const u32 half = i % 2, r = 2 * b + half;
                        const u32 n = C::kFp8 ? 4 * step + 2 * (i / 2) : 2 * step + i / 2;
                        const float c = C::kExponent - m[r];
                        float e[C::kFp8 ? 4 : 2];
                        QUATT_UNROLL
                        for (u32 j = 0; j < (C::kFp8 ? 4 : 2); j++) {
                            e[j] =
                                ptx::ex2(ptx::fma(s[b][n + j / 2][2 * half + j % 2], scaled[r], c));
                            sum[r] = step == 0 && i < 2 && j == 0 ? e[j] : sum[r] + e[j];
                        }
                        if constexpr (C::kFp8) {
                            pf[b][step][i] = ptx::pack_e4m3x4(e[0], e[1], e[2], e[3]);
                            top[half] |= pf[b][step][i] + 0x02020202u;
                        } else if constexpr (C::kArithmetic == Arithmetic::kF16) {
                            pf[b][step][i] = ptx::pack_f16x2(e[0], e[1]);
                            top[half] |= pf[b][step][i] + 0x08000800u;
                        } else {
                            pf[b][step][i] = ptx::pack_bf16x2(e[0], e[1]);
                        }
                    }
                    QUATT_UNROLL
                    for (u32 half = 0; half < 2; half++) {
                        // bf16: the row's sum counts, a quarter of which some lane must have.
                        over[2 * b + half] = C::kArithmetic == Arithmetic::kBf16
                                                 ? !(sum[2 * b + half] < 0x1p62f)
                                             : C::kFp8 ? (top[half] & 0x80808080u) != 0
                                                       : (top[half] & 0x80008000u) != 0;
                    }
                }
                if (redone || kMutant == Mutant::kNoRedo) {
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
                if constexpr (!C::kFp8) {
                    u32 tile = u32(key_tile);
                    ptx::pin(tile);     // NOTE: or its masks are prepared on the common path
                    scores(i32(tile));  // its registers have gone to P
                }
                QUATT_UNROLL
                for (u32 r = 0; r < kLaneRows; r++) {
                    bool row_over = (ptx::ballot(over[r]) >> (lane & 28u) & 0xFu) !=
                                    0;  // the same in the four lanes of a row
                    if constexpr (C::kArithmetic == Arithmetic::kBf16) {
                        float all = sum[r] + ptx::shfl_xor(sum[r], 1);
                        all += ptx::shfl_xor(all, 2);
                        row_over = !(all < 0x1p64f);
                    }
                    const float x = ceil_maximum(r);
                    if (row_over && x > m[r]) {
                        rose |= x - m[r] >= C::kRise ? 1u << r : 0u;
                        move(r, x);
                    }
                }
                any_rose = ptx::any(rose != 0);
            }
            any_look = C::kLooks && any_rose;
            if (C::kLooks) {
                look = rose;
            }
            QUATT_UNROLL
            for (u32 r = 0; r < kLaneRows; r++) {
                l[r] += sum[r];
            }

            if constexpr (C::kFp8) {
                QUATT_UNROLL
                for (u32 n = 0; n < C::kOutTiles; n++) {
                    u32 b[4];  // 8 channels x 64 keys
                    ptx::ldmatrix_x4(b, vs, v_row + 8 * n * 64);
                    multiply<C>(o[0][n], pf[0][0], b[0], b[1]);
                    multiply<C>(o[0][n], pf[0][1], b[2], b[3]);
                }
                if constexpr (kMutant != Mutant::kNoProxyFence) {
                    ptx::fence_proxy_async();  // our reads come before the copy that refills the
                                               // stage
                }
                ptx::syncwarp();
                if (lane == 0) {
                    ptx::mbarrier_arrive(empty(stage));
                }
            } else {
                QUATT_UNROLL
                for (u32 step = 0; step < C::kPSteps; step++)
                    QUATT_UNROLL
                for (u32 n = 0; n < C::kOutTiles; n += 2) {
                    u32 b[4];  // 16 keys x 16 channels
                    ptx::ldmatrix_x4_trans(b, vs, v_lane + 16 * step * C::kPitch + 16 * n);
                    QUATT_UNROLL
                    for (u32 i = 0; i < C::kBlocks; i++) {
                        multiply<C>(o[i][n], pf[i][step], b[0], b[1]);
                        multiply<C>(o[i][n + 1], pf[i][step], b[2], b[3]);
                    }
                }
            }
        }
        if (C::kSharedQ && tiles <= 0) {
            ptx::cp_async_commit();  // Q's copies, which no tile took along or waited for
            ptx::cp_async_wait<0>();
        }

        // ---------------------------------------------------------------- results
        // NOTE: read again, so that what only the results need takes no registers in the loop.
        const tile::Segment to = tile::load_segment(p.segments, segment);
        const i64 scales_at = (i64(segment) * (p.heads_q / p.heads_per_group) + kv_head) * C::kDim;
        QUATT_UNROLL
        for (u32 r = 0; r < kLaneRows; r++) {
            l[r] += ptx::shfl_xor(l[r], 1);
            l[r] += ptx::shfl_xor(l[r], 2);
            const bool has_key = l[r] != 0;  // NaN is one
            if (p.out.has_lse && t == 0 && row_of(r) < to.q_len) {
                float lse = (m[r] - C::kExponent + ptx::lg2(l[r])) * 0.6931471805599453f;
                if constexpr (C::kFp8) {
                    lse += p.lse_shift.load(i64(head) * p.q_rows + to.q_row + row_of(r));
                }
                p.out.lse.store(to.lse + head * p.out.lse_head + row_of(r) * p.out.lse_token,
                                has_key ? lse : -INFINITY);
            }
            const float inverse = has_key ? 1.0f / l[r] : 0.0f;
            QUATT_UNROLL
            for (u32 n = 0; n < C::kOutTiles; n++) {
                float &y0 = o[r / 2][n][2 * (r % 2)], &y1 = o[r / 2][n][2 * (r % 2) + 1];
                y0 *= inverse;
                y1 *= inverse;
                if constexpr (C::kFp8) {
                    const auto scale =
                        p.v_scale.template load<ptx::F32x2>(scales_at + 8 * n + 2 * t);
                    const auto mean = p.v_mean.template load<ptx::F32x2>(scales_at + 8 * n + 2 * t);
                    y0 = has_key ? ptx::fma(y0, scale.x, mean.x) : 0.0f;
                    y1 = has_key ? ptx::fma(y1, scale.y, mean.y) : 0.0f;
                }
            }
        }
        tile::store_rows<kLaneRows, C::kOutTiles>(
            p.out, to.out + head * p.out.strides.head, to.q_len, t, row_of,
            [&](u32 r, u32 n, u32 i) { return o[r / 2][n][2 * (r % 2) + i]; });
    }
}

}  // namespace QUATT_ABI
}  // namespace quatt::warp_mma
