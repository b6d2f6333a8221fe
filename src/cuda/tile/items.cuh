// Items of work: which rows of which head and segment the n-th item of the list is.
#pragma once

#include "cuda/ptx/ptx.hpp"
#include "cuda/tile/segments.hpp"

namespace quatt::tile {
inline namespace QUATT_ABI {

struct Item {
    u32 segment, head;
    u32 row_tile;   // which rows, in tiles of rows_per_item
    Segment where;  // the segment's entry of the table
};

// `item` is below the list's count. A head's row tiles come last first: under a causal mask these
// are the longest.
[[nodiscard]] QUATT_DEV Item find_item(u32 item, ptx::Global<const u32> work, u32 segments,
                                       ptx::Global<const U32x4> table, u32 rows_per_item) {
    u32 low = 0, high = segments - 1;  // the first segment in order whose item_end is above `item`
    QUATT_NO_UNROLL
    while (low < high) {
        const u32 middle = (low + high) / 2;
        if (work.load(kHeaderWords + i64(middle)) > item) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    const u32 first = low == 0 ? 0 : work.load(kHeaderWords + i64(low) - 1);
    Item found;
    found.segment = work.load(kHeaderWords + i64(segments) + low);
    found.where = load_segment(table, found.segment);
    const u32 row_tiles = (u32(found.where.q_len) + rows_per_item - 1) / rows_per_item;
    found.head = (item - first) / row_tiles;
    found.row_tile = row_tiles - 1 - (item - first) % row_tiles;
    return found;
}

}  // namespace QUATT_ABI
}  // namespace quatt::tile
