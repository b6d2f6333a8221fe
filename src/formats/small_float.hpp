// The arithmetic that the small floating-point formats share: magnitudes only, no specials.
//
// A format is given by its fraction bits and exponent bias; a magnitude code is the exponent field
// followed by the fraction, so codes are ordered as their values are.
#pragma once

#include <cstdint>

#include "formats/platform.hpp"

namespace quatt::formats::detail {

inline constexpr std::uint32_t kF32Abs = 0x7FFF'FFFFu;
inline constexpr std::uint32_t kF32Inf = 0x7F80'0000u;
inline constexpr std::uint32_t kF32Nan = 0x7FC0'0000u;

// fp32 bits of 2^exponent, for exponents of normal numbers.
[[nodiscard]] QUATT_HD constexpr std::uint32_t f32_power_of_two_bits(int exponent) noexcept {
    return static_cast<std::uint32_t>(exponent + 127) << 23;
}

// Comparing as signed integers says the same for bit patterns without a sign, and is what SSE and
// AVX2 have an instruction for.
[[nodiscard]] QUATT_HD constexpr bool magnitude_less(std::uint32_t a, std::uint32_t b) noexcept {
    return static_cast<std::int32_t>(a) < static_cast<std::int32_t>(b);
}

[[nodiscard]] QUATT_HD constexpr std::uint32_t magnitude_min(std::uint32_t a,
                                                             std::uint32_t b) noexcept {
    return magnitude_less(a, b) ? a : b;
}

// condition ? a : b, with both computed.
// NOTE: not written as a conditional because GCC moves floating-point operations into its arms,
// from where -ftrapping-math, its default, does not let it take them out to vectorise a loop.
[[nodiscard]] QUATT_HD constexpr std::uint32_t select(bool condition, std::uint32_t a,
                                                      std::uint32_t b) noexcept {
    const std::uint32_t mask = 0u - static_cast<std::uint32_t>(condition);
    return (a & mask) | (b & ~mask);
}

// Rounds the fp32 magnitude with bits `magnitude` to the nearest code, ties to the even code.
// The caller has clamped it: it is finite, and its code fits.
//
// For subnormal codes the fp32 adder rounds: the sum's last place is the format's smallest value.
// It is one addition and no cancellation, so neither -ffast-math nor flush-to-zero can change it;
// it does expect the default rounding mode.
template <int FractionBits, int Bias>
[[nodiscard]] QUATT_HD constexpr std::uint32_t encode_magnitude(std::uint32_t magnitude) noexcept {
    constexpr int kShift = 23 - FractionBits;
    constexpr std::uint32_t kRebias = static_cast<std::uint32_t>(127 - Bias) << FractionBits;
    constexpr std::uint32_t kMinNormal = f32_power_of_two_bits(1 - Bias);
    constexpr std::uint32_t kAdder = f32_power_of_two_bits(1 - Bias + kShift);

    constexpr std::uint32_t kBelowHalf = (1u << (kShift - 1)) - 1u;
    const std::uint32_t odd = (magnitude >> kShift) & 1u;
    const std::uint32_t normal = ((magnitude + kBelowHalf + odd) >> kShift) - kRebias;
    const float sum = bit_cast<float>(magnitude) + bit_cast<float>(kAdder);
    const std::uint32_t subnormal = bit_cast<std::uint32_t>(sum) - kAdder;
    return select(magnitude_less(magnitude, kMinNormal), subnormal, normal);
}

// fp32 bits of a magnitude code; exact. Specials are the caller's.
template <int FractionBits, int Bias>
[[nodiscard]] QUATT_HD constexpr std::uint32_t decode_magnitude(std::uint32_t code) noexcept {
    constexpr std::uint32_t kRebias = static_cast<std::uint32_t>(127 - Bias) << 23;
    constexpr std::uint32_t kMinSubnormal = f32_power_of_two_bits(1 - Bias - FractionBits);

    const std::uint32_t normal = (code << (23 - FractionBits)) + kRebias;
    // NOTE: multiplied as an integer, not as an fp32 subnormal, which flush-to-zero would lose.
    // Through a signed type: SSE and AVX2 convert only those.
    const float multiple = static_cast<float>(static_cast<std::int32_t>(code));
    const float product = multiple * bit_cast<float>(kMinSubnormal);
    const std::uint32_t subnormal = bit_cast<std::uint32_t>(product);
    return select(magnitude_less(code, 1u << FractionBits), subnormal, normal);
}

}  // namespace quatt::formats::detail
