// Plain bodies of the instructions of instructions.hpp, for tests: the operations of Intel's
// manual, number by number, in double. A product of two fp16 or bf16 numbers is exact there, and so
// is its sum with a third wherever that is near a rounding border of fp16 or fp32: all the bits
// that can make a tie lie within 2^53. So the one rounding at the end is the instruction's. The
// payload of a NaN is not modelled. NOTE: compiled for AVX-512, and in an anonymous namespace like
// all of a level.
#pragma once
#include <cstdint>
#include <cstring>

namespace quatt::cpu {
namespace {
namespace software {

// ---------------------------------------------------------------------------------------------
// AVX512-FP16

// The fp16 number nearest to x, ties to even: the sum with 1.5 * 2^(42 + e) has its last place at
// 2^(e - 10), which is fp16's for numbers from 2^e on; below 2^-14 the place stays that of 2^-14.
QUATT_INLINE double nearest_f16(double x) {
    constexpr std::uint64_t kExponent = 0x7FFull << 52, kLeast = (1023ull - 14) << 52;
    const std::uint64_t bits = __builtin_bit_cast(std::uint64_t, x) & kExponent;
    const std::uint64_t e = bits > kLeast ? bits : kLeast;
    const double adder = __builtin_bit_cast(double, e + (42ull << 52) + (1ull << 51));
    const double rounded = (x + adder) - adder;
    const double magnitude = __builtin_fabs(x);
    // 65520 is half way from the largest number to 2^16. NaN stays.
    return __builtin_copysign(magnitude >= 65520 ? __builtin_inf() : __builtin_fabs(rounded), x);
}

struct Floats32 {
    alignas(64) float x[32];
};

QUATT_INLINE Floats32 f16_lanes(I x) {  // exact
    Floats32 f{};
    store(f.x, _mm512_cvtph_ps(_mm512_castsi512_si256(x)));
    store(f.x + 16, _mm512_cvtph_ps(_mm512_extracti64x4_epi64(x, 1)));
    return f;
}

QUATT_INLINE I fma_f16(I a, I b, I c) {
    const Floats32 x = f16_lanes(a), y = f16_lanes(b), z = f16_lanes(c);
    Floats32 r{};
    for (int i = 0; i < 32; i++) {
        r.x[i] = static_cast<float>(
            nearest_f16(static_cast<double>(x.x[i]) * static_cast<double>(y.x[i]) +
                        static_cast<double>(z.x[i])));
    }
    const __m256i low = _mm512_cvtps_ph(load(r.x), _MM_FROUND_TO_NEAREST_INT);  // exact
    const __m256i high = _mm512_cvtps_ph(load(r.x + 16), _MM_FROUND_TO_NEAREST_INT);
    return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}

// ---------------------------------------------------------------------------------------------
// AMX

struct Tile {
    alignas(64) unsigned char row[16][64];
};
struct Tiles {
    TileConfig config;
    Tile tile[8];
};
thread_local Tiles tiles{};

QUATT_INLINE void undefined_unless(bool allowed) {  // #UD
    if (!allowed) {
        __builtin_trap();
    }
}

QUATT_INLINE Tile& configured(int t) {
    undefined_unless(tiles.config.palette == 1 && tiles.config.rows[t] != 0 &&
                     tiles.config.row_bytes[t] != 0);
    return tiles.tile[t];
}

// C [m, n] = C + A [m, k] . B [k, n], in units of 4 bytes: the shapes have to agree.
QUATT_INLINE void check_shapes(int c, int a, int b) {
    const TileConfig& s = tiles.config;
    undefined_unless(s.row_bytes[c] == s.row_bytes[b] && s.row_bytes[a] == 4 * s.rows[b] &&
                     s.rows[c] == s.rows[a] && c != a && a != b && b != c);
}

QUATT_INLINE void tile_configure(const TileConfig& config) {
    for (int t = 0; t < 8; t++) {
        undefined_unless(config.rows[t] <= 16 && config.row_bytes[t] <= 64);
    }
    undefined_unless(config.palette == 1 && config.start_row == 0);
    tiles = Tiles{};
    tiles.config = config;
}

QUATT_INLINE void tile_release() {
    tiles = Tiles{};
}

QUATT_INLINE void tile_zero(int to) {
    configured(to) = Tile{};
}

QUATT_INLINE void tile_load(int to, const void* from, std::int64_t stride_bytes) {
    Tile& t = configured(to);
    t = Tile{};
    for (int m = 0; m < tiles.config.rows[to]; m++) {
        std::memcpy(t.row[m], static_cast<const char*>(from) + m * stride_bytes,
                    tiles.config.row_bytes[to]);
    }
}

QUATT_INLINE void tile_store(int from, void* to, std::int64_t stride_bytes) {
    const Tile& t = configured(from);
    for (int m = 0; m < tiles.config.rows[from]; m++) {
        std::memcpy(static_cast<char*>(to) + m * stride_bytes, t.row[m],
                    tiles.config.row_bytes[from]);
    }
}

template <class T>
struct Row {  // of a tile, as numbers
    T x[64 / sizeof(T)];
};
template <class T>
QUATT_INLINE Row<T> row_of(const Tile& t, int m) {
    Row<T> row{};
    std::memcpy(row.x, t.row[m], sizeof row.x);
    return row;
}

QUATT_INLINE void tile_dot_bytes(int c, int a, int b) {
    Tile& to = configured(c);
    const Tile &left = configured(a), &right = configured(b);
    check_shapes(c, a, b);
    for (int m = 0; m < tiles.config.rows[c]; m++) {
        auto sum = row_of<std::uint32_t>(to, m);  // they wrap
        const auto x = row_of<std::uint8_t>(left, m);
        for (int k = 0; k < tiles.config.rows[b]; k++) {
            const auto y = row_of<std::int8_t>(right, k);
            for (int n = 0; n < 16; n++) {
                for (int i = 0; i < 4; i++) {
                    sum.x[n] += static_cast<std::uint32_t>(x.x[4 * k + i] * y.x[4 * n + i]);
                }
            }
        }
        std::memcpy(to.row[m], sum.x, sizeof sum.x);
    }
}

QUATT_INLINE float zero_if_subnormal(float x) {
    return __builtin_fabsf(x) < 0x1p-126f ? __builtin_copysignf(0.0f, x) : x;
}

// To fp32, 0 where the result, rounded to 24 bits, is below the least normal number.
QUATT_INLINE float flushed(double x) {
    const auto rounded = static_cast<float>(x);
    return __builtin_fabs(x) < 0x1p-126 - 0x1p-151 ? __builtin_copysignf(0.0f, rounded) : rounded;
}

QUATT_INLINE float fma_flushed(float a, float b, float c) {
    return flushed(static_cast<double>(zero_if_subnormal(a)) *
                       static_cast<double>(zero_if_subnormal(b)) +
                   static_cast<double>(zero_if_subnormal(c)));
}
QUATT_INLINE float add_flushed(float a, float b) {
    return flushed(static_cast<double>(zero_if_subnormal(a)) +
                   static_cast<double>(zero_if_subnormal(b)));
}

QUATT_INLINE float from_bf16(std::uint16_t x) {
    return __builtin_bit_cast(float, static_cast<std::uint32_t>(x) << 16);
}

QUATT_INLINE void tile_dot_bf16(int c, int a, int b) {
    Tile& to = configured(c);
    const Tile &left = configured(a), &right = configured(b);
    check_shapes(c, a, b);
    for (int m = 0; m < tiles.config.rows[c]; m++) {
        auto sum = row_of<float>(to, m);
        const auto x = row_of<std::uint16_t>(left, m);
        float first[16]{}, second[16]{};
        for (int k = 0; k < tiles.config.rows[b]; k++) {
            const auto y = row_of<std::uint16_t>(right, k);
            for (int n = 0; n < 16; n++) {
                first[n] = fma_flushed(from_bf16(x.x[2 * k]), from_bf16(y.x[2 * n]), first[n]);
                second[n] =
                    fma_flushed(from_bf16(x.x[2 * k + 1]), from_bf16(y.x[2 * n + 1]), second[n]);
            }
        }
        for (int n = 0; n < 16; n++) {
            sum.x[n] = add_flushed(sum.x[n], add_flushed(first[n], second[n]));
        }
        std::memcpy(to.row[m], sum.x, sizeof sum.x);
    }
}

}  // namespace software
}  // namespace
}  // namespace quatt::cpu
