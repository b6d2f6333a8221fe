// Lazy softmax: when the running max of a row moves (docs/recipes.md, section 2). The one statement
// of the rule for all engines of the host: they give the parts, a tile's maximum and its P, and
// rescale sums of their own.
#pragma once
#include <cmath>
#include <cstdint>
#include <limits>

#include "recipe/exp2.hpp"
#include "recipe/simd.hpp"
#include "recipe/softmax_policy.hpp"

namespace quatt::recipe {

// The running max of a row that has met no key. No key has it: one whose score is -inf raises
// nothing.
inline constexpr float kNoMax = -std::numeric_limits<float>::infinity();

// Takes a sum under the running max `from` to `to`: 2^(from - to), exact. A sum under kNoMax is 0,
// or NaN.
[[nodiscard]] QUATT_INLINE float rescaling(float from, float to) {
    return from == to ? 1.0f : exp2_fast(from - to);
}

// Two sums join under the higher of their running maxima.
struct Joined {
    float m, first, second;  // and what each is multiplied by
};
[[nodiscard]] QUATT_INLINE Joined join(float first, float second) {
    const float m = first > second ? first : second;
    return {.m = m, .first = rescaling(first, m), .second = rescaling(second, m)};
}

struct TileUpdate {
    float rescale = 1;  // of the row's O and l, before the tile is added: an exact power of two
    bool overflowed = false, refreshed = false, dropped = false;
};

// A row between tiles.
struct RowState {
    float m = kNoMax;            // running max, an integer
    float highest = kNoMax;      // of m so far
    bool wants_refresh = false;  // the tile before raised m by refresh_rise or more
    std::int64_t interval = -1;  // of the tile before

    // No refresh is due, so m stays unless P overflows under it.
    [[nodiscard]] QUATT_INLINE bool is_settled(std::int64_t interval_of_tile) const {
        return !wants_refresh && interval_of_tile == interval;
    }

    // The row meets a tile, which has
    //   float maximum()        the largest t, NaN ignored; -inf where there is none
    //   bool make_p(float m)   makes and rounds 2^(t - m + w) and its sum; true: overflow
    // and holds P and its sum afterwards.
    template <class Tile>
    [[nodiscard]] QUATT_INLINE TileUpdate update(const SoftmaxPolicy& policy,
                                                 std::int64_t interval_of_tile, Tile& tile) {
        TileUpdate result;
        const float before = m, rise = static_cast<float>(policy.refresh_rise);
        if (policy.refreshes && !is_settled(interval_of_tile)) {
            const float x = std::ceil(tile.maximum());
            result.refreshed = true;
            if (x > m) {
                result.rescale = move(x);
            } else if (x <= m - rise && x > kNoMax) {  // a tile without a key is no news
                const float least = highest - static_cast<float>(policy.max_drop);
                result.rescale = move(x > least ? x : least);
                result.dropped = true;
            }
        }
        interval = interval_of_tile;
        // Under no max, P of any key would be infinite; without a key, all t are -inf or NaN.
        result.overflowed = (m == kNoMax && tile.maximum() > kNoMax) || tile.make_p(base());
        if (result.overflowed) {
            const float x = std::ceil(tile.maximum());
            result.rescale *= move(x > m ? x : m);
            (void)tile.make_p(base());
        }
        wants_refresh = m - before >= rise;
        return result;
    }

private:
    // What is subtracted from t. -inf - -inf would be NaN.
    [[nodiscard]] QUATT_INLINE float base() const { return m == kNoMax ? 0.0f : m; }

    [[nodiscard]] QUATT_INLINE float move(float to) {
        const float factor = rescaling(m, to);
        m = to;
        highest = to > highest ? to : highest;
        return factor;
    }
};

}  // namespace quatt::recipe
