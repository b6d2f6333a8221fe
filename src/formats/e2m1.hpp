// FP4 E2M1: 1 sign, 2 exponent, 1 fraction bit, bias 1: 0, 0.5, 1, 1.5, 2, 3, 4, 6 and negatives.
#pragma once

#include <cstdint>

#include "formats/platform.hpp"
#include "formats/small_float.hpp"

namespace quatt::formats {

// A code is the low nibble; decode ignores the high one. encode saturates at +-kMax, infinities
// included. The format has no NaN: NaN encodes to 0 (+0), so that a block with one carries it in
// its scale alone. NOTE: PTX cvt.satfinite gives +6 there.
struct E2m1 {
    using Code = std::uint8_t;
    static constexpr int kBits = 4;
    static constexpr float kMax = 6.0f;

    [[nodiscard]] static QUATT_HD constexpr Code encode(float x) noexcept {
        constexpr std::uint32_t kMaxBits = bit_cast<std::uint32_t>(6.0f);
        const std::uint32_t bits = bit_cast<std::uint32_t>(x);
        const std::uint32_t magnitude = bits & detail::kF32Abs;
        const std::uint32_t clamped = detail::magnitude_min(magnitude, kMaxBits);
        const std::uint32_t code = detail::encode_magnitude<1, 1>(clamped) | ((bits >> 28) & 0x8u);
        const bool is_nan = detail::magnitude_less(detail::kF32Inf, magnitude);
        return static_cast<Code>(detail::select(is_nan, 0u, code));
    }

    [[nodiscard]] static QUATT_HD constexpr float decode(Code c) noexcept {
        const std::uint32_t sign = static_cast<std::uint32_t>(c & 0x8u) << 28;
        return bit_cast<float>(detail::decode_magnitude<1, 1>(c & 0x7u) | sign);
    }

    // Two codes a byte, the element of even index in the low nibble.
    [[nodiscard]] static QUATT_HD constexpr std::uint8_t pack(Code even, Code odd) noexcept {
        return static_cast<std::uint8_t>((even & 0xFu) | ((odd & 0xFu) << 4));
    }

    // The code of element `index` of its row, from the byte index / 2 of that row.
    [[nodiscard]] static QUATT_HD constexpr Code unpack(std::uint8_t packed,
                                                        std::uint64_t index) noexcept {
        return static_cast<Code>((packed >> (4u * (index & 1u))) & 0xFu);
    }
};

}  // namespace quatt::formats
