// INT8 as the integer recipes use it: symmetric, -127..127.
#pragma once

#include <cstdint>

#include "formats/platform.hpp"
#include "formats/small_float.hpp"

namespace quatt::formats {

// encode rounds to nearest, ties to even, and saturates at +-127, infinities included; -128 is
// never made, so that negation is exact. There is no NaN: NaN encodes to 0, so that a group with
// one carries it in its scale alone. decode takes every code, -128 too.
struct Int8 {
    using Code = std::int8_t;
    static constexpr int kBits = 8;
    static constexpr float kMax = 127.0f;

    [[nodiscard]] static QUATT_HD constexpr Code encode(float x) noexcept {
        constexpr std::uint32_t kMaxBits = bit_cast<std::uint32_t>(127.0f);
        constexpr std::uint32_t kAdder = bit_cast<std::uint32_t>(0x1p23f);
        const std::uint32_t bits = bit_cast<std::uint32_t>(x);
        const std::uint32_t magnitude = bits & detail::kF32Abs;
        const std::uint32_t clamped = detail::magnitude_min(magnitude, kMaxBits);
        // The fp32 adder rounds: see encode_magnitude.
        const float sum = bit_cast<float>(clamped) + bit_cast<float>(kAdder);
        const bool is_nan = detail::magnitude_less(detail::kF32Inf, magnitude);
        const std::uint32_t rounded =
            detail::select(is_nan, 0u, bit_cast<std::uint32_t>(sum) - kAdder);
        const std::int32_t value = static_cast<std::int32_t>(rounded);
        return static_cast<Code>((bits >> 31) != 0u ? -value : value);
    }

    [[nodiscard]] static QUATT_HD constexpr float decode(Code c) noexcept {
        return static_cast<float>(c);
    }
};

}  // namespace quatt::formats
