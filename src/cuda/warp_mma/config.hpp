// Attention by mma.sync, one warp a block of rows: constants, the shared-memory plan and the
// parameters.
#pragma once

#include "cuda/ptx/ptx.hpp"
#include "cuda/tile/output.cuh"
#include "cuda/tile/segments.hpp"

namespace quatt::warp_mma {
inline namespace QUATT_ABI {

using ptx::i32;
using ptx::i64;
using ptx::u16;
using ptx::u32;
using ptx::u8;

inline constexpr u32 kRowsPerItem = 128;  // query rows of an item of work, in every configuration

enum class Arithmetic { kBf16, kF16, kFp8 };
// kNative: the GPU's best E4M3 instruction. kBlockScaled: the one of sm_120f, emulated where the
// GPU lacks it.
enum class Atom { kNative, kBlockScaled };
// What a test may take away; kNone is the kernel. One for each wait and barrier of an asynchronous
// write.
enum class Mutant { kNone, kNoFullWait, kNoFreeWait, kNoProxyFence, kNoZeroFill, kNoRedo, kNoMask };

// Blocks: 16-row blocks of a warp.
template <Arithmetic A, u32 Dim, Atom M = Atom::kNative, Mutant F = Mutant::kNone,
          u32 Blocks = A == Arithmetic::kBf16 ? 2 : 1>
struct Config {
    static constexpr Arithmetic kArithmetic = A;
    static constexpr Atom kAtom = M;
    static constexpr Mutant kMutant = F;
    static constexpr bool kFp8 = A == Arithmetic::kFp8;
    static constexpr u32 kDim = Dim;  // 64 or 128; smaller heads are padded with zeros
    static constexpr u32 kKeys = tile::kKeyTile;
    static constexpr u32 kIntervalTiles = 2304 / kKeys;
    static constexpr float kExponent = A == Arithmetic::kFp8   ? 6
                                       : A == Arithmetic::kF16 ? 8
                                                               : 0;  // w
    static constexpr bool kLooks = A != Arithmetic::kBf16;
    static constexpr float kRise = 8, kFallLimit = 40;
    static constexpr float kNoReference = -1e30f;

    // NOTE: with 16-bit operands a warp of 16 rows is bound by ldmatrix where the tensor cores are
    // fast, so on Hopper bf16 takes 32 and reads Q from shared memory. 16 rows leave registers for
    // Q, and shared memory that fits an SM of sm_120.
    static constexpr u32 kBlocks = Blocks;
    static constexpr u32 kWarps = 8 / kBlocks;
    static constexpr bool kSharedQ = kBlocks > 1;
    static_assert(!kFp8 || kBlocks == 1);
    static constexpr u32 kThreads = 32 * kWarps;
    static constexpr u32 kRows = 16 * kBlocks * kWarps;
    static_assert(kRows == kRowsPerItem);
    static constexpr u32 kCtasPerSm = kBlocks;

    static constexpr u32 kElement = kFp8 ? 1 : 2;  // bytes
    static constexpr u32 kRowBytes = kDim * kElement;
    static constexpr u32 kStages = kFp8 ? 4 : 2;
    static constexpr u32 kAhead = kFp8 ? 2 : 1;  // tiles requested before they are needed
    // Rows in shared memory. 8 bit: swizzled by prep. 16 bit: padded, so that addresses differ by
    // constants.
    static constexpr u32 kPitch = kFp8 ? kRowBytes : kRowBytes + 16;
    static constexpr u32 kTileBytes = kKeys * kPitch;
    static constexpr u32 kKSteps = kRowBytes / 32;         // mma steps over channels
    static constexpr u32 kPSteps = kKeys * kElement / 32;  // mma steps over keys
    static constexpr u32 kScoreTiles = kKeys / 8, kOutTiles = kDim / 8;
};

template <class C>
struct SharedPlan {
    u8 k[C::kStages][C::kTileBytes];  // [64 keys, kDim]
    u8 v[C::kStages]
        [C::kTileBytes];  // 8 bit: [kDim, 64 keys in stored order]; 16 bit: [64 keys, kDim]
    u8 q[C::kSharedQ ? C::kRows * C::kPitch : 16];
    ptx::u64 full[C::kStages], empty[C::kStages];  // mbarriers, 8 bit only
    u32 item;
};

struct Params {
    // 8 bit: what prep packed.
    ptx::Global<const u8> q8;           // [Hq, q_tiles, 64 rows, kDim]
    ptx::Global<const float> q_factor;  // [Hq, q_rows]: scale * softmax_scale * log2 e
    ptx::Global<const float>
        lse_shift;  // [Hq, q_rows]: what centring K took from the scores, natural units
    ptx::Global<const u8> k8, v8;              // [Hkv, k_tiles, tile bytes]
    ptx::Global<const float> k_scale;          // [Hkv, k_tiles, kKeyScaleStride]
    ptx::Global<const float> v_scale, v_mean;  // [segments, Hkv, kDim]
    i64 q_rows, q_tiles, k_tiles;
    // 16 bit: views whose rows are 16-byte aligned: the caller's, or prep's copies (rows from q_row
    // and 64 * k_tile on).
    bool is_copy;
    ptx::Global<const u16> q, k, v;
    tile::Strides q_strides, k_strides, v_strides;
    float score_factor;  // softmax_scale * log2 e

    tile::Output out;
    ptx::Global<const ptx::U32x4> segments;
    ptx::Global<u32> work;
    u32 segment_count, heads_q, heads_per_group;
    bool is_causal;
};

}  // namespace QUATT_ABI
}  // namespace quatt::warp_mma
