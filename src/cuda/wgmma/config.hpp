// Attention by wgmma (sm_90a): the parts of an instance, constants, the shared-memory plan, the
// barriers and the parameters.
#pragma once

#include "cuda/ptx/ptx.hpp"
#include "cuda/schedule/attend.hpp"
#include "cuda/softmax/far_keys.cuh"
#include "cuda/softmax/modifier.cuh"
#include "cuda/softmax/recipes.hpp"
#include "cuda/softmax/row_state.cuh"
#include "cuda/tile/mask.cuh"
#include "cuda/wgmma/row.hpp"
#include "cuda/worklist/walk.cuh"

namespace quatt::wgmma {
inline namespace QUATT_ABI {

using ptx::i32;
using ptx::i64;
using ptx::u16;
using ptx::u32;
using ptx::u64;
using ptx::u8;

template <class C>
struct PromotedAccumulator;  // promoted.cuh

// Pieces that tests exchange for faulty ones, and variants for others.
template <class Recipe>
struct Parts {
    using Probabilities = typename Recipe::Probabilities;
    using Rows = softmax::RowState<Recipe::kPolicy, 2>;
    template <class C>
    using Promoted = PromotedAccumulator<C>;
    using Mask = tile::Mask;
    using Modifier = softmax::NoModifier;
    template <u32 IntervalTiles>
    using Walk = worklist::AllTiles<IntervalTiles>;
};

template <class R, u32 Dim, class P = Parts<R>>
struct Config {
    using Recipe = R;
    static constexpr bool kIsBlockScaled = false;
    static constexpr recipe::SoftmaxPolicy kPolicy = R::kPolicy;
    static constexpr u32 kDim = Dim;   // 64 or 128; smaller heads are padded with zeros
    static constexpr u32 kGroups = 3;  // warpgroups that compute
    static constexpr u32 kKeys = tile::kKeyTile;
    static constexpr u32 kStages = 3;  // pairs of tiles of K and V in shared memory
    static constexpr u32 kGroupThreads = 128;
    static constexpr u32 kThreads = kGroupThreads * (kGroups + 1);  // the last group loads
    static constexpr u32 kGroupRows = 64, kRows = kGroupRows * kGroups;
    static_assert(kRows == u32(kRow.rows_per_item));
    static constexpr u32 kWarps = 4 * kGroups;  // that compute
    // Registers a thread: 64 K in all, of which a block of n threads starts with an n-th each.
    static constexpr u32 kConsumerRegisters = 160;
    static constexpr u32 kProducerRegisters = 32;

    static constexpr u32 kScoreRegisters = kKeys / 2, kOutRegisters = kDim / 2;
    static constexpr u32 kKSteps = kDim / 32, kPSteps = kKeys / 32;
    static constexpr u32 kTileBytes = kKeys * kDim;                // of K, and of V
    static constexpr u32 kQBytes = kGroupRows * kDim;              // of a group
    static constexpr u32 kScaleBytes = 4 * tile::kKeyScaleStride;  // of a tile
    static constexpr u32 kPromotedBytes = 4 * 16 * kDim;           // of a warp
    // Bytes from one row of out to the next in shared memory: 16 more, so that no two lanes of a
    // store meet in a bank.
    static constexpr u32 kRowPitch = 2 * kDim + 16;
    static_assert(16 * kRowPitch <= kPromotedBytes);
    static_assert(R::kElementBytes == 1 && R::kIsPacked && R::kIsCentred && R::kKeepsFarTokens &&
                  kPolicy.refreshes);

    static constexpr u32 kIntervalTiles = u32(kPolicy.promotion_interval) / kKeys;
    // Whether a slow tile asks for large m only where one moved. NOTE: as measured: 2 % at heads of
    // 64, but 128 lose 2 % by it where logits are peaked (std 4).
    static constexpr bool kAsksOnlyMoved = Dim == 64;
    // m above the promoted accumulator's exponents, in log2 units, that makes it follow.
    static constexpr float kPromotedRise = 64;
    // A warp takes maxima first while overflows come often: each adds kOverflowWeight, each tile
    // takes 1 away.
    static constexpr i32 kOverflowWeight = 4, kOften = 8;

    using Probabilities = typename P::Probabilities;
    using Rows = typename P::Rows;
    using Promoted = typename P::template Promoted<Config>;
    using Mask = typename P::Mask;
    using Modifier = typename P::Modifier;
    using Walk = typename P::template Walk<kIntervalTiles>;
};

template <class C>
struct SharedPlan {
    alignas(1024) u8 q[C::kGroups][C::kQBytes];        // [64 rows, kDim]
    alignas(1024) u8 k[C::kStages][2][C::kTileBytes];  // [64 keys, kDim]
    alignas(1024) u8 v[C::kStages][2][C::kTileBytes];  // [kDim, 64 keys in stored order]
    // [kDim / 8][32 lanes] x 16 bytes; at the end of an item 16 rows of out.
    alignas(16) u8 promoted[C::kWarps][C::kPromotedBytes];
    alignas(16) float k_scale[C::kStages][2][tile::kKeyScaleStride];  // and far keys, as packed
    alignas(16) u8 far[C::kWarps][32][softmax::FarSum::kBytes];
    u64 full[C::kStages], empty[C::kStages];  // mbarriers
    u64 item_full, item_empty;                // of q and the three below
    // Three items: results are made of one while the next one is computed, and a third found.
    alignas(16) u32 item[3][12];
    alignas(16) float v_scale[3][C::kDim], v_mean[3][C::kDim];
};

// What the producer tells the others of an item: three times four words.
struct ItemWords {
    ptx::U32x4 where;    // 1 + key tiles, or 0 where the list ends; segment, head, first row
    ptx::U32x4 lengths;  // queries, keys, q_row; the row after the item's last
    ptx::U32x4 results;  // offsets in out and lse, of 64 bits
};

// Views of the plan.
template <class C>
struct SharedViews {
    using Plan = SharedPlan<C>;
    ptx::Shared all;

    [[nodiscard]] QUATT_DEV ptx::Shared barrier(u32 at) const { return all.sub(at, 8); }
    [[nodiscard]] QUATT_DEV ptx::Shared full(u32 stage) const {
        return barrier(offsetof(Plan, full) + 8 * stage);
    }
    [[nodiscard]] QUATT_DEV ptx::Shared empty(u32 stage) const {
        return barrier(offsetof(Plan, empty) + 8 * stage);
    }
    [[nodiscard]] QUATT_DEV ptx::Shared item_full() const {
        return barrier(offsetof(Plan, item_full));
    }
    [[nodiscard]] QUATT_DEV ptx::Shared item_empty() const {
        return barrier(offsetof(Plan, item_empty));
    }
    [[nodiscard]] QUATT_DEV ptx::Shared q(u32 group) const {
        return all.sub(offsetof(Plan, q) + group * C::kQBytes, C::kQBytes);
    }
    // Tile `half` of a stage: of each pair of tiles, 0 is the lower one.
    [[nodiscard]] QUATT_DEV ptx::Shared k(u32 stage, u32 half) const {
        return all.sub(offsetof(Plan, k) + (2 * stage + half) * C::kTileBytes, C::kTileBytes);
    }
    [[nodiscard]] QUATT_DEV ptx::Shared v(u32 stage, u32 half) const {
        return all.sub(offsetof(Plan, v) + (2 * stage + half) * C::kTileBytes, C::kTileBytes);
    }
    [[nodiscard]] QUATT_DEV ptx::Shared k_scale(u32 stage, u32 half) const {
        return all.sub(offsetof(Plan, k_scale) + (2 * stage + half) * C::kScaleBytes,
                       C::kScaleBytes);
    }
    [[nodiscard]] QUATT_DEV ptx::Shared promoted(u32 warp) const {
        return all.sub(offsetof(Plan, promoted) + warp * C::kPromotedBytes, C::kPromotedBytes);
    }
    [[nodiscard]] QUATT_DEV softmax::FarSum far(u32 warp, u32 lane) const {
        constexpr u32 kBytes = softmax::FarSum::kBytes;
        return {all.sub(offsetof(Plan, far) + (32 * warp + lane) * kBytes, kBytes)};
    }
    // Of the block's n-th item.
    [[nodiscard]] QUATT_DEV ptx::Shared item(u32 n) const {
        return all.sub(offsetof(Plan, item) + n % 3 * sizeof(ItemWords), sizeof(ItemWords));
    }
    [[nodiscard]] QUATT_DEV ptx::Shared v_scale(u32 n) const {
        return all.sub(offsetof(Plan, v_scale) + n % 3 * 4 * C::kDim, 4 * C::kDim);
    }
    [[nodiscard]] QUATT_DEV ptx::Shared v_mean(u32 n) const {
        return all.sub(offsetof(Plan, v_mean) + n % 3 * 4 * C::kDim, 4 * C::kDim);
    }
};

// What the walk of an item's keys may depend on. `end`: the row after its last.
template <class C>
[[nodiscard]] QUATT_DEV worklist::WalkedItem walked_item(bool is_causal, u32 segment, u32 head,
                                                         i32 row, i32 end, i32 queries, i32 keys) {
    const i32 seen = row < end ? tile::visible_keys(is_causal, end - 1, queries, keys) : 0;
    return {segment, head, row, (seen + i32(C::kKeys) - 1) / i32(C::kKeys)};
}

template <class C>
struct WgmmaParams : schedule::AttendParams {
    typename C::Walk::Params walk;
    typename C::Modifier::Params modifier;
};

}  // namespace QUATT_ABI
}  // namespace quatt::wgmma
