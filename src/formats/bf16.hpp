// bfloat16: 1 sign, 8 exponent, 7 fraction bits, bias 127.
#pragma once

#include <cstdint>

#include "formats/platform.hpp"
#include "formats/small_float.hpp"

namespace quatt::formats {

// An input and output type, not only a container for codes, so it keeps IEEE behaviour: values
// that round past kMax become infinite, and infinities stay. NaN becomes kNan, as PTX cvt has it.
struct Bf16 {
    using Code = std::uint16_t;
    static constexpr int kBits = 16;
    static constexpr float kMax = 0x1.FEp127f;
    static constexpr Code kNan = 0x7FFF;
    static constexpr Code kInf = 0x7F80;

    [[nodiscard]] static QUATT_HD constexpr Code encode(float x) noexcept {
        const std::uint32_t bits = bit_cast<std::uint32_t>(x);
        const std::uint32_t rounded = (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16;
        const bool is_nan = detail::magnitude_less(detail::kF32Inf, bits & detail::kF32Abs);
        return static_cast<Code>(detail::select(is_nan, kNan, rounded));
    }

    [[nodiscard]] static QUATT_HD constexpr float decode(Code c) noexcept {
        return bit_cast<float>(static_cast<std::uint32_t>(c) << 16);
    }
};

}  // namespace quatt::formats
