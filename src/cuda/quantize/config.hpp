// The quantisers of recipe fp8, and the row copy of the 16-bit recipes: constants, shared-memory
// plans, workspace extents, launch geometry and parameters.
//
// The stages are build_worklist (worklist/build.cuh), statistics, which packs Q too where no LSE is
// wanted, finalise (statistics.cuh), pack_q where one is, pack_kv (pack.cuh). Dim is the head size
// padded with zero channels, 64 or 128.
//
// A CTA works on one slot of one head. Slots are numbered through all segments, so that the host
// only needs their capacity: segment s owns slots from first(s) on, where first(s) is
//   statistics      SegmentEntry::stat_tile          = first key / 128 + s
//   pack_kv         SegmentEntry::k_tile             = first key / 64 + s
//   pack_q          SegmentEntry::q_row / 128 + s
// No two segments meet, since floor((a + b) / n) + 1 >= floor(a / n) + ceil(b / n). The table must
// keep first(s) from falling, for empty and invalid segments too. A slot that nobody owns costs one
// search.
//
// What the stages move, per token and head at Dim = 128, 16-bit in, and what one SM keeps in
// flight:
//   kernel      read   written  threads  registers   CTAs   bytes that the loads of
//               bytes  bytes             90a, 120f   90a    one CTA ask for at once
//   statistics  512    16       256      80, 106     3      up to 64 K
//   pack_q      256    132      256      80, 94      3      32 K
//   pack_kv     512    256      128      96, 80      5      16 K
//   finalise    16 of the partials, from L2
// At S = 30272 and 56 heads: 2.9 GB, .68 ms at a copy's 4.2 TB/s. Bandwidth times latency is about
// 30 KB an SM. Partials are dead after finalise: they may lie where K's and V's codes go.
#pragma once

#include "cuda/ptx/ptx.hpp"
#include "cuda/quantize/partials.hpp"
#include "cuda/worklist/segments.hpp"

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

inline constexpr u32 kQuerySlot = 128;  // rows that a CTA of pack_q looks after

inline constexpr float kTarget = 448.0f;  // E4M3's largest number: what amax becomes
inline constexpr float kLeastScale = 0x1p-126f;
inline constexpr float kLeastMean = 1.0f / 64;  // part of a V channel's centred amax
inline constexpr float kLog2E = 1.4426950408889634f;
// NOTE: sums are of x / 256, so that 128 of the largest bf16 numbers do not overflow: a sum that is
// not finite then says that an x is not. Exact, for subnormals of bf16 and f16 too.
inline constexpr float kSumFactor = 0x1p-8f;
inline constexpr u32 kInfBits = 0x7F800000u;

// Keys of a V tile are stored in the order in which the accumulators of mma m16n8 leave them in a
// lane, so that P needs no shuffle: of each 16, place 4t + i holds key 8(i / 2) + 2t + i % 2.
inline constexpr u32 kKeyGroup = 16;

// ---------------------------------------------------------------- kernels

// 256 threads read rows of Dim / 8 pieces of 16 bytes: for Dim = 128, 8 + 8 loads a thread.

template <u32 Dim>
struct StatisticsConfig {
    static constexpr u32 kThreads = 256, kWarps = kThreads / 32;
    static constexpr u32 kPieces = Dim / 8;           // of a row; the lanes that share a row
    static constexpr u32 kRows = kThreads / kPieces;  // at a time
    static constexpr u32 kPasses = kStatTile / kRows;
    static constexpr u32 kColumns = kStats * Dim;  // of a partial

    struct SharedPlan {
        float part[kWarps][kStats][Dim];  // channels in the order of statistics_channel
    };
    static_assert(kPieces <= 32 && kStatTile % kRows == 0 && kColumns % kThreads == 0);
};

// Folds the partials of one segment and head. 8 or 16 groups of lanes walk every 8th or 16th tile,
// 4 channels a lane.
template <u32 Dim>
struct FinaliseConfig {
    static constexpr u32 kThreads = 256;
    static constexpr u32 kLanes = Dim / 4;  // of a group
    static constexpr u32 kGroups = kThreads / kLanes;
    static constexpr u32 kAhead = 4;  // tiles in flight a group

    struct SharedPlan {
        double sum[2][kGroups][Dim];  // K, V
        float edge[2][kGroups][Dim];  // minimum and maximum of V
    };
    static_assert(sizeof(SharedPlan) <= 48 << 10);
};

// 128 query rows of one head; a warp owns 16 consecutive ones.
template <u32 Dim>
struct PackQConfig {
    static constexpr u32 kThreads = 256, kWarps = kThreads / 32;
    static constexpr u32 kPieces = Dim / 8;     // of a row; the lanes that share a row
    static constexpr u32 kRows = 32 / kPieces;  // of a warp at a time
    static constexpr u32 kWarpRows = kQuerySlot / kWarps;
    static constexpr u32 kPasses = kWarpRows / kRows;
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

template <u32 Dim>
struct PackKvConfig {
    static constexpr u32 kThreads = PackKConfig<Dim>::kThreads;
    static constexpr u32 kSharedBytes = sizeof(typename PackVConfig<Dim>::SharedPlan);
    static_assert(kThreads == PackVConfig<Dim>::kThreads &&
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

// `keys` and `queries` are capacities: of the packed stream, or batch items times tokens of each.
[[nodiscard]] QUATT_HD constexpr i64 query_slots(i64 queries, i64 segments) {
    return tile::tiles_of(queries, segments, kQuerySlot);
}

// One-dimensional; blocks must be below 2^31, and a launch of 0 blocks is left out.
struct LaunchShape {
    i64 blocks = 0;
    u32 threads = 0, shared_bytes = 0;
};

// `q_blocks`: of the pack_q launch that comes first in it.
template <u32 Dim>
[[nodiscard]] QUATT_HD constexpr LaunchShape statistics_launch(i64 q_blocks, i64 stat_slots,
                                                               i64 kv_heads) {
    using C = StatisticsConfig<Dim>;
    static_assert(C::kThreads == PackQConfig<Dim>::kThreads);
    return {q_blocks + stat_slots * kv_heads, C::kThreads, u32(sizeof(typename C::SharedPlan))};
}
template <u32 Dim>
[[nodiscard]] QUATT_HD constexpr LaunchShape finalise_launch(i64 segments, i64 kv_heads) {
    using C = FinaliseConfig<Dim>;
    return {segments * kv_heads, C::kThreads, u32(sizeof(typename C::SharedPlan))};
}
template <u32 Dim>
[[nodiscard]] QUATT_HD constexpr LaunchShape pack_q_launch(i64 query_slots, i64 q_heads) {
    return {query_slots * q_heads, PackQConfig<Dim>::kThreads, 0};
}
template <u32 Dim>
[[nodiscard]] QUATT_HD constexpr LaunchShape pack_kv_launch(i64 key_tiles, i64 kv_heads) {
    using C = PackKvConfig<Dim>;
    return {2 * key_tiles * kv_heads, C::kThreads, C::kSharedBytes};
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

struct StatisticsParams {
    ptx::Global<const ptx::U32x4> segments;  // [segments], see worklist::load_segment
    u32 segment_count;
    u32 kv_heads, channels, channels_v;
    Input k, v;
    i64 stat_slots;
    ptx::Global<float> partials;  // [Hkv, stat_slots, kStats, Dim], sums times kSumFactor
    // Q, if it has no lse_shift (which needs K's mean): by the first blocks, so that the rows of K
    // and V are the last ones read.
    u32 q_blocks;
    PackQParams q;
};

struct FinaliseParams {
    ptx::Global<const ptx::U32x4> segments;
    u32 kv_heads;
    i64 stat_slots;
    ptx::Global<const float> partials;           // [Hkv, stat_slots, kStats, Dim]
    ptx::Global<float> k_mean, v_mean, v_scale;  // [segments, Hkv, Dim]
};

struct PackKParams {
    ptx::Global<const ptx::U32x4> segments;
    u32 segment_count;
    u32 kv_heads, channels;
    Input k;
    i64 k_tiles;
    ptx::Global<const float> k_mean;  // [segments, Hkv, Dim]
    ptx::Global<u8> k8;               // [Hkv, k_tiles, 64 keys, Dim] E4M3, chunks swizzled
    ptx::Global<float> k_scale;       // [Hkv, k_tiles, kKeyScaleStride]
};

struct PackVParams {
    ptx::Global<const ptx::U32x4> segments;
    u32 segment_count;
    u32 kv_heads, channels;
    Input v;
    i64 k_tiles;
    ptx::Global<const float> v_mean, v_scale;  // [segments, Hkv, Dim]
    ptx::Global<u8> v8;  // [Hkv, k_tiles, Dim, 64 keys in stored order] E4M3, chunks swizzled
};

struct PackKvParams {
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
