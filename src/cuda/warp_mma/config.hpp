// Attention by mma.sync, one warp a block of rows: the parts of an instance, constants, the
// shared-memory plan and the parameters.
#pragma once

#include <type_traits>

#include "cuda/ptx/ptx.hpp"
#include "cuda/schedule/attend.hpp"
#include "cuda/softmax/far_keys.cuh"
#include "cuda/softmax/modifier.cuh"
#include "cuda/softmax/recipes.hpp"
#include "cuda/softmax/row_state.cuh"
#include "cuda/tile/mask.cuh"
#include "cuda/warp_mma/row.hpp"
#include "cuda/worklist/walk.cuh"

namespace quatt::warp_mma {
inline namespace QUATT_ABI {

using ptx::i32;
using ptx::i64;
using ptx::u16;
using ptx::u32;
using ptx::u8;

// kNative: the GPU's best instruction for the operands. kBlockScaled: the one of sm_120f with unit
// scales, emulated where the GPU lacks it.
enum class Instruction { kNative, kBlockScaled };

template <class C>
struct PackedTiles;  // tiles.cuh
template <class C, bool ZeroFills = true>
struct RowTiles;

// Pieces that tests exchange for faulty ones, and variants for others.
template <class Recipe>
struct Parts {
    using Probabilities = typename Recipe::Probabilities;
    template <u32 Rows>
    using RowState = softmax::RowState<Recipe::kPolicy, Rows>;
    template <class C>
    using Tiles = std::conditional_t<Recipe::kIsPacked, PackedTiles<C>, RowTiles<C>>;
    using Mask = tile::Mask;
    using Modifier = softmax::NoModifier;
    template <u32 IntervalTiles>
    using Walk = worklist::AllTiles<IntervalTiles>;
};

// Blocks: 16-row blocks of a warp.
template <class R, u32 Dim, u32 Blocks = 1, Instruction I = Instruction::kNative,
          class P = Parts<R>>
struct Config {
    using Recipe = R;
    static constexpr recipe::SoftmaxPolicy kPolicy = R::kPolicy;
    static constexpr bool kIsBlockScaled = I == Instruction::kBlockScaled;
    static constexpr u32 kDim = Dim;  // 64 or 128; smaller heads are padded with zeros
    static constexpr u32 kKeys = tile::kKeyTile;
    static constexpr u32 kIntervalTiles = u32(kPolicy.promotion_interval) / kKeys;

    // NOTE: with 16-bit operands a warp of 16 rows is bound by ldmatrix where the tensor cores are
    // fast, so on Hopper bf16 takes 32 and reads Q from shared memory. 16 rows leave registers for
    // Q, and shared memory that fits an SM of sm_120.
    static constexpr u32 kBlocks = Blocks;
    static constexpr u32 kWarps = 8 / kBlocks;
    static constexpr bool kSharedQ = kBlocks > 1;
    static constexpr u32 kThreads = 32 * kWarps;
    static constexpr u32 kLaneRows = 2 * kBlocks;
    static constexpr u32 kRows = 16 * kBlocks * kWarps;
    static_assert(kRows == u32(kRow.rows_per_item));
    static constexpr u32 kCtasPerSm = kBlocks;

    static constexpr u32 kElementBytes = R::kElementBytes;
    static constexpr bool kIsPacked = R::kIsPacked;
    static_assert(kIsPacked ? kElementBytes == 1 && kBlocks == 1 : kElementBytes == 2);
    static constexpr u32 kRowBytes = kDim * kElementBytes;
    static constexpr u32 kStages = kIsPacked ? 4 : 2;
    static constexpr u32 kAhead = kIsPacked ? 2 : 1;  // tiles requested before they are needed
    // Rows in shared memory. Packed: swizzled by the quantiser. Else padded, so that addresses
    // differ by constants.
    static constexpr u32 kPitch = kIsPacked ? kRowBytes : kRowBytes + 16;
    static constexpr u32 kTileBytes = kKeys * kPitch;
    static constexpr u32 kKSteps = kRowBytes / 32;              // mma steps over channels
    static constexpr u32 kPSteps = kKeys * kElementBytes / 32;  // mma steps over keys
    static constexpr u32 kScoreTiles = kKeys / 8, kOutTiles = kDim / 8;

    using Probabilities = typename P::Probabilities;
    using RowState = typename P::template RowState<kLaneRows>;
    using Tiles = typename P::template Tiles<Config>;
    using Mask = typename P::Mask;
    using Modifier = typename P::Modifier;
    using Walk = typename P::template Walk<kIntervalTiles>;
};

template <class C>
struct SharedPlan {
    u8 k[C::kStages][C::kTileBytes];  // [64 keys, kDim]
    // Packed: [kDim, 64 keys in stored order]; else [64 keys, kDim].
    u8 v[C::kStages][C::kTileBytes];
    u8 q[C::kSharedQ ? C::kRows * C::kPitch : 16];
    // Packed only:
    alignas(16) u8 far[C::kIsPacked ? C::kThreads : 1][softmax::FarSum::kBytes];
    ptx::u64 full[C::kStages], empty[C::kStages];  // mbarriers
    u32 item;
};

template <class C>
struct WarpMmaParams : schedule::AttendParams {
    typename C::Walk::Params walk;
    typename C::Modifier::Params modifier;
};

}  // namespace QUATT_ABI
}  // namespace quatt::warp_mma
