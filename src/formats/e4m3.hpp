// FP8 E4M3 (the "fn" kind): 1 sign, 4 exponent, 3 fraction bits, bias 7, no infinity.
#pragma once

#include <cstdint>

#include "formats/platform.hpp"
#include "formats/small_float.hpp"

namespace quatt::formats {

// encode saturates: what is beyond kMax, infinities included, becomes +-kMax, as PTX
// cvt.satfinite has it. NaN becomes kNan; decode also takes 0xFF as NaN.
struct E4m3 {
    using Code = std::uint8_t;
    static constexpr int kBits = 8;
    static constexpr float kMax = 448.0f;
    static constexpr Code kNan = 0x7F;

    [[nodiscard]] static QUATT_HD constexpr Code encode(float x) noexcept {
        constexpr std::uint32_t kMaxBits = bit_cast<std::uint32_t>(448.0f);
        const std::uint32_t bits = bit_cast<std::uint32_t>(x);
        const std::uint32_t magnitude = bits & detail::kF32Abs;
        const std::uint32_t clamped = detail::magnitude_min(magnitude, kMaxBits);
        const std::uint32_t code = detail::encode_magnitude<3, 7>(clamped) | ((bits >> 24) & 0x80u);
        const bool is_nan = detail::magnitude_less(detail::kF32Inf, magnitude);
        return static_cast<Code>(detail::select(is_nan, kNan, code));
    }

    [[nodiscard]] static QUATT_HD constexpr float decode(Code c) noexcept {
        const std::uint32_t magnitude = c & 0x7Fu;
        const std::uint32_t special = magnitude == kNan ? detail::kF32Nan : 0u;
        const std::uint32_t sign = static_cast<std::uint32_t>(c & 0x80u) << 24;
        return bit_cast<float>(detail::decode_magnitude<3, 7>(magnitude) | special | sign);
    }
};

}  // namespace quatt::formats
