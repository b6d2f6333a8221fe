// Items of work: which rows of which head and segment the n-th item of the list is.
#pragma once

#include "cuda/ptx/ptx.hpp"
#include "cuda/worklist/segments.hpp"

namespace quatt::worklist {
inline namespace QUATT_ABI {

struct Item {
    u32 segment, head;
    u32 row_tile;        // which rows, in tiles of rows_per_item
    SegmentEntry where;  // the segment's entry of the table
};

// `item` is below the list's count. A head's row tiles come last first: under a causal mask these
// are the longest.
[[nodiscard]] QUATT_DEV Item find_item(u32 item, const WorkList& list, u32 rows_per_item) {
    const u32 segments = list.segment_count;
    u32 low = 0, high = segments - 1;  // the first segment in order whose item_end is above `item`
    QUATT_NO_UNROLL
    while (low < high) {
        const u32 middle = (low + high) / 2;
        if (list.words.load(kHeaderWords + i64(middle)) > item) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    const u32 first = low == 0 ? 0 : list.words.load(kHeaderWords + i64(low) - 1);
    Item found;
    found.segment = list.words.load(kHeaderWords + i64(segments) + low);
    found.where = load_segment(list.segments, found.segment);
    const u32 row_tiles = (u32(found.where.q_len) + rows_per_item - 1) / rows_per_item;
    found.head = (item - first) / row_tiles;
    found.row_tile = row_tiles - 1 - (item - first) % row_tiles;
    return found;
}

// What a persistent block does next: an item of `groups` tiles of group_rows rows, or where the
// last round would leave at least half of the blocks idle, a piece of an item, of fewer tiles.
struct Piece {
    Item item;
    i32 row, row_end;  // of the segment's; none where the piece lies past the last
    bool is_end;       // past the list: nothing else is set
};
[[nodiscard]] QUATT_DEV Piece find_piece(u32 number, u32 blocks, u32 groups, u32 group_rows,
                                         const WorkList& list) {
    const u32 items = list.words.load(kItems), rest = items % blocks, whole = items - rest;
    const u32 pieces = rest * groups <= blocks ? groups : rest * 2 <= blocks ? 2 : 1;
    Piece found{};
    found.is_end = number >= whole + rest * pieces;
    if (found.is_end) {
        return found;
    }
    const bool is_whole = number < whole;
    const u32 cut = is_whole ? 1 : pieces, after_whole = is_whole ? 0 : number - whole;
    const u32 rows = groups * group_rows, piece_rows = (groups + cut - 1) / cut * group_rows;
    found.item = find_item(is_whole ? number : whole + after_whole / cut, list, rows);
    const u32 first = found.item.row_tile * rows, row = first + after_whole % cut * piece_rows;
    const u32 end = row + piece_rows < first + rows ? row + piece_rows : first + rows;
    const u32 queries = u32(found.item.where.q_len);
    found.row = i32(row);
    found.row_end = i32(end < queries ? end : queries);
    return found;
}

}  // namespace QUATT_ABI
}  // namespace quatt::worklist
