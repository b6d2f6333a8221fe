// FP8 attention by wgmma (sm_90a). A block is kGroups warpgroups that compute, 64 query rows each,
// and one whose first thread loads. Blocks are persistent: the loader takes items (segment, head,
// kRows query rows; fewer in a last round that would leave most blocks idle) off a list, longest
// first, and walks their key tiles from the last to the first; the groups follow, each at its own
// pace, by the law of the softmax reference (docs/recipes.md).
//
// Registers (docs/kernels/wgmma.md): with g = lane / 4 and t = lane % 4, a lane holds rows g + 8 r,
// r = 0, 1, of the 16 rows of its warp, and columns 2 t, 2 t + 1 of each 8: x[4 n + 2 r + i] is
// column 8 n + 2 t + i of row r.
#pragma once

#include "cuda/tile/items.cuh"
#include "cuda/tile/mask.cuh"
#include "cuda/wgmma/config.hpp"
#include "cuda/wgmma/master.cuh"

namespace quatt::wgmma {
inline namespace QUATT_ABI {

template <class C>
QUATT_KERNEL(C::kThreads, 1) attention(const Params p) {
    using Plan = SharedPlan<C>;
    constexpr Mutant kMutant = C::kMutant;
    const u32 thread = ptx::thread_x(), lane = ptx::lane_id(), warp = ptx::warp_id(),
              group = warp / 4;
    const ptx::Shared shared = ptx::dynamic_shared(sizeof(Plan));
    const auto barrier = [&](u32 at) { return shared.sub(at, 8); };
    const auto full = [&](u32 stage) { return barrier(offsetof(Plan, full) + 8 * stage); };
    const auto empty = [&](u32 stage) { return barrier(offsetof(Plan, empty) + 8 * stage); };
    const ptx::Shared item_full = barrier(offsetof(Plan, item_full)),
                      item_empty = barrier(offsetof(Plan, item_empty));
    // Tile `half` of a stage: of each pair of tiles, 0 is the lower one.
    const auto k_tile_at = [&](u32 stage, u32 half) {
        return shared.sub(offsetof(Plan, k) + (2 * stage + half) * C::kTileBytes, C::kTileBytes);
    };
    const auto v_tile_at = [&](u32 stage, u32 half) {
        return shared.sub(offsetof(Plan, v) + (2 * stage + half) * C::kTileBytes, C::kTileBytes);
    };
    const auto scale_at = [&](u32 stage, u32 half) {
        return shared.sub(offsetof(Plan, k_scale) + (2 * stage + half) * C::kScaleBytes,
                          C::kScaleBytes);
    };
    const auto item_words = [&](u32 n) {
        return shared.sub(offsetof(Plan, item) + n % 3 * sizeof(ItemWords), sizeof(ItemWords));
    };
    const auto v_row = [&](u32 array, u32 n) {  // of v_scale and v_mean
        return shared.sub(array + n % 3 * 4 * C::kDim, 4 * C::kDim);
    };
    // Keys that query `row` sees: [0, last). Bottom-right aligned under a causal mask.
    const auto last = [&](i32 row, i32 queries, i32 keys) {
        const i32 end = p.is_causal ? row + keys - queries + 1 : keys;
        return end < 0 ? 0 : end > keys ? keys : end;
    };

    if (thread == 0) {
        QUATT_UNROLL
        for (u32 s = 0; s < C::kStages; s++) {
            ptx::mbarrier_init(full(s), 1);
            ptx::mbarrier_init(empty(s), C::kWarps);
        }
        ptx::mbarrier_init(item_full, 1);
        ptx::mbarrier_init(item_empty, C::kWarps);
        ptx::fence_mbarrier_init();
    }
    ptx::barrier_sync();
    if constexpr (kMutant != Mutant::kNoGridWait) {
        ptx::grid_wait();  // what prep packed is there
    }

    if (group == C::kGroups) {
        // ============================================================ the loader
        ptx::fewer_registers<C::kLoaderRegisters>();
        if (thread != C::kGroups * C::kGroupThreads) {
            return;
        }
        u32 used = 0;  // pairs of tiles since the start of the block, over all items
        u32 next = ptx::atomic_add(p.work, tile::kNextItem, 1u);
        QUATT_NO_UNROLL
        for (u32 n = 0;; n++) {
            const ptx::Shared words = item_words(n);
            i32 tiles = 0, pair = -1;
            i64 k_tile = 0;
            const tile::Piece piece =
                tile::find_piece(next, ptx::blocks_x(), C::kGroups, C::kGroupRows, p.work,
                                 p.segment_count, p.segments);
            if (piece.is_end) {
                words.store(offsetof(ItemWords, where), ptx::U32x4{0, 0, 0, 0});
            } else {
                next = ptx::atomic_add(p.work, tile::kNextItem, 1u);  // its latency is hidden
                const tile::Item& x = piece.item;
                const i32 row = piece.row, end = piece.row_end;
                const i32 queries = x.where.q_len, keys = x.where.k_len;
                tiles = row < end
                            ? (last(end - 1, queries, keys) + i32(C::kKeys) - 1) / i32(C::kKeys)
                            : 0;
                const auto low = [](i64 offset) { return u32(ptx::u64(offset)); };
                const auto high = [](i64 offset) { return u32(ptx::u64(offset) >> 32); };
                words.store(offsetof(ItemWords, where),
                            ptx::U32x4{1 + u32(tiles), x.segment, x.head, u32(row)});
                words.store(offsetof(ItemWords, lengths),
                            ptx::U32x4{u32(queries), u32(keys), u32(x.where.q_row), u32(end)});
                words.store(offsetof(ItemWords, results),
                            ptx::U32x4{low(x.where.out), high(x.where.out), low(x.where.lse),
                                       high(x.where.lse)});
                pair = (tiles + 1) / 2 - 1;
                k_tile = i64(x.head / p.heads_per_group) * p.k_tiles + x.where.k_tile;
            }
            // Loads pairs down to `end`.
            const auto load_pairs = [&](i32 end) {
                QUATT_NO_UNROLL
                for (; pair >= end; pair--, used++) {
                    const u32 stage = used % C::kStages;
                    if constexpr (kMutant != Mutant::kNoFreeWait) {
                        ptx::mbarrier_wait(empty(stage), (used / C::kStages + 1) % 2);
                    }
                    if constexpr (kMutant != Mutant::kNoReadFence) {
                        ptx::fence_proxy_async();  // reads of K scales come before the next copy
                    }
                    ptx::mbarrier_arrive_expect_tx(full(stage),
                                                   2 * (2 * C::kTileBytes + C::kScaleBytes));
                    QUATT_NO_UNROLL
                    for (u32 half = 0; half < 2; half++) {
                        // Of a last pair without a second tile the first comes twice: all its keys
                        // are masked then, and what P = 0 is multiplied with must be no garbage.
                        const i32 tile = 2 * pair + i32(half);
                        const i64 from = k_tile + (tile < tiles ? tile : 2 * pair);
                        ptx::bulk_load(
                            scale_at(stage, half),
                            p.k_scale.sub(from * tile::kKeyScaleStride, tile::kKeyScaleStride),
                            C::kScaleBytes, full(stage));
                        ptx::bulk_load(k_tile_at(stage, half),
                                       p.k8.sub(from * C::kTileBytes, C::kTileBytes), C::kTileBytes,
                                       full(stage));
                        ptx::bulk_load(v_tile_at(stage, half),
                                       p.v8.sub(from * C::kTileBytes, C::kTileBytes), C::kTileBytes,
                                       full(stage));
                    }
                }
            };
            // The first ones while the groups still need the Q of the item before.
            load_pairs(pair - i32(C::kStages - 2) > 0 ? pair - i32(C::kStages - 2) : 0);
            if constexpr (kMutant != Mutant::kNoItemFree) {
                ptx::mbarrier_wait(item_empty, (n + 1) % 2);
            }
            if (piece.is_end) {
                ptx::mbarrier_arrive(item_full);
                break;
            }
            if constexpr (kMutant != Mutant::kNoReadFence) {
                ptx::fence_proxy_async();  // and reads of v_scale and v_mean
            }
            const auto where = words.template load<ptx::U32x4>(offsetof(ItemWords, where));
            const auto lengths = words.template load<ptx::U32x4>(offsetof(ItemWords, lengths));
            const u32 segment = where.y, head = where.z;
            const i32 row = i32(where.w), q_row = i32(lengths.z), end = i32(lengths.w);
            const u32 groups =
                row < end ? u32(end - row + i32(C::kGroupRows) - 1) / C::kGroupRows : 0;
            ptx::mbarrier_arrive_expect_tx(item_full, groups * C::kQBytes + 2 * 4 * C::kDim);
            const i64 v_row_at =
                (i64(segment) * (p.heads_q / p.heads_per_group) + head / p.heads_per_group) *
                C::kDim;
            ptx::bulk_load(v_row(offsetof(Plan, v_scale), n), p.v_scale.sub(v_row_at, C::kDim),
                           4 * C::kDim, item_full);
            ptx::bulk_load(v_row(offsetof(Plan, v_mean), n), p.v_mean.sub(v_row_at, C::kDim),
                           4 * C::kDim, item_full);
            const i64 q_tile = head * p.q_tiles + tile::first_query_tile(q_row, segment) +
                               row / i32(C::kGroupRows);
            QUATT_NO_UNROLL
            for (u32 i = 0; i < groups; i++) {
                ptx::bulk_load(shared.sub(offsetof(Plan, q) + i * C::kQBytes, C::kQBytes),
                               p.q8.sub((q_tile + i) * C::kQBytes, C::kQBytes), C::kQBytes,
                               item_full);
            }
            load_pairs(0);
        }
        return;
    }

    // ================================================================ the groups that compute
    ptx::more_registers<C::kConsumerRegisters>();
    const u32 g = lane / 4, t = lane % 4;
    // NOTE: each warp lets go for itself. Nothing says that its wait for a wgmma covers the other
    // three warps of the group, and one of them may fall behind by a slow tile.
    const bool speaks = lane == 0;
    const ptx::u64 q_matrix =
        ptx::k_major<C::kDim>(shared.sub(offsetof(Plan, q) + group * C::kQBytes, C::kQBytes));
    const ptx::u64 k_matrix = ptx::k_major<C::kDim>(k_tile_at(0, 0)),
                   v_matrix = ptx::k_major<64>(k_matrix, offsetof(Plan, v) - offsetof(Plan, k));
    u32 stage = 0, phase = 0;  // of the pair of tiles at hand
    const auto next_stage = [&] {
        stage++;
        phase ^= stage == C::kStages ? 1 : 0;
        stage = stage == C::kStages ? 0 : stage;
    };

    QUATT_NO_UNROLL
    for (u32 item = 0;; item++) {  // of this block
        if constexpr (kMutant != Mutant::kNoItemWait) {
            ptx::mbarrier_wait(item_full, item % 2);
        }
        const auto where = item_words(item).template load<ptx::U32x4>(offsetof(ItemWords, where));
        if (where.x == 0) {
            if constexpr (kMutant != Mutant::kNoRowsEnd) {
                ptx::bulk_wait_read<0>();
            }
            return;
        }
        const auto lengths =
            item_words(item).template load<ptx::U32x4>(offsetof(ItemWords, lengths));
        const u32 head = where.z;
        const i32 queries = i32(lengths.x), keys = i32(lengths.y);
        const i32 group_row = i32(where.w + group * C::kGroupRows);
        // From the second tile of the last pair down; all keys of that one may be masked.
        i32 tile = i32(where.x) / 2 * 2 - 1;
        const bool has_rows = group_row < i32(lengths.w);
        if (!has_rows || tile < 0) {
            // No rows, or no keys: only let the tiles pass.
            ptx::syncwarp();  // all lanes have read the item
            if (speaks) {
                ptx::mbarrier_arrive(item_empty);
            }
            QUATT_NO_UNROLL
            for (; tile >= 0; tile -= 2) {
                ptx::mbarrier_wait(full(stage), phase);
                ptx::syncwarp();  // all lanes have seen it: none may fall behind by a phase
                if (speaks) {
                    ptx::mbarrier_arrive(empty(stage));
                }
                next_stage();
            }
            if (!has_rows) {
                continue;
            }
        }
        const i32 row0 = group_row + i32(warp % 4 * 16 + g);
        const auto row_of = [&](u32 r) { return row0 + i32(8 * r); };
        const i32 unmasked = last(row0 - i32(g), queries, keys);  // seen by every row of the warp
        const i64 factors = i64(head) * p.q_rows + i32(lengths.z);
        float factor[2];
        QUATT_UNROLL
        for (u32 r = 0; r < 2; r++) {
            factor[r] = row_of(r) < queries ? p.q_factor.load(factors + row_of(r)) : 1.0f;
        }

        float o[C::kOutRegisters];
        // The reference m is kept as what it adds to the exponents of P, an integer too.
        constexpr float kNoLift = C::kExponent - C::kNoReference;
        float l[2] = {0, 0}, lift[2], highest[2] = {C::kNoReference, C::kNoReference};
        QUATT_UNROLL
        for (u32 r = 0; r < 2; r++) {
            // Rows past the last query: zeros, so all scores are 0. An m of kExponent keeps their P
            // low, or each tile would look for an overflow.
            lift[r] = row_of(r) < queries ? kNoLift : 0.0f;
        }
        const auto reference = [&](u32 r) { return C::kExponent - lift[r]; };
        Master<C> master{
            shared.sub(offsetof(Plan, master) + warp * C::kMasterBytes, C::kMasterBytes),
            lane,
            {kNoLift, kNoLift}};
        // The state of the law between tiles, for the warp's rare tiles only: `rare` is the next
        // tile whose maximum is taken first.
        i32 rare = tile;
        u32 look = 0;  // bit r: the tile before raised m of row r by 8 or more
        i32 heat = 0, last_slow = tile;
        QUATT_UNROLL
        for (u32 i = 0; i < C::kOutRegisters; i++) {
            o[i] = 0;
        }

        const auto scale_out = [&](u32 r, float f) {
            QUATT_UNROLL
            for (u32 n = 0; n < C::kOutRegisters / 4; n++) {
                ptx::pin(o[4 * n + 2 * r]);
                ptx::pin(o[4 * n + 2 * r + 1]);
                o[4 * n + 2 * r] *= f;
                o[4 * n + 2 * r + 1] *= f;
            }
        };
        // All but O follows, by an exact power of two; the result is for O.
        const auto move = [&](u32 r, float to) {
            const float next = C::kExponent - to, f = ptx::ex2(next - lift[r]);
            lift[r] = next;
            highest[r] = ptx::max(highest[r], to);
            l[r] *= f;
            return f;
        };
        // Which tile is the next to be rare, after `tile`: the first of an interval, one with keys
        // to mask, the one after a rise, or any while slow tiles come often.
        const auto plan_looks = [&](bool is_slow, bool look_next) {
            if (is_slow) {
                heat -= last_slow - tile;
                heat = (heat < 0 ? 0 : heat) + C::kHeat;
                last_slow = tile;
            }
            const i32 border = tile / C::kIntervalTiles * C::kIntervalTiles - 1;
            rare = ptx::any(look_next || tile * i32(C::kKeys) > unmasked) ||
                           heat - (last_slow - tile) >= C::kHot
                       ? tile - 1
                       : border;
        };

        float s[C::kScoreRegisters];
        // Asks for the scores of the tile whose K this is.
        const auto issue_scores = [&](ptx::u64 k) {
            QUATT_UNROLL
            for (u32 i = 0; i < C::kKSteps; i++) {
                ptx::wgmma_e4m3<C::kKeys>(s, ptx::advanced(q_matrix, 2 * i),
                                          ptx::advanced(k, 2 * i), i != 0);
            }
            ptx::wgmma_commit();
        };
        float scaled[2];  // t = score * scaled, in log2 units
        const auto load_scale = [&](u32 half) {
            // NOTE: one lane reads, the one that lets go of the stage: racecheck does not see the
            // order that syncwarp makes where the compiler needs no instruction for it.
            float k_scale = 0;
            if (speaks) {
                k_scale = scale_at(stage, half).template load<float>(0);
            }
            k_scale = ptx::shfl_idx(k_scale, 0);
            scaled[0] = factor[0] * k_scale;
            scaled[1] = factor[1] * k_scale;
        };
        // Asks for O += P V of the tile whose V^T this is.
        const auto issue_values = [&](const u32(&pf)[C::kPSteps][4], ptx::u64 v) {
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
        const auto wait_pair = [&] {
            if constexpr (kMutant != Mutant::kNoFullWait) {
                ptx::mbarrier_wait(full(stage), phase);
            }
        };

        // Scores of `tile` in s become its P in `now`, beside the products of the tile before,
        // which `settle` waits for.
        const auto softmax = [&](u32(&now)[C::kPSteps][4], bool is_first, auto&& settle) {
            // The largest score of this lane in row r, NaN ignored. NOTE: pinned, or the compiler
            // hoists it out of the rare branches.
            const auto lane_maximum = [&](u32 r) {
                float top[4];
                QUATT_UNROLL
                for (u32 n = 0; n < C::kKeys / 8; n++) {
                    ptx::pin(s[4 * n + 2 * r]);
                    ptx::pin(s[4 * n + 2 * r + 1]);
                    const float x = ptx::max(s[4 * n + 2 * r], s[4 * n + 2 * r + 1]);
                    top[n % 4] = n < 4 ? x : ptx::max(top[n % 4], x);
                }
                return ptx::max(ptx::max(top[0], top[1]), ptx::max(top[2], top[3]));
            };
            const auto overflows = [&](u32 r, float score) {
                return !(ptx::fma(score, scaled[r], lift[r]) < C::kOverflowExponent);
            };
            const auto row_maximum = [&](float top) {  // of the row's four lanes
                top = ptx::max(top, ptx::shfl_xor(top, 1));
                return ptx::max(top, ptx::shfl_xor(top, 2));
            };
            // The law for row r, whose largest score is `top`: m moves. The result is for O.
            u32 due = 0;  // bit r: O waits for owed[r]; 4: for the flush
            float owed[2];
            bool is_risen = false;  // m of one of the rows, by an overflow
            u32 rose = 0;           // bit r: that of row r, by 8 or more
            const auto adjust = [&](u32 r, float top, bool looks) {
                // NOTE: no branches: peaked rows come here in each tile, and these would diverge.
                const float x = ptx::ceil(top * scaled[r]), m = reference(r);
                const bool falls = looks & (x > -INFINITY) & (x <= m - C::kRise);
                const bool is_over = (x > m) & overflows(r, top);
                const float rises = looks ? ptx::max(x, m) : is_over ? x : m;
                const float to = falls ? ptx::max(x, highest[r] - C::kFallLimit) : rises;
                is_risen |= is_over;
                rose |= to - m >= C::kRise ? 1u << r : 0u;
                return move(r, to);
            };
            if (tile == rare) [[unlikely]] {
                if ((tile + 1) * i32(C::kKeys) > unmasked && kMutant != Mutant::kNoMask) {
                    QUATT_UNROLL
                    for (u32 r = 0; r < 2; r++) {
                        scaled[r] = tile::not_zero(scaled[r]);
                        const i32 seen = last(row_of(r), queries, keys) - tile * i32(C::kKeys) -
                                         i32(2 * t);  // of this lane's first key on
                        tile::mask_row<C::kKeys / 8>(
                            seen, [&](u32 n, u32 i) -> float& { return s[4 * n + 2 * r + i]; });
                    }
                }
                const bool is_border =
                    is_first || tile % C::kIntervalTiles == C::kIntervalTiles - 1;
                float top[2] = {lane_maximum(0), lane_maximum(1)};
                top[0] = row_maximum(top[0]);
                top[1] = row_maximum(top[1]);
                QUATT_UNROLL
                for (u32 r = 0; r < 2; r++) {
                    owed[r] = adjust(r, top[r], is_border || (look >> r & 1) != 0);
                    due |= ptx::any(owed[r] != 1) ? 1u << r : 0u;
                }
                look = rose;
                plan_looks(!is_first && ptx::any(is_risen), look != 0);
                due = is_first ? 0 : is_border ? due | 4 : due;  // before the first, O is 0
            }
            float sum[2];
            // Whether a code of row r may be at the end of its range. No p is larger than a sum
            // that it is in: of 8 here, so that equal ones raise no alarm below 54. NaN does.
            const auto exponentials = [&](u32 r) {
                float even = 0, odd = 0;
                QUATT_UNROLL
                for (u32 n = 0; n < C::kKeys / 8; n += 2) {
                    float e[4];
                    QUATT_UNROLL
                    for (u32 j = 0; j < 4; j++) {
                        e[j] = ptx::ex2(
                            ptx::fma(s[4 * (n + j / 2) + 2 * r + j % 2], scaled[r], lift[r]));
                    }
                    even = n == 0 ? e[0] : even + e[0];
                    odd = n == 0 ? e[1] : odd + e[1];
                    even += e[2];
                    odd += e[3];
                    now[n / 4][2 * (n / 2 % 2) + r] = ptx::pack_e4m3x4(e[0], e[1], e[2], e[3]);
                }
                sum[r] = even + odd;
                return !(even < C::kOverflow) || !(odd < C::kOverflow);
            };
            const bool alarm[2] = {exponentials(0), exponentials(1)};
            if (ptx::any(alarm[0] || alarm[1]) && kMutant != Mutant::kNoRedo) [[unlikely]] {
                bool is_slow = false;
                QUATT_UNROLL
                for (u32 r = 0; r < 2; r++) {
                    if (ptx::any(alarm[r])) {
                        const float top = lane_maximum(r);
                        if (ptx::any(overflows(r, top))) {
                            const float before = (due >> r & 1) != 0 ? owed[r] : 1.0f;
                            owed[r] = before * adjust(r, row_maximum(top), false);
                            due |= 1u << r;
                            (void)exponentials(r);
                            is_slow = true;
                        }
                    }
                }
                if (is_slow) {
                    look |= rose;
                    plan_looks(true, look != 0);
                }
            }
            // NOTE: after a branch, or the compiler waits before the exponentials.
            settle();
            if (due != 0) [[unlikely]] {
                if ((due & 4) != 0 && kMutant != Mutant::kNoFlush) {
                    master.flush(o, owed, lift);
                } else {
                    QUATT_UNROLL
                    for (u32 r = 0; r < 2; r++) {
                        if ((due >> r & 1) != 0) {
                            scale_out(r, owed[r]);
                        }
                    }
                }
            }
            l[0] += sum[0];
            l[1] += sum[1];
        };
        const auto release = [&](u32 n) {
            ptx::syncwarp();  // no lane is behind by a phase
            if (speaks) {
                ptx::mbarrier_arrive(empty(n));
            }
        };

        if (tile >= 0) {
            u32 pa[C::kPSteps][4], pb[C::kPSteps][4];
            wait_pair();
            ptx::wgmma_fence();
            issue_scores(k_of(stage, 1));
            load_scale(1);
            ptx::wgmma_wait<0>();
            softmax(pa, true, [] {});
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
                        wait_pair();
                    }
                }
                load_scale(half);
                if constexpr (kMutant != Mutant::kNoFence) {
                    ptx::wgmma_fence();
                }
                issue_scores(k_of(stage, half));
                issue_values(was, v_of(before, 1 - half));
                if (half == 0) {
                    const bool wraps = stage + 1 == C::kStages;
                    next = wraps ? 0 : stage + 1;
                    next_phase = phase ^ (wraps ? 1 : 0);
                    is_there = kMutant == Mutant::kNoFullWait ||
                               ptx::mbarrier_test_wait(full(next), next_phase);
                }
                if constexpr (kMutant != Mutant::kNoScoreWait) {
                    ptx::wgmma_wait<1>();
                }
                softmax(now, false, [&] {
                    if constexpr (kMutant != Mutant::kNoValueWait) {
                        ptx::wgmma_wait<0>();
                    }
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
                ptx::mbarrier_arrive(item_empty);  // this warp has read Q and the item
            }
            ptx::wgmma_fence();
            issue_values(pb, v_of(stage, 0));
            ptx::wgmma_wait<0>();
            release(stage);
            next_stage();
            QUATT_UNROLL
            for (u32 i = 0; i < C::kOutRegisters; i++) {
                ptx::pin(o[i]);
            }
        }

        // ------------------------------------------------------------ results
        const auto results =
            item_words(item).template load<ptx::U32x4>(offsetof(ItemWords, results));
        const auto offset = [](u32 low, u32 high) { return i64(ptx::u64(high) << 32 | low); };
        const ptx::Shared v_scale = v_row(offsetof(Plan, v_scale), item),
                          v_mean = v_row(offsetof(Plan, v_mean), item);
        float keep[2], add[2];
        bool has_key[2];
        QUATT_UNROLL
        for (u32 r = 0; r < 2; r++) {
            l[r] += ptx::shfl_xor(l[r], 1);
            l[r] += ptx::shfl_xor(l[r], 2);
            has_key[r] = l[r] != 0;  // NaN is one
            if (p.out.has_lse && t == 0 && row_of(r) < queries) {
                const float lse = (ptx::lg2(l[r]) - lift[r]) * 0.6931471805599453f +
                                  p.lse_shift.load(factors + row_of(r));
                p.out.lse.store(offset(results.z, results.w) + head * p.out.lse_head +
                                    row_of(r) * p.out.lse_token,
                                has_key[r] ? lse : -INFINITY);
            }
            const float inverse = 1.0f / l[r];
            // m moved O and l alike since the last flush, and the master not.
            keep[r] = master.is_there ? ptx::ex2(lift[r] - master.lift[r]) * inverse : 0.0f;
            add[r] = inverse;
        }
        QUATT_UNROLL
        for (u32 n = 0; n < C::kOutRegisters / 4; n++) {
            float* x = &o[4 * n];
            const ptx::F32x4 y = master.load(n);
            const auto scale = v_scale.template load<ptx::F32x2>(4 * (8 * n + 2 * t));
            const auto mean = v_mean.template load<ptx::F32x2>(4 * (8 * n + 2 * t));
            x[0] = ptx::fma(ptx::fma(x[0], add[0], y.x * keep[0]), scale.x, mean.x);
            x[1] = ptx::fma(ptx::fma(x[1], add[0], y.y * keep[0]), scale.y, mean.y);
            x[2] = ptx::fma(ptx::fma(x[2], add[1], y.z * keep[1]), scale.x, mean.x);
            x[3] = ptx::fma(ptx::fma(x[3], add[1], y.w * keep[1]), scale.y, mean.y);
            QUATT_UNROLL
            for (u32 i = 0; i < 4; i++) {
                x[i] = has_key[i / 2] ? x[i] : 0.0f;
            }
        }
        const i64 out_at = offset(results.x, results.y) + head * p.out.strides.head;
        if (p.out.bulk) {
            const i32 first_row = row0 - i32(g);
            master.send_rows(o, p.out, out_at + first_row * p.out.strides.token,
                             queries - first_row);
        } else {
            tile::store_rows<2, C::kOutRegisters / 4>(
                p.out, out_at, queries, t, row_of,
                [&](u32 r, u32 n, u32 i) { return o[4 * n + 2 * r + i]; });
        }
    }
}

}  // namespace QUATT_ABI
}  // namespace quatt::wgmma
