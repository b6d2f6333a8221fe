// Scores of keys that a row does not see.
#pragma once

#include <cmath>

#include "cuda/ptx/ptx.hpp"

namespace quatt::tile {
inline namespace QUATT_ABI {

// Keys that query row `row` sees: [0, visible_keys). Bottom-right aligned under a causal mask.
[[nodiscard]] QUATT_DEV ptx::i32 visible_keys(bool is_causal, ptx::i32 row, ptx::i32 queries,
                                              ptx::i32 keys) {
    const ptx::i32 end = is_causal ? row + keys - queries + 1 : keys;
    return end < 0 ? 0 : end > keys ? keys : end;
}

// A part of attention kernels.
struct Mask {
    // -inf for all but the first `seen` keys after a lane's first one: score(n, i) is that of key
    // 8 n + i, n < Tiles, i < 2.
    template <ptx::u32 Tiles, class Score>
    QUATT_DEV static void apply(ptx::i32 seen, Score&& score) {
        QUATT_UNROLL
        for (ptx::u32 n = 0; n < Tiles; n++) {
            QUATT_UNROLL
            for (ptx::u32 i = 0; i < 2; i++) {
                float& x = score(n, i);
                x = ptx::i32(8 * n + i) < seen ? x : -INFINITY;
            }
        }
    }
};

// The factor of a row's scores where some are masked: -inf times one that underflowed to 0 would be
// NaN. Such scores are all nearly 0.
[[nodiscard]] QUATT_DEV float not_zero(float factor) {
    constexpr float kLeastNormal = 1.17549435e-38f;
    return factor == 0 ? kLeastNormal : factor;
}

}  // namespace QUATT_ABI
}  // namespace quatt::tile
