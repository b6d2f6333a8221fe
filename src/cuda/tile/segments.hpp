// What kernels know of segments and packed operands. The table is built on the device at each run
// (prep/plan.cuh), so that a captured graph follows new lengths.
#pragma once

#include "cuda/tile/view.hpp"

namespace quatt::tile {
inline namespace QUATT_ABI {

using ptx::i32;
using ptx::i64;
using ptx::u16;
using ptx::u32;
using ptx::u8;

inline constexpr u32 kKeyTile = 64;    // keys of a packed tile, and of a K scale
inline constexpr u32 kQueryTile = 64;  // rows of a packed Q tile
// K scales are so many floats apart, the others 0, because a bulk copy moves 16 bytes at least.
inline constexpr u32 kKeyScaleStride = 4;

// Bytes of packed tiles are swizzled in 16-byte chunks inside a row, as wgmma has it for rows of
// 128 and 64 bytes, so that a tile copied flat into shared memory has the 8 rows of an ldmatrix
// matrix in different banks too.
[[nodiscard]] QUATT_HD constexpr u32 swizzled_chunk(u32 row_bytes, u32 row, u32 chunk) {
    return row_bytes == 128 ? chunk ^ (row & 7) : chunk ^ (row / 2 & 3);
}

// One segment of a packed stream, or one batch item. Offsets are in elements, of token 0 and head 0
// of the segment.
struct Segment {
    i64 q, k, v, out, lse;
    i32 q_len, k_len;  // 0 where the lengths given were invalid
    i32 q_row;      // first row in [Hq, q_rows]; first tile in [Hq, q_tiles]: q_row / 64 + segment
    i32 k_tile;     // first tile in packed K and V arrays, [Hkv, k_tiles]: first key / 64 + segment
    i32 stat_tile;  // first tile of 128 keys in the statistics: first key / 128 + segment
    i32 unused;
};
static_assert(sizeof(Segment) == 64);

// The list of work, words [4 + 2 * segments]: a header, then for the segments longest first the
// running sum of items, then which segment that is. An item is some query rows of one head.
// kUsedRows: rows of the packed stream before its tail.
inline constexpr u32 kNextItem = 0, kItems = 1, kUsedRows = 2, kHeaderWords = 4;

// Strides of an input or output, in elements.
struct Strides {
    i64 token, head, channel;
};

// The table [segments] as the 16-byte pieces that loads and stores move, four a segment.
using ptx::U32x4;
struct SegmentPieces {
    U32x4 piece[4];
};

// Of segment number `index`, in packed Q codes, [Hq, q_tiles, 64 rows, D].
[[nodiscard]] QUATT_HD constexpr i32 first_query_tile(i32 q_row, u32 index) {
    return q_row / i32(kQueryTile) + i32(index);
}

[[nodiscard]] QUATT_DEV Segment load_segment(ptx::Global<const U32x4> table, i64 s,
                                             ptx::Site site = ptx::Site::current()) {
    SegmentPieces p;
    QUATT_UNROLL
    for (u32 i = 0; i < 4; i++) {
        p.piece[i] = table.load(4 * s + i, site);
    }
    return formats::bit_cast<Segment>(p);
}

QUATT_DEV void store_segment(ptx::Global<U32x4> table, i64 s, const Segment& value,
                             ptx::Site site = ptx::Site::current()) {
    const auto p = formats::bit_cast<SegmentPieces>(value);
    QUATT_UNROLL
    for (u32 i = 0; i < 4; i++) {
        table.store(4 * s + i, p.piece[i], site);
    }
}

}  // namespace QUATT_ABI
}  // namespace quatt::tile
