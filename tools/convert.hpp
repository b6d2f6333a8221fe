// Tensor elements as floats and back: the one place of the tools that knows their bits.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "error.hpp"
#include "safetensors.hpp"

namespace quatt::tools {

static_assert(std::endian::native == std::endian::little, "safetensors data is little endian");

namespace detail {

// A float format of 1 + E + F bits. With infinity, as IEEE 754 has it; without, all codes but the
// largest are numbers, and encoding saturates (E4M3).
template <int E, int F, bool kInfinity>
struct SmallFloat {
    static constexpr int kBias = (1 << (E - 1)) - 1;
    static constexpr std::uint32_t kAll = (1u << (E + F)) - 1;
    static constexpr std::uint32_t kTop = kInfinity ? kAll >> F << F : kAll - 1;
    static constexpr std::uint32_t kNan = kInfinity ? kTop | 1u << (F - 1) : kAll;

    // Rounds to the nearest, ties to even.
    static std::uint32_t encode(float value) {
        const auto bits = std::bit_cast<std::uint32_t>(value);
        const std::uint32_t sign = bits >> 31 << (E + F);
        const std::uint32_t magnitude = bits & 0x7FFF'FFFFu;
        if (magnitude > 0x7F80'0000u) {
            return sign | kNan;
        }
        if (magnitude >> 23 < 128u - kBias) {  // subnormal: a multiple of 2^(1 - bias - F)
            const double steps = std::ldexp(std::fabs(double{value}), kBias - 1 + F);
            return sign | static_cast<std::uint32_t>(std::nearbyint(steps));
        }
        const std::uint32_t half = (1u << (22 - F)) - 1 + (magnitude >> (23 - F) & 1u);
        const std::uint32_t code = ((magnitude + half) >> (23 - F)) - ((127u - kBias) << F);
        return sign | (code < kTop ? code : kTop);
    }

    static float decode(std::uint32_t code) {
        const std::uint32_t sign = code >> (E + F) << 31;
        const std::uint32_t magnitude = code & kAll;
        std::uint32_t bits = (magnitude << (23 - F)) + ((127u - kBias) << 23);
        if (magnitude > kTop) {
            bits = 0x7FC0'0000u;
        } else if (kInfinity && magnitude == kTop) {
            bits = 0x7F80'0000u;
        } else if (magnitude >> F == 0) {
            bits = std::bit_cast<std::uint32_t>(
                std::ldexp(static_cast<float>(magnitude), 1 - kBias - F));
        }
        return std::bit_cast<float>(sign | bits);
    }
};

// NOTE: memcpy, because the bytes of a file need not be aligned.
template <class Code, class Decode>
[[nodiscard]] std::vector<float> decode_all(std::span<const std::byte> bytes, Decode decode) {
    std::vector<float> out(bytes.size() / sizeof(Code));
    for (std::size_t i = 0; i < out.size(); ++i) {
        Code code;
        std::memcpy(&code, bytes.data() + i * sizeof(Code), sizeof(Code));
        out[i] = decode(code);
    }
    return out;
}

template <class Code, class Encode>
[[nodiscard]] std::vector<std::byte> encode_all(std::span<const float> values, Encode encode) {
    std::vector<std::byte> out(values.size() * sizeof(Code));
    for (std::size_t i = 0; i < values.size(); ++i) {
        const auto code = static_cast<Code>(encode(values[i]));
        std::memcpy(out.data() + i * sizeof(Code), &code, sizeof(Code));
    }
    return out;
}

[[nodiscard]] inline Error no_conversion(Dtype dtype) {
    return Error("no conversion between " + std::string(dtype_name(dtype)) +
                 " and numbers; allowed are F32, F16, BF16 and F8_E4M3");
}

}  // namespace detail

using Bf16 = detail::SmallFloat<8, 7, true>;
using F16 = detail::SmallFloat<5, 10, true>;
using E4m3 = detail::SmallFloat<4, 3, false>;

// The elements of F32, F16, BF16 or F8_E4M3 bytes. Throws Error for other types.
[[nodiscard]] inline std::vector<float> to_floats(Dtype dtype, std::span<const std::byte> bytes) {
    switch (dtype) {
        case Dtype::kF32:
            return detail::decode_all<float>(bytes, [](float value) { return value; });
        case Dtype::kF16:
            return detail::decode_all<std::uint16_t>(bytes, F16::decode);
        case Dtype::kBf16:
            return detail::decode_all<std::uint16_t>(bytes, Bf16::decode);
        case Dtype::kF8E4M3:
            return detail::decode_all<std::uint8_t>(bytes, E4m3::decode);
        default:
            throw detail::no_conversion(dtype);
    }
}

// The inverse: rounded to the nearest, ties to even. E4M3 saturates at +-448.
[[nodiscard]] inline std::vector<std::byte> from_floats(Dtype dtype,
                                                        std::span<const float> values) {
    switch (dtype) {
        case Dtype::kF32:
            return detail::encode_all<float>(values, [](float value) { return value; });
        case Dtype::kF16:
            return detail::encode_all<std::uint16_t>(values, F16::encode);
        case Dtype::kBf16:
            return detail::encode_all<std::uint16_t>(values, Bf16::encode);
        case Dtype::kF8E4M3:
            return detail::encode_all<std::uint8_t>(values, E4m3::encode);
        default:
            throw detail::no_conversion(dtype);
    }
}

}  // namespace quatt::tools
