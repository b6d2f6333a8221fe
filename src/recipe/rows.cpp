#include "recipe/rows.hpp"

#include <cstring>

#include "formats/bf16.hpp"
#include "formats/e2m1.hpp"
#include "formats/e4m3.hpp"
#include "formats/f16.hpp"
#include "formats/int8.hpp"
#include "recipe/simd.hpp"

namespace quatt::recipe {
namespace {

using formats::Bf16;
using formats::E2m1;
using formats::E4m3;
using formats::F16;
using formats::Int8;

std::uint32_t magnitude(float x) {
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

QUATT_CLONES void add_to_sums(const float* x, std::int64_t n, double* sums) {
    for (std::int64_t d = 0; d < n; d++) {
        sums[d] += static_cast<double>(x[d]);
    }
}

QUATT_CLONES std::uint32_t largest_magnitude(const float* x, std::int64_t n) {
    std::uint32_t largest = 0;
    for (std::int64_t d = 0; d < n; d++) {
        const std::uint32_t a = magnitude(x[d]);
        largest = a > largest ? a : largest;
    }
    return largest;
}

QUATT_CLONES void raise_magnitudes(const float* x, std::int64_t n, std::uint32_t* largest) {
    for (std::int64_t d = 0; d < n; d++) {
        const std::uint32_t a = magnitude(x[d]);
        largest[d] = a > largest[d] ? a : largest[d];
    }
}

}  // namespace quatt::recipe
