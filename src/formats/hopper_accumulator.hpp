// The FP8 accumulator of Hopper's tensor cores. A product of two codes has the sum of their
// exponents as its own (its significand is below 4, and not normalised; a subnormal code has the
// exponent -6). Products and C are cut toward zero at 13 fraction bits below the largest of these
// exponents and summed exactly; then the sum is cut at 13 fraction bits of its own. The model of
// exponents is that of MMA-Sim (github.com/microsoft/MMA-Sim, "T-FDPA" with F = 13 and RZ-E8M13 for
// FP8 wgmma); tests/ptx/native compares it with the card, bit for bit.
#pragma once
#include <cstdint>

#include "formats/platform.hpp"

namespace quatt::formats {

inline constexpr int kHopperFractionBits = 13;
inline constexpr std::int64_t kHopperStep = 32;  // products of one step along K (wgmma m64nNk32)

namespace detail {

inline constexpr std::int32_t kExponentMask = 0x7F800000, kBias = 127 << 23;
inline constexpr std::int32_t kNoProduct = -0x40000000;  // of a code 0: with any other below kTiny

// Exponents are fields of a float in place: biased, times 2^23.
[[nodiscard]] inline std::int32_t field(float x) {
    return static_cast<std::int32_t>(bit_cast<std::uint32_t>(x)) & kExponentMask;
}
// Of a code's value, without the bias; of NaN any that does not overflow.
[[nodiscard]] inline std::int32_t code_exponent(float x) {
    constexpr std::int32_t kLeast = -6 * (1 << 23), kMost = 9 << 23;
    const std::int32_t e = field(x) - kBias;
    return e == -kBias ? kNoProduct : e < kLeast ? kLeast : e > kMost ? kMost : e;
}
// Without the bits below 13 of the fraction.
[[nodiscard]] inline float cut(float x) {
    return bit_cast<float>(bit_cast<std::uint32_t>(x) & ~((1u << (23 - kHopperFractionBits)) - 1));
}
// The largest exponent is of C alone and so small that nothing but C counts: no product of E4M3
// codes is between 0 and 2^-18, and below this field scales would overflow.
inline constexpr std::int32_t kTiny = 60 << 23;

// 2^13 below 2^e and its inverse, for the field of 2^e: units of a sum.
[[nodiscard]] inline float units_of(std::int32_t top) {
    return bit_cast<float>(2 * kBias - top + (kHopperFractionBits << 23));
}
[[nodiscard]] inline float unit_of(std::int32_t top) {
    return bit_cast<float>(top - (kHopperFractionBits << 23));
}

}  // namespace detail

// c + sum of a[i * a_stride] * b[i * b_stride], n <= 32, a and b values of E4M3 codes.
[[nodiscard]] inline float hopper_step(float c, const float* a, std::int64_t a_stride,
                                       const float* b, std::int64_t b_stride, std::int64_t n) {
    std::int32_t top = detail::field(c);
    bool is_finite = top != detail::kExponentMask;
    for (std::int64_t i = 0; i < n; i++) {
        const float x = a[i * a_stride], y = b[i * b_stride];
        is_finite = is_finite && detail::field(x) != detail::kExponentMask &&
                    detail::field(y) != detail::kExponentMask;
        const std::int32_t e = detail::code_exponent(x) + detail::code_exponent(y) + detail::kBias;
        top = e > top ? e : top;
    }
    if (!is_finite) {
        float sum = c;
        for (std::int64_t i = 0; i < n; i++) {
            sum += a[i * a_stride] * b[i * b_stride];
        }
        return sum;
    }
    if (top < detail::kTiny) {
        return detail::cut(0.0f + c);
    }
    // Terms are below 2^15 units, so 33 fit an int, and their sum a float.
    const float units = detail::units_of(top);
    std::int32_t sum = static_cast<std::int32_t>(c * units);
    for (std::int64_t i = 0; i < n; i++) {
        sum += static_cast<std::int32_t>(a[i * a_stride] * b[i * b_stride] * units);
    }
    return detail::cut(static_cast<float>(sum)) * detail::unit_of(top);
}

// c[j] = hopper_step(c[j], a, 1, b + j, n, 32) for j < n, bit for bit, where n is a multiple of 8.
// Its loops are over j and have no branches, so that they vectorise.
inline void hopper_row(float* c, const float* a, const float* b, std::int64_t n) {
    constexpr std::int64_t kWidth = 8;
    std::int32_t a_exponent[kHopperStep];
    bool is_a_finite = true;
    for (std::int64_t i = 0; i < kHopperStep; i++) {
        a_exponent[i] = detail::code_exponent(a[i]) + detail::kBias;
        is_a_finite = is_a_finite && detail::field(a[i]) != detail::kExponentMask;
    }
    for (std::int64_t first = 0; first < n; first += kWidth) {
        float scale[kWidth], unit[kWidth];
        std::int32_t top[kWidth], largest[kWidth], units[kWidth];  // largest field of b
        for (std::int64_t j = 0; j < kWidth; j++) {
            largest[j] = top[j] = detail::field(c[first + j]);
        }
        for (std::int64_t i = 0; i < kHopperStep; i++) {
            for (std::int64_t j = 0; j < kWidth; j++) {
                const float y = b[i * n + first + j];
                const std::int32_t sum = a_exponent[i] + detail::code_exponent(y);
                const std::int32_t field = detail::field(y);
                top[j] = sum > top[j] ? sum : top[j];
                largest[j] = field > largest[j] ? field : largest[j];
            }
        }
        bool is_finite = is_a_finite;
        for (std::int64_t j = 0; j < kWidth; j++) {
            is_finite = is_finite && largest[j] != detail::kExponentMask;
            const std::int32_t at = top[j] < detail::kTiny ? detail::kBias : top[j];
            scale[j] = detail::units_of(at);
            unit[j] = detail::unit_of(at);
        }
        if (!is_finite) {
            for (std::int64_t j = first; j < first + kWidth; j++) {
                c[j] = hopper_step(c[j], a, 1, b + j, n, kHopperStep);
            }
            continue;
        }
        for (std::int64_t j = 0; j < kWidth; j++) {
            units[j] = static_cast<std::int32_t>(c[first + j] * scale[j]);
        }
        for (std::int64_t i = 0; i < kHopperStep; i++) {
            for (std::int64_t j = 0; j < kWidth; j++) {
                units[j] += static_cast<std::int32_t>(a[i] * b[i * n + first + j] * scale[j]);
            }
        }
        for (std::int64_t j = 0; j < kWidth; j++) {
            const float sum = detail::cut(static_cast<float>(units[j])) * unit[j];
            c[first + j] = top[j] < detail::kTiny ? detail::cut(0.0f + c[first + j]) : sum;
        }
    }
}

}  // namespace quatt::formats
