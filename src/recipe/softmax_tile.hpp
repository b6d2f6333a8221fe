// What the emulation does with a row's scores of one tile: the parts of lazy softmax, for any
// recipe.
#pragma once
#include <quatt/quatt.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>

#include "formats/bf16.hpp"
#include "formats/e2m1.hpp"
#include "formats/e4m3.hpp"
#include "formats/f16.hpp"
#include "formats/ue4m3.hpp"
#include "recipe/exp2.hpp"
#include "recipe/lazy_softmax.hpp"
#include "recipe/simd.hpp"

namespace quatt::recipe {

namespace detail {

// The largest t, NaN ignored; -inf where there is none.
[[nodiscard]] QUATT_INLINE float row_maximum(const float* t, std::int64_t n) {
    float x = -std::numeric_limits<float>::infinity();
    for (std::int64_t j = 0; j < n; j++) {
        x = t[j] > x ? t[j] : x;
    }
    return x;
}

// p[j] = 2^(t[j] - m + w); returns their sum: four chains, folded in a fixed order. n is a multiple
// of 4.
[[nodiscard]] QUATT_INLINE float exponentials(const float* t, std::int64_t n, float m, float w,
                                              float* p) {
    for (std::int64_t j = 0; j < n; j++) {
        p[j] = exp2_fast((t[j] - m) + w);
    }
    std::array<float, 4> sum{};
    for (std::int64_t j = 0; j < n; j += 4) {
        for (std::int64_t i = 0; i < 4; i++) {
            sum[static_cast<std::size_t>(i)] += p[j + i];
        }
    }
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

// Rounds p to its format; says whether a code reached the overflow code. n is a multiple of 32.
[[nodiscard]] QUATT_INLINE bool round_p(const SoftmaxPolicy& policy, float* p, std::int64_t n,
                                        float sum) {
    const bool round = policy.p_format != QUATT_FORMAT_F32;
    int top = 0;
    switch (policy.overflow_format) {
        case QUATT_FORMAT_BF16:
            for (std::int64_t j = 0; round && j < n; j++) {
                p[j] = formats::Bf16::decode(formats::Bf16::encode(p[j]));
            }
            return !(sum < 0x1p64f);
        case QUATT_FORMAT_F16:
            for (std::int64_t j = 0; j < n; j++) {
                const float rounded = formats::F16::decode(formats::F16::encode(p[j]));
                top |= !(rounded < 0x1p15f);
                p[j] = round ? rounded : p[j];
            }
            return top != 0;
        case QUATT_FORMAT_E4M3:
            for (std::int64_t j = 0; j < n; j++) {
                const std::uint8_t c = formats::E4m3::encode(p[j]);
                top |= c >= policy.overflow_code;
                p[j] = round ? formats::E4m3::decode(c) : p[j];
            }
            return top != 0;
        default:  // E2M1: scales per 16 keys {8i + 4b + 0..3 : i = 0..3} of each 32
            for (std::int64_t j0 = 0; j0 < n; j0 += 32) {
                for (std::int64_t b = 0; b < 2; b++) {
                    float amax = 0;
                    for (std::int64_t i = 0; i < 16; i++) {
                        const float a = p[j0 + i / 4 * 8 + 4 * b + i % 4];
                        amax = a > amax || std::isnan(a) ? a : amax;
                    }
                    const std::uint8_t code = formats::Ue4m3::encode(amax * (1.0f / 6.0f));
                    const float s = formats::Ue4m3::decode(code), inv = s == 0.0f ? 0.0f : 1.0f / s;
                    top |= code >= policy.overflow_code;
                    for (std::int64_t i = 0; round && i < 16; i++) {
                        float& a = p[j0 + i / 4 * 8 + 4 * b + i % 4];
                        a = formats::E2m1::decode(formats::E2m1::encode(a * inv)) * s;
                    }
                }
            }
            return top != 0;
    }
}

struct ScoreTile {
    const SoftmaxPolicy& policy;
    const float* t;
    std::int64_t n;
    float* p;
    float sum = 0;  // of the unrounded p

    [[nodiscard]] QUATT_INLINE float maximum() const { return row_maximum(t, n); }
    [[nodiscard]] QUATT_INLINE bool make_p(float m) {
        sum = exponentials(t, n, m, static_cast<float>(policy.exponent_bias), p);
        return round_p(policy, p, n, sum);
    }
};

}  // namespace detail

struct TileOutcome {
    TileUpdate update;
    float sum = 0;  // of the unrounded p, fp32
};

// t: [n] scores in log2 units, -inf where masked, n a multiple of 32. p: [n], the rounded numbers
// that PV uses.
[[nodiscard]] QUATT_INLINE TileOutcome softmax_tile(const SoftmaxPolicy& policy, RowState& row,
                                                    std::int64_t interval, const float* t,
                                                    std::int64_t n, float* p) {
    detail::ScoreTile tile{.policy = policy, .t = t, .n = n, .p = p};
    TileOutcome result;
    result.update = row.update(policy, interval, tile);
    result.sum = tile.sum;
    return result;
}

}  // namespace quatt::recipe
