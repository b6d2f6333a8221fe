// Powers of two, as every engine of the host computes them.
#pragma once
#include <cstdint>

#include "formats/platform.hpp"
#include "recipe/simd.hpp"

namespace quatt::recipe {

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

}  // namespace quatt::recipe
