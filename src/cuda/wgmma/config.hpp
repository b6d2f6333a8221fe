// FP8 attention by wgmma (sm_90a): constants, the shared-memory plan, the barriers and the
// parameters.
#pragma once

#include "cuda/ptx/ptx.hpp"
#include "cuda/tile/output.cuh"
#include "cuda/tile/segments.hpp"

namespace quatt::wgmma {
inline namespace QUATT_ABI {

using ptx::i32;
using ptx::i64;
using ptx::u16;
using ptx::u32;
using ptx::u8;

// What a test may take away; kNone is the kernel. Waits, barriers and fences of asynchronous
// accesses, and steps of the law.
enum class Mutant {
    kNone,
    kNoItemWait,
    kNoItemFree,
    kNoFullWait,
    kNoFreeWait,
    kNoScoreWait,
    kNoValueWait,
    kNoFence,
    kNoRedo,
    kNoMask,
    kNoFlush,
    kNoRowsRead,
    kNoRowsFence,
    kNoRowsEnd,
    kNoMasterRead,
    kNoReadFence,
    kNoGridWait
};

template <u32 Dim, Mutant F = Mutant::kNone>
struct Config {
    static constexpr Mutant kMutant = F;
    static constexpr u32 kDim = Dim;   // 64 or 128; smaller heads are padded with zeros
    static constexpr u32 kGroups = 3;  // warpgroups that compute
    static constexpr u32 kKeys = tile::kKeyTile;
    static constexpr u32 kStages = 3;  // pairs of tiles of K and V in shared memory
    static constexpr u32 kGroupThreads = 128;
    static constexpr u32 kThreads = kGroupThreads * (kGroups + 1);  // the last group loads
    static constexpr u32 kGroupRows = 64, kRows = kGroupRows * kGroups;
    static constexpr u32 kWarps = 4 * kGroups;  // that compute
    // Registers a thread: 64 K in all, of which a block of n threads starts with an n-th each.
    static constexpr u32 kConsumerRegisters = 160;
    static constexpr u32 kLoaderRegisters = 32;

    static constexpr u32 kScoreRegisters = kKeys / 2, kOutRegisters = kDim / 2;
    static constexpr u32 kKSteps = kDim / 32, kPSteps = kKeys / 32;
    static constexpr u32 kTileBytes = kKeys * kDim;                // of K, and of V
    static constexpr u32 kQBytes = kGroupRows * kDim;              // of a group
    static constexpr u32 kScaleBytes = 4 * tile::kKeyScaleStride;  // of a tile
    static constexpr u32 kMasterBytes = 4 * 16 * kDim;             // of a warp
    // Bytes from one row of out to the next in shared memory: 16 more, so that no two lanes of a
    // store meet in a bank.
    static constexpr u32 kRowPitch = 2 * kDim + 16;
    static_assert(16 * kRowPitch <= kMasterBytes);

    static constexpr i32 kIntervalTiles = 2304 / kKeys;
    static constexpr float kExponent = 6;    // w
    static constexpr float kOverflow = 432;  // from here on P rounds to 448, code 0x7E
    static constexpr float kOverflowExponent = 8.7548875f;  // its log2
    static constexpr float kRise = 8, kFallLimit = 40;
    static constexpr float kNoReference = -1e30f;
    static constexpr float kMasterRise = 64;  // of m above the master's reference, in log2 units
    // A warp takes maxima first while overflows come often: each adds kHeat, each tile takes 1
    // away.
    static constexpr i32 kHeat = 4, kHot = 8;
};

template <class C>
struct SharedPlan {
    alignas(1024) u8 q[C::kGroups][C::kQBytes];        // [64 rows, kDim]
    alignas(1024) u8 k[C::kStages][2][C::kTileBytes];  // [64 keys, kDim]
    alignas(1024) u8 v[C::kStages][2][C::kTileBytes];  // [kDim, 64 keys in stored order]
    // [kDim / 8][32 lanes] x 16 bytes; at the end of an item 16 rows of out.
    alignas(16) u8 master[C::kWarps][C::kMasterBytes];
    alignas(16) float k_scale[C::kStages][2][tile::kKeyScaleStride];  // the first of each counts
    ptx::u64 full[C::kStages], empty[C::kStages];                     // mbarriers
    ptx::u64 item_full, item_empty;                                   // of q and the three below
    // Three items: results are made of one while the next one is computed, and a third found.
    alignas(16) u32 item[3][12];
    alignas(16) float v_scale[3][C::kDim], v_mean[3][C::kDim];
};

// What the loader tells the others of an item: three times four words.
struct ItemWords {
    ptx::U32x4 where;    // 1 + key tiles, or 0 where the list ends; segment, head, first row
    ptx::U32x4 lengths;  // queries, keys, q_row; the row after the item's last
    ptx::U32x4 results;  // offsets in out and lse, of 64 bits
};

struct Params {
    // What prep packed; rows of 64 and 128 bytes in the swizzle of their span.
    ptx::Global<const u8> q8;                  // [Hq, q_tiles, 64 rows, kDim]
    ptx::Global<const float> q_factor;         // [Hq, q_rows]: scale * softmax_scale * log2 e
    ptx::Global<const float> lse_shift;        // [Hq, q_rows]: what centring K took from the scores
    ptx::Global<const u8> k8, v8;              // [Hkv, k_tiles, 64 * kDim]
    ptx::Global<const float> k_scale;          // [Hkv, k_tiles, 4], the first of each four
    ptx::Global<const float> v_scale, v_mean;  // [segments, Hkv, kDim]
    i64 q_rows, q_tiles, k_tiles;
    tile::Output out;
    ptx::Global<const ptx::U32x4> segments;
    ptx::Global<u32> work;
    u32 segment_count, heads_q, heads_per_group;
    bool is_causal;
};

}  // namespace QUATT_ABI
}  // namespace quatt::wgmma
