// The law of the softmax reference (docs/recipes.md): when the integer reference m of a row moves,
// and what P is.
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
#include "formats/platform.hpp"
#include "formats/ue4m3.hpp"
#include "recipe/simd.hpp"

namespace quatt::recipe {

inline constexpr float kNoReference = -1e30f;
inline constexpr float kLog2E = 1.4426950408889634f;
inline constexpr float kLn2 = 0.6931471805599453f;

// 2^x within 2 ulp, without a library call so that loops vectorise. NaN stays; results below 2^-149
// are 0.
[[nodiscard]] QUATT_INLINE float exp2_fast(float x) {
    constexpr float kMagic = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
    x = x < -151.0f ? -151.0f : x;
    x = x > 129.0f ? 129.0f : x;
    const float shifted = x + kMagic;
    const float f = x - (shifted - kMagic);  // in [-.5, .5]
    // Taylor series of 2^f = e^(f ln 2): the next term is below 6e-9.
    float p = 1.5252733804059841e-5f;
    p = p * f + 1.5403530393381608e-4f;
    p = p * f + 1.3333558146428443e-3f;
    p = p * f + 9.6181291076284772e-3f;
    p = p * f + 5.5504108664821580e-2f;
    p = p * f + 2.4022650695910071e-1f;
    p = p * f + 6.9314718055994531e-1f;
    p = p * f + 1.0f;
    // Two factors, since 2^-151 and 2^129 are no normal floats.
    const std::int32_t n =
        formats::bit_cast<std::int32_t>(shifted) - formats::bit_cast<std::int32_t>(kMagic);
    const std::int32_t half = n >> 1;
    const auto power = [](std::int32_t e) {
        return formats::bit_cast<float>(static_cast<std::uint32_t>(e + 127) << 23);
    };
    return p * power(half) * power(n - half);
}

// The state of a row between tiles.
struct RowReference {
    float m = kNoReference;
    float highest = kNoReference;
    bool look = false;           // the tile before raised m by look_rise or more
    std::int64_t interval = -1;  // interval of the tile before

    // Moves m; what was summed under the old reference is to be multiplied by the result, an exact
    // power of two.
    [[nodiscard]] float move(float to) {
        const float factor = exp2_fast(m - to);
        m = to;
        highest = std::fmax(highest, to);
        return factor;
    }
};

struct TileOutcome {
    float factor = 1;  // for O and l of the row, before this tile is added
    float sum = 0;     // of the unrounded p, fp32
    bool overflow = false, looked = false, fell = false;
};

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
[[nodiscard]] QUATT_INLINE bool round_p(const quatt_recipe& r, float* p, std::int64_t n,
                                        float sum) {
    const bool round = r.p_format != QUATT_FORMAT_F32;
    int top = 0;
    switch (r.p_overflow) {
        case QUATT_FORMAT_BF16:
            for (std::int64_t j = 0; round && j < n; j++) {
                p[j] = formats::Bf16::decode(formats::Bf16::encode(p[j]));
            }
            return !(sum < 0x1p64f);
        case QUATT_FORMAT_F16:
            for (std::int64_t j = 0; j < n; j++) {
                top |= !(p[j] < 0x1p15f);
            }
            for (std::int64_t j = 0; round && j < n; j++) {
                p[j] = formats::F16::decode(formats::F16::encode(p[j]));
            }
            return top != 0;
        case QUATT_FORMAT_E4M3:
            for (std::int64_t j = 0; j < n; j++) {
                const std::uint8_t c = formats::E4m3::encode(p[j]);
                top |= c >= r.overflow_code;
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
                    top |= code >= r.overflow_code;
                    for (std::int64_t i = 0; round && i < 16; i++) {
                        float& a = p[j0 + i / 4 * 8 + 4 * b + i % 4];
                        a = formats::E2m1::decode(formats::E2m1::encode(a * inv)) * s;
                    }
                }
            }
            return top != 0;
    }
}
}  // namespace detail

// One row meets one tile. t: [n] scores in log2 units, -inf where masked, n a multiple of 32. p:
// [n], the rounded numbers that PV uses.
[[nodiscard]] QUATT_INLINE TileOutcome meet_tile(const quatt_recipe& r, RowReference& row,
                                                 std::int64_t interval, const float* t,
                                                 std::int64_t n, float* p) {
    TileOutcome result;
    const float w = static_cast<float>(r.p_exponent);
    const float rise = static_cast<float>(r.look_rise);
    const float before = row.m;
    if (r.looks != 0 && (row.look || interval != row.interval)) {
        const float x = std::ceil(detail::row_maximum(t, n));
        result.looked = true;
        if (x > row.m) {
            result.factor = row.move(x);
        } else if (x <= row.m - rise &&
                   x >= std::numeric_limits<float>::lowest()) {  // no key in this tile: no news
            result.factor = row.move(std::fmax(x, row.highest - static_cast<float>(r.fall_limit)));
            result.fell = true;
        }
    }
    row.interval = interval;
    result.sum = detail::exponentials(t, n, row.m, w, p);
    result.overflow = detail::round_p(r, p, n, result.sum);
    if (result.overflow) {
        result.factor *= row.move(std::fmax(row.m, std::ceil(detail::row_maximum(t, n))));
        result.sum = detail::exponentials(t, n, row.m, w, p);
        (void)detail::round_p(r, p, n, result.sum);
    }
    row.look = row.m - before >= rise;
    return result;
}

}  // namespace quatt::recipe
