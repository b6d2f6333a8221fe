// The segment table and the list of work. Both are built on the device at each run (build.cuh), so
// that a captured graph follows new lengths.
#pragma once

#include "cuda/tile/packed.hpp"
#include "cuda/tile/view.hpp"
#include "cuda/worklist/layout.hpp"

namespace quatt::worklist {
inline namespace QUATT_ABI {

using ptx::i32;
using ptx::i64;
using ptx::u16;
using ptx::u32;
using ptx::u8;

// One segment of a packed stream, or one batch item. Offsets are in elements, of token 0 and head 0
// of the segment.
struct SegmentEntry {
    i64 q, k, v, out, lse;
    i32 q_len, k_len;  // 0 where the lengths given were invalid
    i32 q_row;         // first row in [Hq, q_rows]
    i32 k_tile;        // first tile of 64 keys, tile::first_tile
    i32 unused[2];
};
static_assert(sizeof(SegmentEntry) == kSegmentBytes);

// Of a problem.
struct WorkList {
    ptx::Global<ptx::U32x4> segments;  // [segments], see load_segment
    ptx::Global<u32> words;            // [list_words(segments)]
    u32 segment_count;
};
// The table [segments] as the 16-byte pieces that loads and stores move, four a segment.
using ptx::U32x4;
struct SegmentPieces {
    U32x4 piece[4];
};

[[nodiscard]] QUATT_DEV SegmentEntry load_segment(ptx::Global<const U32x4> table, i64 s,
                                                  ptx::Site site = ptx::Site::current()) {
    SegmentPieces p;
    QUATT_UNROLL
    for (u32 i = 0; i < 4; i++) {
        p.piece[i] = table.load(4 * s + i, site);
    }
    return formats::bit_cast<SegmentEntry>(p);
}

QUATT_DEV void store_segment(ptx::Global<U32x4> table, i64 s, const SegmentEntry& value,
                             ptx::Site site = ptx::Site::current()) {
    const auto p = formats::bit_cast<SegmentPieces>(value);
    QUATT_UNROLL
    for (u32 i = 0; i < 4; i++) {
        table.store(4 * s + i, p.piece[i], site);
    }
}

}  // namespace QUATT_ABI
}  // namespace quatt::worklist
