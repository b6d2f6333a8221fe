// Which key tiles an item of work walks, and in which order: a part that attention kernels are put
// together from. Position n of a walk is key tile tile(n) of the segment; positions go from
// count() - 1 down to 0.
//
// A border is a position where a promotion interval is met first: interval(tile(n)) is not
// interval(tile(n + 1)).
#pragma once

#include "cuda/ptx/ptx.hpp"

namespace quatt::worklist {
inline namespace QUATT_ABI {

using ptx::i32;
using ptx::i64;
using ptx::u32;

// What a walk may depend on, beside its parameters.
struct WalkedItem {
    u32 segment, head;
    i32 row;        // first query row of the item, of the segment's
    i32 key_tiles;  // that some row of the item sees: [0, key_tiles)
};

// Beyond any key: the tile of a position that is not in the walk, for masks.
inline constexpr i32 kNoTile = 1 << 24;

// All key tiles, from the last to the first. Costs no instruction.
template <u32 IntervalTiles>
struct AllTiles {
    struct Params {};

    i32 key_tiles;

    QUATT_DEV AllTiles(const Params&, const WalkedItem& item) : key_tiles(item.key_tiles) {}

    [[nodiscard]] QUATT_DEV i32 count() const { return key_tiles; }
    [[nodiscard]] QUATT_DEV i32 tile(i32 n) const { return n; }
    [[nodiscard]] QUATT_DEV bool is_border(i32 n) const {
        return n % i32(IntervalTiles) == i32(IntervalTiles) - 1;
    }
    // The highest border below n; below 0 where there is none.
    [[nodiscard]] QUATT_DEV i32 next_border(i32 n) const {
        return n / i32(IntervalTiles) * i32(IntervalTiles) - 1;
    }
};

// Split number `split` of `splits`: whole promotion intervals, so that a row's codes are those of
// the emulation with as many splits.
template <u32 IntervalTiles>
struct TileRange {
    struct Params {
        i32 split, splits;
    };

    i32 first, end;

    QUATT_DEV TileRange(const Params& p, const WalkedItem& item) {
        constexpr i32 kTiles = i32(IntervalTiles);
        const i32 intervals = (item.key_tiles + kTiles - 1) / kTiles;
        first = p.split * intervals / p.splits * kTiles;
        end = (p.split + 1) * intervals / p.splits * kTiles;
        end = end < item.key_tiles ? end : item.key_tiles;
    }

    [[nodiscard]] QUATT_DEV i32 count() const { return end > first ? end - first : 0; }
    [[nodiscard]] QUATT_DEV i32 tile(i32 n) const { return n < end - first ? first + n : kNoTile; }
    [[nodiscard]] QUATT_DEV bool is_border(i32 n) const {
        return (first + n) % i32(IntervalTiles) == i32(IntervalTiles) - 1;
    }
    [[nodiscard]] QUATT_DEV i32 next_border(i32 n) const {
        return (first + n) / i32(IntervalTiles) * i32(IntervalTiles) - 1 - first;
    }
};

// A list of tiles for each head and block of BlockRows query rows, ascending.
template <u32 IntervalTiles, u32 BlockRows>
struct TileList {
    struct Params {
        ptx::Global<const i32> tiles;   // [heads, blocks, capacity]
        ptx::Global<const i32> counts;  // [heads, blocks]
        i32 blocks, capacity;
    };

    ptx::Global<const i32> tiles;
    i64 first;
    i32 length;

    QUATT_DEV TileList(const Params& p, const WalkedItem& item) : tiles(p.tiles) {
        const i64 list = i64(item.head) * p.blocks + item.row / i32(BlockRows);
        first = list * p.capacity;
        length = p.counts.load(list);
    }

    [[nodiscard]] QUATT_DEV i32 count() const { return length; }
    [[nodiscard]] QUATT_DEV i32 tile(i32 n) const {
        return n >= 0 && n < length ? tiles.load(first + n) : kNoTile;
    }
    [[nodiscard]] QUATT_DEV bool is_border(i32 n) const {
        return n == length - 1 || tile(n) / i32(IntervalTiles) != tile(n + 1) / i32(IntervalTiles);
    }
    [[nodiscard]] QUATT_DEV i32 next_border(i32 n) const {
        i32 next = n - 1;
        QUATT_NO_UNROLL
        while (next >= 0 && !is_border(next)) {
            next--;
        }
        return next;
    }
};

}  // namespace QUATT_ABI
}  // namespace quatt::worklist
