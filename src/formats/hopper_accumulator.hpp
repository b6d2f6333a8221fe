// The FP8 accumulator of Hopper's tensor cores, as measured: products and C are cut toward zero at
// 13 fraction bits below the largest exponent among them and summed exactly; then the sum is cut at
// 13 fraction bits of its own.
#pragma once
#include <cstdint>

#include "formats/platform.hpp"

namespace quatt::formats {

inline constexpr int kHopperFractionBits = 13;
inline constexpr std::int64_t kHopperStep = 32;  // products of one step along K (wgmma m64nNk32)

namespace detail {

inline constexpr std::int32_t kHopperUncut = 40;  // see hopper_step
inline constexpr std::int32_t kNotFinite = 0xFF;

[[nodiscard]] inline std::int32_t exponent_bits(float x) {
    return static_cast<std::int32_t>(bit_cast<std::uint32_t>(x) >> 23 & 0xFF);
}
[[nodiscard]] inline std::int32_t magnitude_bits(float x) {
    return static_cast<std::int32_t>(bit_cast<std::uint32_t>(x) & 0x7FFFFFFFu);
}
// Without the bits below 13 of the fraction.
[[nodiscard]] inline float cut(float x) {
    return bit_cast<float>(bit_cast<std::uint32_t>(x) & ~((1u << (23 - kHopperFractionBits)) - 1));
}
[[nodiscard]] inline float power_of_two(std::int32_t e) {
    return bit_cast<float>(static_cast<std::uint32_t>(e + 127) << 23);
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
    // Not finite; or so small that no bit is cut (and scaling would overflow).
    if (top == detail::kNotFinite || top < detail::kHopperUncut) {
        float sum = 0;
        for (std::int64_t i = 0; i <= n; i++) {
            sum += terms[i];
        }
        return sum;
    }
    // Units of 2^(top - 127 - 13): terms are below 2^14 of them, so 33 fit an int.
    const std::int32_t shift = kHopperFractionBits - (top - 127);
    const float scale = detail::power_of_two(shift);
    std::int32_t sum = 0;
    for (std::int64_t i = 0; i <= n; i++) {
        sum += static_cast<std::int32_t>(terms[i] * scale);
    }
    return detail::cut(static_cast<float>(sum)) * detail::power_of_two(-shift);
}

// c[j] = hopper_step(c[j], a, 1, b + j, n, 32) for j < n, bit for bit, where n is a multiple of 8
// and a and b hold values of E4M3 codes. Its loops are over j and have no branches, so that they
// vectorise.
inline void hopper_row(float* c, const float* a, const float* b, std::int64_t n) {
    constexpr std::int64_t kWidth = 8;
    for (std::int64_t first = 0; first < n; first += kWidth) {
        float terms[kHopperStep][kWidth], sums[kWidth], scale[kWidth], unit[kWidth];
        std::int32_t top[kWidth], units[kWidth];
        for (std::int64_t j = 0; j < kWidth; j++) {
            sums[j] = c[first + j];
            top[j] = detail::magnitude_bits(sums[j]);
        }
        for (std::int64_t i = 0; i < kHopperStep; i++) {
            for (std::int64_t j = 0; j < kWidth; j++) {
                const float term = a[i] * b[i * n + first + j];
                const std::int32_t magnitude = detail::magnitude_bits(term);
                terms[i][j] = term;
                top[j] = magnitude > top[j] ? magnitude : top[j];
            }
        }
        bool is_finite = true;
        for (std::int64_t j = 0; j < kWidth; j++) {
            const std::int32_t exponent = top[j] >> 23;
            is_finite = is_finite && exponent != detail::kNotFinite;
            // Below kHopperUncut all products are 0: those of E4M3 are at least 2^-18.
            const std::int32_t shift =
                exponent < detail::kHopperUncut ? 0 : kHopperFractionBits - (exponent - 127);
            scale[j] = detail::power_of_two(shift);
            unit[j] = detail::power_of_two(-shift);
        }
        if (!is_finite) {
            for (std::int64_t j = first; j < first + kWidth; j++)
                c[j] = hopper_step(c[j], a, 1, b + j, n, kHopperStep);
            continue;
        }
        for (std::int64_t j = 0; j < kWidth; j++)
            units[j] = static_cast<std::int32_t>(sums[j] * scale[j]);
        for (std::int64_t i = 0; i < kHopperStep; i++) {
            for (std::int64_t j = 0; j < kWidth; j++)
                units[j] += static_cast<std::int32_t>(terms[i][j] * scale[j]);
        }
        for (std::int64_t j = 0; j < kWidth; j++) {
            const float sum = detail::cut(static_cast<float>(units[j])) * unit[j];
            c[first + j] = top[j] >> 23 < detail::kHopperUncut ? 0.0f + sums[j] : sum;
        }
    }
}

}  // namespace quatt::formats
