// Lazy softmax of a lane's query rows: the one statement in device code of when the running max m
// of a row moves, and what follows (docs/recipes.md, "Lazy softmax"). Schedules decide when a
// tile's maximum is taken, and hold O. The four lanes of a row take the same decisions.
//
// Scores are kept as products s; t = s * scale, in log2 units, is the score that the rule names,
// and p = 2^(t - m + w).
#pragma once

#include <cmath>
#include <limits>

#include "cuda/ptx/ptx.hpp"
#include "recipe/softmax_policy.hpp"

namespace quatt::softmax {
inline namespace QUATT_ABI {

using ptx::u32;

// The largest of the row's four lanes, NaN ignored.
[[nodiscard]] QUATT_DEV float row_maximum(float x) {
    x = ptx::max(x, ptx::shfl_xor(x, 1));
    return ptx::max(x, ptx::shfl_xor(x, 2));
}

template <recipe::SoftmaxPolicy Policy, u32 Rows>
struct RowState {
    static constexpr float kBias = float(Policy.exponent_bias);  // w
    static constexpr float kRefreshRise = float(Policy.refresh_rise);
    static constexpr float kMaxDrop = float(Policy.max_drop);
    // m of a row that has met no key: no finite t is below it.
    static constexpr float kNoMax = std::numeric_limits<float>::lowest();
    static constexpr float kNoOffset = -kNoMax;  // w - m, rounded
    // From here on t is a multiple of a half, and its rounding matters.
    static constexpr float kCoarse = 0x1p22f;

    // m, an integer, is kept as what it adds to the exponents of P: w - m, rounded down where it
    // is no fp32 number, so that no p is above 2^w.
    float exponent_offset[Rows];
    float highest[Rows];  // m so far
    float sum[Rows];      // l: of the unrounded p, this lane's keys
    // Bit r: the next tile is a refresh of row r, since this one raised its m by kRefreshRise or
    // more, or since it is the first.
    u32 refresh = (1u << Rows) - 1;

    // `is_row(r)`: a row of the segment. NOTE: scores of the others are all 0: an m of w keeps
    // their P low, or each tile would look for an overflow.
    template <class IsRow>
    QUATT_DEV explicit RowState(IsRow&& is_row) {
        QUATT_UNROLL
        for (u32 r = 0; r < Rows; r++) {
            exponent_offset[r] = is_row(r) ? kNoOffset : 0.0f;
            highest[r] = kNoMax;
            sum[r] = 0;
        }
    }

    [[nodiscard]] QUATT_DEV float running_max(u32 r) const {
        return ptx::sub_down(kBias, exponent_offset[r]);
    }

    // Whether scores of row r are to be rounded as t before m is taken from them: s * scale - m is
    // otherwise rounded once and the maximum twice, which such an m would show.
    [[nodiscard]] QUATT_DEV bool is_coarse(u32 r) const {
        const float size = exponent_offset[r] < 0 ? -exponent_offset[r] : exponent_offset[r];
        return size >= kCoarse && size < kNoOffset;
    }

    // The exponent of p for a score.
    [[nodiscard]] QUATT_DEV float exponent(u32 r, float s, float scale) const {
        return ptx::fma(s, scale, exponent_offset[r]);
    }

    // Rules 1 and 2, of a row whose largest t of the tile is `largest`: moves m where a refresh or
    // an overflow asks for it. The result is for O.
    // NOTE: no branches: peaked rows come here in each tile, and these would diverge.
    [[nodiscard]] QUATT_DEV float update(u32 r, float largest, bool is_refresh, bool overflows,
                                         u32& risen) {
        const float x = ptx::ceil(largest), m = running_max(r);
        const bool drops =
            Policy.refreshes & is_refresh & (x > -INFINITY) & (x <= m - kRefreshRise);
        const float up = (is_refresh | overflows) ? ptx::max(x, m) : m;
        const float to = drops ? ptx::max(x, highest[r] - kMaxDrop) : up;
        risen |= to - m >= kRefreshRise ? 1u << r : 0u;
        return rescale(r, to);
    }

    // Rule 3: m moves, and l by an exact power of two; the result is for O.
    [[nodiscard]] QUATT_DEV float rescale(u32 r, float m) {
        const float next = ptx::sub_down(kBias, m), factor = ptx::ex2(next - exponent_offset[r]);
        exponent_offset[r] = next;
        highest[r] = ptx::max(highest[r], m);
        sum[r] *= factor;
        return factor;
    }

    // The row's sum l over its lanes, complete.
    QUATT_DEV void finish(u32 r) {
        sum[r] += ptx::shfl_xor(sum[r], 1);
        sum[r] += ptx::shfl_xor(sum[r], 2);
    }
    // After `finish`. Natural units.
    [[nodiscard]] QUATT_DEV float lse(u32 r) const {
        return (ptx::lg2(sum[r]) - exponent_offset[r]) * 0.6931471805599453f;
    }
};

}  // namespace QUATT_ABI
}  // namespace quatt::softmax
