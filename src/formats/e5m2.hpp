// FP8 E5M2: 1 sign, 5 exponent, 2 fraction bits, bias 15; infinities and NaNs as in IEEE formats.
#pragma once

#include <cstdint>

#include "formats/platform.hpp"
#include "formats/small_float.hpp"

namespace quatt::formats {

// The format has infinities and decode knows them, but encode saturates: what is beyond kMax,
// infinities included, becomes +-kMax, as PTX cvt.satfinite has it. NaN becomes kNan.
struct E5m2 {
    using Code = std::uint8_t;
    static constexpr int kBits = 8;
    static constexpr float kMax = 57344.0f;
    static constexpr Code kNan = 0x7F;
    static constexpr Code kInf = 0x7C;

    [[nodiscard]] static QUATT_HD constexpr Code encode(float x) noexcept {
        constexpr std::uint32_t kMaxBits = bit_cast<std::uint32_t>(57344.0f);
        const std::uint32_t bits = bit_cast<std::uint32_t>(x);
        const std::uint32_t magnitude = bits & detail::kF32Abs;
        const std::uint32_t clamped = detail::magnitude_min(magnitude, kMaxBits);
        const std::uint32_t code =
            detail::encode_magnitude<2, 15>(clamped) | ((bits >> 24) & 0x80u);
        const bool is_nan = detail::magnitude_less(detail::kF32Inf, magnitude);
        return static_cast<Code>(detail::select(is_nan, kNan, code));
    }

    [[nodiscard]] static QUATT_HD constexpr float decode(Code c) noexcept {
        const std::uint32_t magnitude = c & 0x7Fu;
        const std::uint32_t special = magnitude >= kInf ? detail::kF32Inf : 0u;
        const std::uint32_t sign = static_cast<std::uint32_t>(c & 0x80u) << 24;
        return bit_cast<float>(detail::decode_magnitude<2, 15>(magnitude) | special | sign);
    }
};

}  // namespace quatt::formats
