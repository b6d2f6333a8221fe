// The FP8 accumulator of Hopper's tensor cores, as measured: products and C are cut toward zero at
// 13 fraction bits below the largest exponent among them, then summed exactly.
#pragma once
#include <cstdint>

#include "formats/platform.hpp"

namespace quatt::recipe {

inline constexpr int kHopperFractionBits = 13;
inline constexpr std::int64_t kHopperStep = 32;  // products of one step along K (wgmma m64nNk32)

namespace detail {
[[nodiscard]] inline std::int32_t exponent_bits(float x) {
    return static_cast<std::int32_t>(formats::bit_cast<std::uint32_t>(x) >> 23 & 0xFF);
}
}  // namespace detail

// c + sum of a[i * a_stride] * b[i * b_stride], n <= 32. Products of two 8-bit floats are exact in
// fp32.
[[nodiscard]] inline float hopper_step(float c, const float* a, std::int64_t a_stride,
                                       const float* b, std::int64_t b_stride, std::int64_t n) {
    float terms[kHopperStep + 1];
    terms[n] = c;
    std::int32_t top = detail::exponent_bits(c);
    for (std::int64_t i = 0; i < n; i++) {
        terms[i] = a[i * a_stride] * b[i * b_stride];
        const std::int32_t e = detail::exponent_bits(terms[i]);
        top = e > top ? e : top;
    }
    if (top == 0xFF ||
        top < 40) {  // not finite; or so small that no bit is cut (and scaling would overflow)
        float sum = 0;
        for (std::int64_t i = 0; i <= n; i++) {
            sum += terms[i];
        }
        return sum;
    }
    // Units of 2^(top - 127 - 13): terms are below 2^14 of them, so 33 fit an int.
    const auto power = [](std::int32_t e) {
        return formats::bit_cast<float>(static_cast<std::uint32_t>(e + 127) << 23);
    };
    const std::int32_t shift = kHopperFractionBits - (top - 127);
    const float scale = power(shift);
    std::int32_t sum = 0;
    for (std::int64_t i = 0; i <= n; i++) {
        sum += static_cast<std::int32_t>(terms[i] * scale);
    }
    return static_cast<float>(sum) * power(-shift);
}

}  // namespace quatt::recipe
