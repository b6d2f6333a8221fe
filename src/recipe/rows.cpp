#include "recipe/rows.hpp"

#include <array>
#include <cstring>

#include "formats/bf16.hpp"
#include "formats/e2m1.hpp"
#include "formats/e4m3.hpp"
#include "formats/f16.hpp"
#include "formats/int8.hpp"
#include "recipe/sample.hpp"
#include "recipe/simd.hpp"

namespace quatt::recipe {
namespace {

using formats::Bf16;
using formats::E2m1;
using formats::E4m3;
using formats::F16;
using formats::Int8;

std::uint32_t magnitude_bits(float x) {
    return formats::bit_cast<std::uint32_t>(x) & 0x7FFF'FFFFu;
}

// NOTE: 16-bit codes go through a copy: they may be unaligned, and bytes have no type of their own.
constexpr std::int64_t kPiece = 64;

template <class Format>
QUATT_INLINE void decode_16(const std::byte* codes, std::int64_t n, float* out) {
    for (std::int64_t d0 = 0; d0 < n; d0 += kPiece) {
        const std::int64_t count = n - d0 < kPiece ? n - d0 : kPiece;
        std::uint16_t c[kPiece];
        std::memcpy(c, codes + 2 * d0, static_cast<std::size_t>(2 * count));
        for (std::int64_t d = 0; d < count; d++) {
            out[d0 + d] = Format::decode(c[d]);
        }
    }
}

template <class Format>
QUATT_INLINE void encode_16(const float* x, std::int64_t n, std::byte* to) {
    for (std::int64_t d0 = 0; d0 < n; d0 += kPiece) {
        const std::int64_t count = n - d0 < kPiece ? n - d0 : kPiece;
        std::uint16_t c[kPiece];
        for (std::int64_t d = 0; d < count; d++) {
            c[d] = Format::encode(x[d0 + d]);
        }
        std::memcpy(to + 2 * d0, c, static_cast<std::size_t>(2 * count));
    }
}

QUATT_CLONES void decode_bf16(const std::byte* codes, std::int64_t n, float* out) {
    decode_16<Bf16>(codes, n, out);
}
QUATT_CLONES void decode_f16(const std::byte* codes, std::int64_t n, float* out) {
    decode_16<F16>(codes, n, out);
}
QUATT_CLONES void encode_bf16(const float* x, std::int64_t n, std::byte* to) {
    encode_16<Bf16>(x, n, to);
}
QUATT_CLONES void encode_f16(const float* x, std::int64_t n, std::byte* to) {
    encode_16<F16>(x, n, to);
}

QUATT_CLONES void encode_e4m3(const float* x, std::int64_t n, std::byte* to) {
    for (std::int64_t d = 0; d < n; d++) {
        to[d] = static_cast<std::byte>(E4m3::encode(x[d]));
    }
}

QUATT_CLONES void encode_int8(const float* x, std::int64_t n, std::byte* to) {
    for (std::int64_t d = 0; d < n; d++) {
        to[d] = static_cast<std::byte>(Int8::encode(x[d]));
    }
}

QUATT_CLONES void encode_e2m1(const float* x, std::int64_t n, std::byte* to) {
    for (std::int64_t d = 0; d < n; d++) {
        to[d] = static_cast<std::byte>(E2m1::encode(x[d]));
    }
}

QUATT_CLONES void e4m3_as_bf16(const std::byte* codes, std::int64_t n, std::uint16_t* out) {
    for (std::int64_t d = 0; d < n; d++) {
        const float x = E4m3::decode(static_cast<std::uint8_t>(codes[d]));
        out[d] = static_cast<std::uint16_t>(formats::bit_cast<std::uint32_t>(x) >> 16);
    }
}

QUATT_CLONES void int8_as_bf16(const std::byte* codes, std::int64_t n, std::uint16_t* out) {
    for (std::int64_t d = 0; d < n; d++) {
        const float x = Int8::decode(static_cast<std::int8_t>(codes[d]));
        out[d] = static_cast<std::uint16_t>(formats::bit_cast<std::uint32_t>(x) >> 16);
    }
}

}  // namespace

void decode_wide_row(quatt_format wide, const std::byte* codes, std::int64_t n, float* out) {
    (wide == QUATT_FORMAT_BF16 ? decode_bf16 : decode_f16)(codes, n, out);
}

void encode_row(quatt_format format, const float* x, std::int64_t n, std::byte* to) {
    switch (format) {
        case QUATT_FORMAT_F32:
            std::memcpy(to, x, static_cast<std::size_t>(n) * sizeof(float));
            break;
        case QUATT_FORMAT_BF16:
            encode_bf16(x, n, to);
            break;
        case QUATT_FORMAT_F16:
            encode_f16(x, n, to);
            break;
        case QUATT_FORMAT_E4M3:
            encode_e4m3(x, n, to);
            break;
        case QUATT_FORMAT_INT8:
            encode_int8(x, n, to);
            break;
        default:
            encode_e2m1(x, n, to);
    }
}

void narrow_codes_as_bf16(quatt_format narrow, const std::byte* codes, std::int64_t n,
                          std::uint16_t* out) {
    (narrow == QUATT_FORMAT_E4M3 ? e4m3_as_bf16 : int8_as_bf16)(codes, n, out);
}

QUATT_CLONES void subtract_row(float* x, const float* y, std::int64_t n) {
    for (std::int64_t d = 0; d < n; d++) {
        x[d] -= y[d];
    }
}

QUATT_CLONES void scale_row(float* x, float factor, std::int64_t n) {
    for (std::int64_t d = 0; d < n; d++) {
        x[d] *= factor;
    }
}

QUATT_CLONES void multiply_row(float* x, const float* factor, std::int64_t n) {
    for (std::int64_t d = 0; d < n; d++) {
        x[d] *= factor[d];
    }
}

QUATT_CLONES void add_row(float* x, const float* y, std::int64_t n) {
    for (std::int64_t d = 0; d < n; d++) {
        x[d] += y[d];
    }
}

QUATT_CLONES void lower_row(float* x, const float* y, std::int64_t n) {
    for (std::int64_t d = 0; d < n; d++) {
        x[d] = y[d] < x[d] ? y[d] : x[d];
    }
}

QUATT_CLONES void raise_row(float* x, const float* y, std::int64_t n) {
    for (std::int64_t d = 0; d < n; d++) {
        x[d] = y[d] > x[d] ? y[d] : x[d];
    }
}

QUATT_CLONES float folded_squares(const float* x, const float* c, std::int64_t n) {
    constexpr auto kLanes = std::int64_t{kFarLanes}, kChannels = std::int64_t{kFarChannels};
    std::array<float, kFarLanes> lanes{};
    for (std::int64_t first = 0; first < n; first += kLanes * kChannels) {
        for (std::int64_t i = 0; i < kChannels; i++) {
            const std::int64_t left = n - first - i;
            const std::int64_t count = left <= 0 ? 0 : (left + kChannels - 1) / kChannels;
            for (std::int64_t l = 0; l < (count < kLanes ? count : kLanes); l++) {
                const std::int64_t d = first + kChannels * l + i;
                const float s = (x == nullptr ? 0.0f : x[d]) + c[d];
                float& lane = lanes[static_cast<std::size_t>(l)];
                lane = __builtin_fmaf(s, s, lane);
            }
        }
    }
    for (std::size_t step = kFarLanes / 2; step > 0; step /= 2) {
        for (std::size_t l = 0; l < step; l++) {
            lanes[l] += lanes[l + step];
        }
    }
    return lanes[0];
}

QUATT_CLONES void add_to_sums(const float* x, std::int64_t n, double* sums) {
    for (std::int64_t d = 0; d < n; d++) {
        sums[d] += static_cast<double>(x[d]);
    }
}

QUATT_CLONES std::uint32_t largest_magnitude(const float* x, std::int64_t n) {
    std::uint32_t largest = 0;
    for (std::int64_t d = 0; d < n; d++) {
        const std::uint32_t a = magnitude_bits(x[d]);
        largest = a > largest ? a : largest;
    }
    return largest;
}

QUATT_CLONES void raise_magnitudes(const float* x, std::int64_t n, std::uint32_t* largest) {
    for (std::int64_t d = 0; d < n; d++) {
        const std::uint32_t a = magnitude_bits(x[d]);
        largest[d] = a > largest[d] ? a : largest[d];
    }
}

QUATT_CLONES bool raise_beyond(const float* x, const float* inverse, float target, std::int64_t n,
                               std::uint32_t* largest) {
    std::uint32_t any = 0;
    for (std::int64_t d = 0; d < n; d++) {
        const float y = x[d] * inverse[d];
        const std::uint32_t a = y >= -target && y <= target ? 0 : magnitude_bits(x[d]);
        largest[d] = a > largest[d] ? a : largest[d];
        any |= a;
    }
    return any != 0;
}

}  // namespace quatt::recipe
