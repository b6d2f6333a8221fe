// UE8M0, the scale of the MX formats: a power of two, 2^(code - 127); 0xFF is NaN. It has no zero.
#pragma once

#include <cstdint>

#include "formats/platform.hpp"
#include "formats/small_float.hpp"

namespace quatt::formats {

// encode rounds to the nearest power of two by value (1.5 * 2^e is the midpoint), ties to the
// larger one as ml_dtypes does, and saturates: from above 2^127, infinity included, to 0xFE; below
// 2^-127, zero of either sign included, to 0x00. Negative values have no meaning as a scale and
// become kNan, like NaN.
struct Ue8m0 {
    using Code = std::uint8_t;
    static constexpr int kBits = 8;
    static constexpr float kMax = 0x1p127f;
    static constexpr Code kNan = 0xFF;

    [[nodiscard]] static QUATT_HD constexpr Code encode(float x) noexcept {
        constexpr std::uint32_t kMaxBits = bit_cast<std::uint32_t>(0x1p127f);
        // Between codes 0 and 1 fp32 is subnormal and its exponent field says nothing.
        constexpr std::uint32_t kLowestTie = bit_cast<std::uint32_t>(0x1.8p-127f);
        constexpr std::uint32_t kMinNormal = bit_cast<std::uint32_t>(0x1p-126f);
        const std::uint32_t bits = bit_cast<std::uint32_t>(x);
        const std::uint32_t magnitude = bits & detail::kF32Abs;
        const std::uint32_t clamped = detail::magnitude_min(magnitude, kMaxBits);
        const std::uint32_t normal = (clamped + 0x40'0000u) >> 23;
        const std::uint32_t subnormal = detail::magnitude_less(clamped, kLowestTie) ? 0u : 1u;
        const std::uint32_t code = detail::magnitude_less(clamped, kMinNormal) ? subnormal : normal;
        const bool is_negative = magnitude != 0u && (bits >> 31) != 0u;
        const bool is_nan = detail::magnitude_less(detail::kF32Inf, magnitude);
        return static_cast<Code>(is_nan || is_negative ? std::uint32_t{kNan} : code);
    }

    [[nodiscard]] static QUATT_HD constexpr float decode(Code c) noexcept {
        // 2^-127 is an fp32 subnormal: under flush-to-zero arithmetic on it gives 0.
        constexpr std::uint32_t kLowest = bit_cast<std::uint32_t>(0x1p-127f);
        const std::uint32_t power = static_cast<std::uint32_t>(c) << 23;
        const std::uint32_t finite = c == 0 ? kLowest : power;
        return bit_cast<float>(c == kNan ? detail::kF32Nan : finite);
    }
};

}  // namespace quatt::formats
