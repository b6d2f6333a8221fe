// The thread of a block that loads: it takes items off the list of work, and fetches their Q, K and
// V in the order in which the computing groups use them.
#pragma once

#include "cuda/wgmma/config.hpp"
#include "cuda/worklist/items.cuh"

namespace quatt::wgmma {
inline namespace QUATT_ABI {

template <class C>
QUATT_DEV void produce(const WgmmaParams<C>& p, const SharedViews<C>& shared) {
    u32 used = 0;  // pairs of tiles since the start of the block, over all items
    u32 next = ptx::atomic_add(p.list.words, worklist::kNextItem, 1u);
    QUATT_NO_UNROLL
    for (u32 n = 0;; n++) {
        const ptx::Shared words = shared.item(n);
        i32 tiles = 0, pair = -1;
        i64 k_tile = 0;
        worklist::WalkedItem walked{};
        const worklist::Piece piece =
            worklist::find_piece(next, ptx::blocks_x(), C::kGroups, C::kGroupRows, p.list);
        if (piece.is_end) {
            words.store(offsetof(ItemWords, where), ptx::U32x4{0, 0, 0, 0});
        } else {
            next = ptx::atomic_add(p.list.words, worklist::kNextItem, 1u);  // its latency is hidden
            const worklist::Item& x = piece.item;
            const i32 row = piece.row, end = piece.row_end;
            const i32 queries = x.where.q_len, keys = x.where.k_len;
            walked = walked_item<C>(p.is_causal, x.segment, x.head, row, end, queries, keys);
            tiles = typename C::Walk(p.walk, walked).count();
            const auto low = [](i64 offset) { return u32(u64(offset)); };
            const auto high = [](i64 offset) { return u32(u64(offset) >> 32); };
            words.store(offsetof(ItemWords, where),
                        ptx::U32x4{1 + u32(tiles), x.segment, x.head, u32(row)});
            words.store(offsetof(ItemWords, lengths),
                        ptx::U32x4{u32(queries), u32(keys), u32(x.where.q_row), u32(end)});
            words.store(offsetof(ItemWords, results),
                        ptx::U32x4{low(x.where.out), high(x.where.out), low(x.where.lse),
                                   high(x.where.lse)});
            pair = (tiles + 1) / 2 - 1;
            k_tile = i64(x.head / p.heads_per_group) * p.packed.k_tiles + x.where.k_tile;
        }
        const typename C::Walk walk(p.walk, walked);
        // Loads pairs down to `end`.
        const auto load_pairs = [&](i32 end) {
            QUATT_NO_UNROLL
            for (; pair >= end; pair--, used++) {
                const u32 stage = used % C::kStages;
                ptx::mbarrier_wait(shared.empty(stage), (used / C::kStages + 1) % 2);
                ptx::fence_proxy_async();  // reads of K scales come before the next copy
                ptx::mbarrier_arrive_expect_tx(shared.full(stage),
                                               2 * (2 * C::kTileBytes + C::kScaleBytes));
                QUATT_NO_UNROLL
                for (u32 half = 0; half < 2; half++) {
                    // Of a last pair without a second tile the first comes twice: all its keys
                    // are masked then, and what P = 0 is multiplied with must be no garbage.
                    const i32 at = 2 * pair + i32(half);
                    const i64 from = k_tile + walk.tile(at < tiles ? at : 2 * pair);
                    ptx::bulk_load(
                        shared.k_scale(stage, half),
                        p.packed.k_scale.sub(from * tile::kKeyScaleStride, tile::kKeyScaleStride),
                        C::kScaleBytes, shared.full(stage));
                    ptx::bulk_load(shared.k(stage, half),
                                   p.packed.k.sub(from * C::kTileBytes, C::kTileBytes),
                                   C::kTileBytes, shared.full(stage));
                    ptx::bulk_load(shared.v(stage, half),
                                   p.packed.v.sub(from * C::kTileBytes, C::kTileBytes),
                                   C::kTileBytes, shared.full(stage));
                }
            }
        };
        // The first ones while the groups still need the Q of the item before.
        load_pairs(pair - i32(C::kStages - 2) > 0 ? pair - i32(C::kStages - 2) : 0);
        ptx::mbarrier_wait(shared.item_empty(), (n + 1) % 2);
        if (piece.is_end) {
            ptx::mbarrier_arrive(shared.item_full());
            return;
        }
        ptx::fence_proxy_async();  // and reads of v_scale and v_mean
        const auto where = words.template load<ptx::U32x4>(offsetof(ItemWords, where));
        const auto lengths = words.template load<ptx::U32x4>(offsetof(ItemWords, lengths));
        const u32 segment = where.y, head = where.z;
        const i32 row = i32(where.w), q_row = i32(lengths.z), end = i32(lengths.w);
        const u32 groups = row < end ? u32(end - row + i32(C::kGroupRows) - 1) / C::kGroupRows : 0;
        ptx::mbarrier_arrive_expect_tx(shared.item_full(), groups * C::kQBytes + 2 * 4 * C::kDim);
        const i64 v_row_at =
            (i64(segment) * (p.heads_q / p.heads_per_group) + head / p.heads_per_group) * C::kDim;
        ptx::bulk_load(shared.v_scale(n), p.packed.v_scale.sub(v_row_at, C::kDim), 4 * C::kDim,
                       shared.item_full());
        ptx::bulk_load(shared.v_mean(n), p.packed.v_mean.sub(v_row_at, C::kDim), 4 * C::kDim,
                       shared.item_full());
        const i64 q_tile = head * p.packed.q_tiles +
                           tile::first_tile(q_row, segment, tile::kQueryTile) +
                           row / i32(C::kGroupRows);
        QUATT_NO_UNROLL
        for (u32 i = 0; i < groups; i++) {
            ptx::bulk_load(shared.q(i), p.packed.q.sub((q_tile + i) * C::kQBytes, C::kQBytes),
                           C::kQBytes, shared.item_full());
        }
        load_pairs(0);
    }
}

}  // namespace QUATT_ABI
}  // namespace quatt::wgmma
