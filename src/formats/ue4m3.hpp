// UE4M3, the scale of NVFP4: E4M3 without a sign, in the low 7 bits.
#pragma once

#include <cstdint>

#include "formats/e4m3.hpp"
#include "formats/platform.hpp"
#include "formats/small_float.hpp"

namespace quatt::formats {

// encode saturates at kMax, infinity included; negative values, -0 and -inf become 0. NaN of
// either sign becomes kNan. Bit 7 of a code is padding: never set by encode, ignored by decode.
struct Ue4m3 {
    using Code = std::uint8_t;
    static constexpr int kBits = 8;
    static constexpr float kMax = 448.0f;
    static constexpr Code kNan = 0x7F;

    [[nodiscard]] static QUATT_HD constexpr Code encode(float x) noexcept {
        const std::uint32_t code = E4m3::encode(x);
        return static_cast<Code>((code & 0x80u) != 0u ? 0u : code);
    }

    [[nodiscard]] static QUATT_HD constexpr float decode(Code c) noexcept {
        return E4m3::decode(static_cast<Code>(c & 0x7Fu));
    }
};

}  // namespace quatt::formats
