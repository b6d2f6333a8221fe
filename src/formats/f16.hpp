// IEEE binary16: 1 sign, 5 exponent, 10 fraction bits, bias 15.
#pragma once

#include <cstdint>

#include "formats/platform.hpp"
#include "formats/small_float.hpp"

namespace quatt::formats {

// An input and output type, not only a container for codes, so it keeps IEEE behaviour: values
// that round past kMax (from 65520 on) become infinite, and infinities stay. NaN becomes kNan, as
// PTX cvt has it.
struct F16 {
    using Code = std::uint16_t;
    static constexpr int kBits = 16;
    static constexpr float kMax = 65504.0f;
    static constexpr Code kNan = 0x7FFF;
    static constexpr Code kInf = 0x7C00;

    [[nodiscard]] static QUATT_HD constexpr Code encode(float x) noexcept {
        const std::uint32_t bits = bit_cast<std::uint32_t>(x);
        const std::uint32_t magnitude = bits & detail::kF32Abs;
        // 2^16 has the code of infinity.
        const std::uint32_t clamped =
            detail::magnitude_min(magnitude, detail::f32_power_of_two_bits(16));
        const std::uint32_t code =
            detail::encode_magnitude<10, 15>(clamped) | ((bits >> 16) & 0x8000u);
        const bool is_nan = detail::magnitude_less(detail::kF32Inf, magnitude);
        return static_cast<Code>(detail::select(is_nan, kNan, code));
    }

    [[nodiscard]] static QUATT_HD constexpr float decode(Code c) noexcept {
        const std::uint32_t magnitude = c & 0x7FFFu;
        const std::uint32_t special = magnitude >= kInf ? detail::kF32Inf : 0u;
        const std::uint32_t sign = static_cast<std::uint32_t>(c & 0x8000u) << 16;
        return bit_cast<float>(detail::decode_magnitude<10, 15>(magnitude) | special | sign);
    }
};

}  // namespace quatt::formats
