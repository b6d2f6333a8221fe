// The quantisers of recipe fp8, and the row copy of the 16-bit recipes: constants, shared-memory
// plans, workspace extents, launch geometry and parameters.
//
// The stages are build_worklist (worklist/build.cuh; sample does its work where there is one
// segment without lengths on the device), sample (sample.cuh), pack, which reads Q, K and V once,
// and repack, which packs V of those heads again whose sample lied (pack.cuh). Dim is the head size
// padded with zero channels, 64 or 128.
//
// A block of pack works on one tile of one head, or a part of one of Q. Tiles are numbered through
// all segments (tile/packed.hpp), so that the host only needs their capacity; a tile that nobody
// owns costs one search. The segment table must keep first tiles from falling, for empty and
// invalid segments too.
//
// What the stages move, per token and head at Dim = 128, 16-bit in, and what one SM keeps in
// flight:
//   kernel      read   written  threads  bytes that the loads of
//               bytes  bytes             one block ask for at once
//   sample      512    0        512      up to 64 K: of at most 1024 tokens a segment
//   pack        768    388      128      16 K
// At S = 30272 and 56 heads: 1.96 GB, .47 ms at a copy's 4.2 TB/s. Bandwidth times latency is about
// 30 KB an SM.
#pragma once

#include "cuda/ptx/ptx.hpp"
#include "cuda/worklist/build.cuh"
#include "recipe/sample.hpp"

namespace quatt::quantize {
inline namespace QUATT_ABI {

using ptx::i32;
using ptx::i64;
using ptx::u16;
using ptx::u32;
using ptx::u64;
using ptx::u8;
using tile::kKeyTile;
using tile::kQueryTile;
using tile::swizzled_chunk;

inline constexpr float kTarget = 448.0f;  // E4M3's largest number: what amax becomes
inline constexpr float kLog2E = 1.4426950408889634f;
inline constexpr u32 kInfBits = 0x7F800000u;

// Keys of a V tile are stored in the order in which the accumulators of mma m16n8 leave them in a
// lane, so that P needs no shuffle: of each 16, place 4t + i holds key 8(i / 2) + 2t + i % 2.
inline constexpr u32 kKeyGroup = 16;

// ---------------------------------------------------------------- kernels

struct SampleConfig {
    static constexpr u32 kChannels = 32;  // of a block
    static constexpr u32 kWarps = recipe::kSampleGroups, kThreads = 32 * kWarps;
    static constexpr u32 kPieces = kChannels / 8;  // of 16 bytes; the lanes that share a row
    static constexpr u32 kSubs = 32 / kPieces, kPasses = recipe::kGroupTokens / kSubs;
    static constexpr u32 kFolds = 3, kLaneFolds = 3;  // of a lane's own tokens, and between lanes
    static_assert(1u << kFolds == kPasses && 1u << kLaneFolds == kSubs);

    struct SharedPlan {
        alignas(16) float mean[recipe::kSampleGroups][kChannels],
            half[recipe::kSampleGroups][kChannels];
        float low[recipe::kSampleGroups][kChannels], high[recipe::kSampleGroups][kChannels];
    };
};

// Query rows of one head: a tile, or half of one. A warp owns 16 consecutive ones.
template <u32 Dim>
struct PackQConfig {
    static constexpr u32 kThreads = Dim, kWarps = kThreads / 32;
    static constexpr u32 kPieces = Dim / 8;     // of a row; the lanes that share a row
    static constexpr u32 kRows = 32 / kPieces;  // of a warp at a time
    static constexpr u32 kWarpRows = 16;
    static constexpr u32 kPasses = kWarpRows / kRows;
    static constexpr u32 kBlockRows = kWarpRows * kWarps, kParts = kQueryTile / kBlockRows;
    static_assert(kPasses <= kPieces);
};

// 64 keys of one head.
template <u32 Dim>
struct PackKConfig {
    static constexpr u32 kThreads = Dim, kWarps = kThreads / 32;
    static constexpr u32 kPieces = Dim / 8;
    static constexpr u32 kRows = kThreads / kPieces;  // at a time
    static constexpr u32 kPasses = kKeyTile / kRows;
    static constexpr u32 kTileBytes = kKeyTile * Dim;

    struct SharedPlan {
        u32 amax[kWarps];  // bits
    };
};

// 64 keys of one head. A thread reads 4 channels of 16 keys, which are 4 whole chunks of the
// transposed tile; shared memory only brings the chunks into the order of the tile.
template <u32 Dim>
struct PackVConfig {
    static constexpr u32 kChunks = kKeyTile / kKeyGroup;  // of a channel's row
    static constexpr u32 kLanes = Dim / 4;                // that share a row of the input
    static constexpr u32 kThreads = kChunks * kLanes;
    static constexpr u32 kTileBytes = Dim * kKeyTile;
    static constexpr u32 kUnits = kTileBytes / 16;
    static constexpr u32 kCopies = kUnits / kThreads;

    struct SharedPlan {
        ptx::U32x4 unit[kUnits];
    };
    static_assert(kCopies == 4 && kThreads % 32 == 0);
};

template <u32 Dim, bool Aligned16 = true>
struct PackConfig {
    static constexpr u32 kThreads = PackKConfig<Dim>::kThreads;
    // That registers are to leave room for; rows of any alignment need more.
    static constexpr u32 kBlocksPerSm = (Aligned16 ? 5 : 3) * 128 / Dim;
    static constexpr u32 kSharedBytes = sizeof(typename PackVConfig<Dim>::SharedPlan);
    static_assert(kThreads == PackVConfig<Dim>::kThreads &&
                  kThreads == PackQConfig<Dim>::kThreads &&
                  kSharedBytes >= sizeof(typename PackKConfig<Dim>::SharedPlan));
};

// Rows of 64 tokens of one head.
template <u32 Dim>
struct CopyRowsConfig {
    static constexpr u32 kThreads = 128;
    static constexpr u32 kPieces = Dim / 8;
    static constexpr u32 kRows = kThreads / kPieces;  // at a time
    static constexpr u32 kPasses = kKeyTile / kRows;
};

// ---------------------------------------------------------------- workspace extents and launches

// One-dimensional; blocks must be below 2^31, and a launch of 0 blocks is left out.
struct LaunchShape {
    i64 blocks = 0;
    u32 threads = 0, shared_bytes = 0;
};

template <u32 Dim>
[[nodiscard]] QUATT_HD constexpr LaunchShape sample_launch(i64 segments, i64 kv_heads) {
    using C = SampleConfig;
    return {segments * kv_heads * 2 * (Dim / C::kChannels), C::kThreads,
            u32(sizeof(C::SharedPlan))};
}
// The blocks of a launch of pack that have rows of Q; they come first.
template <u32 Dim>
[[nodiscard]] QUATT_HD constexpr i64 query_blocks(i64 query_tiles, i64 q_heads) {
    return query_tiles * PackQConfig<Dim>::kParts * q_heads;
}
template <u32 Dim>
[[nodiscard]] QUATT_HD constexpr LaunchShape pack_launch(i64 query_tiles, i64 q_heads,
                                                         i64 key_tiles, i64 kv_heads) {
    using C = PackConfig<Dim>;
    return {query_blocks<Dim>(query_tiles, q_heads) + 2 * key_tiles * kv_heads, C::kThreads,
            C::kSharedBytes};
}
template <u32 Dim>
[[nodiscard]] QUATT_HD constexpr LaunchShape repack_launch(i64 multiprocessors) {
    return {multiprocessors, PackConfig<Dim>::kThreads, PackConfig<Dim>::kSharedBytes};
}
// `slots`: query_tiles for Q, key_tiles for K and V.
template <u32 Dim>
[[nodiscard]] QUATT_HD constexpr LaunchShape copy_rows_launch(i64 slots, i64 heads) {
    return {slots * heads, CopyRowsConfig<Dim>::kThreads, 0};
}

// ---------------------------------------------------------------- parameters

// [.., heads, channels], 16-bit.
struct Input {
    ptx::Global<const u16> data;
    tile::Strides strides;
};

// Whether every row can be read 16 bytes at a time. `batch` is the number of elements between batch
// items, 0 for a packed stream. Strides of an extent of 1 are to be given as 0.
[[nodiscard]] QUATT_HD constexpr bool is_aligned16(u64 address, i64 batch,
                                                   const tile::Strides& strides, i64 channels) {
    constexpr i64 kElements = 8;
    return address % 16 == 0 && batch % kElements == 0 && strides.token % kElements == 0 &&
           strides.head % kElements == 0 && (strides.channel == 1 || channels == 1) &&
           channels % kElements == 0;
}

struct SampleParams {
    ptx::Global<const ptx::U32x4> segments;  // [segments], see worklist::load_segment
    bool builds_list;  // of a call of one segment, which had no launch of build_worklist
    worklist::BuildParams build;
    u32 kv_heads, channels, channels_v;
    Input k, v;
    ptx::Global<float> k_mean, v_mean, v_scale;  // [segments, Hkv, Dim]
    ptx::Global<float> v_sample_scale;           // likewise, as v_scale: what pack codes with
    ptx::Global<u32> v_beyond;                   // likewise: 0
    ptx::Global<u32> v_lied;                     // [segments, Hkv]: 0
};

struct PackQParams {
    ptx::Global<const ptx::U32x4> segments;
    u32 segment_count;
    u32 q_heads, heads_per_group, channels;
    Input q;
    float softmax_scale;
    bool has_lse_shift;
    i64 q_rows, q_tiles;
    ptx::Global<u8> q8;               // [Hq, q_tiles, 64 rows, Dim] E4M3, chunks swizzled
    ptx::Global<float> q_factor;      // [Hq, q_rows]: scale * (softmax_scale * log2 e)
    ptx::Global<const float> k_mean;  // [segments, Hkv, Dim]; with has_lse_shift only
    ptx::Global<float> lse_shift;     // [Hq, q_rows]: softmax_scale * q . k_mean; likewise
};

struct PackKParams {
    ptx::Global<const ptx::U32x4> segments;
    u32 segment_count;
    u32 kv_heads, channels;
    Input k;
    i64 k_tiles;
    ptx::Global<const float> k_mean;  // [segments, Hkv, Dim]
    ptx::Global<u8> k8;               // [Hkv, k_tiles, 64 keys, Dim] E4M3, chunks swizzled
    ptx::Global<float> k_scale;       // [Hkv, k_tiles, kKeyScaleStride]: words 0 and 3
};

struct PackVParams {
    ptx::Global<const ptx::U32x4> segments;
    u32 segment_count;
    u32 kv_heads, channels;
    Input v;
    i64 k_tiles;
    ptx::Global<const float> v_mean, v_sample_scale;  // [segments, Hkv, Dim]
    // [segments, Hkv, Dim]: bits of the channel's largest coded |x| beyond the scale's range, or 0.
    ptx::Global<u32> v_beyond;
    ptx::Global<u32> v_lied;     // [segments, Hkv]: whether one of them is not 0
    ptx::Global<u16> far_keys;   // the memory of k_scale: halves 2 to 5 of each 8
    ptx::Global<float> v_scale;  // [segments, Hkv, Dim]; repack only
    ptx::Global<u8> v8;  // [Hkv, k_tiles, Dim, 64 keys in stored order] E4M3, chunks swizzled
};

struct PackParams {
    u32 q_blocks;
    PackQParams q;
    PackKParams k;
    PackVParams v;
};

enum class Operand { kQ, kK, kV };

struct CopyRowsParams {
    ptx::Global<const ptx::U32x4> segments;
    u32 segment_count;
    u32 heads, channels;
    Input x;
    i64 rows;             // q_rows, or 64 * k_tiles
    ptx::Global<u16> to;  // [H, rows, Dim]
};

}  // namespace QUATT_ABI
}  // namespace quatt::quantize
