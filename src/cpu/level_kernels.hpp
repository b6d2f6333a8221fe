// One source of all levels: levels/*.cpp include it, compiled for their instruction sets, with
// QUATT_LEVEL the name of their table.
#pragma once
#include <cstring>
#include <type_traits>

#include "cpu/instructions.hpp"
#include "cpu/kernels.hpp"
#include "cpu/lanes.hpp"
#if defined(QUATT_HAVE_AMX)
#include "cpu/tile_products.hpp"
#endif

namespace quatt::cpu {
namespace {

// ---------------------------------------------------------------------------------------------
// Products

// A Sum has kParts vectors of fp32 numbers, columns of units that lie side by side.
struct MacF32 {
    using Sum = F;
    static constexpr int kParts = 1;
    static constexpr bool kOffset = false;
    QUATT_INLINE static Sum zero() { return all(0.0f); }
    QUATT_INLINE static Sum mac(Sum s, I a, I b) { return mul_add(as_floats(a), as_floats(b), s); }
    QUATT_INLINE static F floats(Sum s, int) { return s; }
};

#if defined(__AVX512BF16__)
// NOTE: the instruction takes subnormal operands and sums for 0; products of bf16 numbers are exact
// and the two sums are rounded to nearest.
struct MacBf16 {
    using Sum = F;
    static constexpr int kParts = 1;
    static constexpr bool kOffset = false;
    QUATT_INLINE static Sum zero() { return all(0.0f); }
    QUATT_INLINE static Sum mac(Sum s, I a, I b) {
        return _mm512_dpbf16_ps(s, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
    }
    QUATT_INLINE static F floats(Sum s, int) { return s; }
};
#endif

#if defined(__AVX512VNNI__)
struct MacInt8 {
    using Sum = I;
    static constexpr int kParts = 1;
    static constexpr bool kOffset = true;  // sums start at what the tile begins with
    // NOTE: not the intrinsic, whose sums GCC 12 copies twice an instruction.
    QUATT_INLINE static Sum mac(Sum s, I a, I b) {
        asm("vpdpbusd %2, %1, %0" : "+v"(s) : "v"(a), "v"(b));
        return s;
    }
    QUATT_INLINE static F floats(Sum s, int) { return to_floats(s); }
};
#endif

#if defined(QUATT_HAVE_FP16)
// P times V * 2^-8, both of E4M3: fp16 sums of a tile's 64 keys.
// - No overflow. A code of P that stays is at most 416: 0x7E overflows, and what is made again is
//   at most 2^6. V * 2^-8 is at most 1.75. 64 * 416 * 1.75 = 46592, and 64 roundings up of 2^-11
//   make 48100 of it, below 65504.
// - Error. Products are exact and each sum is rounded once, by at most 2^-11 of itself, or by 2^-25
//   where it is below 2^-14. So a tile errs by at most 64 * 2^-11 of its sum of |p v| (and 64 *
//   2^-17, in units of V's codes), and at random by some 2^-11 sqrt(64 / 6) of what it adds:
//   1.6e-3, beside the 3.6e-2 of E4M3 itself (docs/perf/cpu.md: measured).
struct MacF16 {
    using Sum = I;  // 32 fp16 numbers
    static constexpr int kParts = 2;
    static constexpr bool kOffset = false;
    QUATT_INLINE static Sum zero() { return all(0); }
    QUATT_INLINE static Sum mac(Sum s, I a, I b) { return fma_f16(a, b, s); }
    QUATT_INLINE static F floats(Sum s, int part) {
        const __m256i half =
            part == 0 ? _mm512_castsi512_si256(s) : _mm512_extracti64x4_epi64(s, 1);
        return mul(_mm512_cvtph_ps(half), all(256.0f));
    }
};
#endif

// kRowStep rows x kVectors vectors of columns, sums in registers: AVX-512 has 32 of them and uses
// 16 for sums, 4 for b, 1 for a; AVX2 has 16 and uses 8, 2, 1.
template <class Mac, int kVectors>
QUATT_INLINE void multiply(const std::uint32_t* a, std::int64_t a_stride, const std::uint32_t* b,
                           std::int64_t b_stride, std::int64_t steps,
                           typename Mac::Sum (&sum)[kRowStep][kVectors]) {
    std::int64_t k = 0;
    do {
        I column[kVectors];
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; v++) {
            column[v] = load(b + k * b_stride + v * kLanes);
        }
#pragma GCC unroll 4
        for (int r = 0; r < kRowStep; r++) {
            std::int32_t unit;
            std::memcpy(&unit, a + r * a_stride + k, sizeof unit);
            const I row = all(unit);
#pragma GCC unroll 4
            for (int v = 0; v < kVectors; v++) {
                sum[r][v] = Mac::mac(sum[r][v], row, column[v]);
            }
        }
    } while (++k < steps);
}

inline constexpr int kMostVectors = kLanes == 16 ? 4 : 2;

template <class Mac>
void qk_product(const std::uint32_t* q, const std::uint32_t* k, std::int64_t rows,
                std::int64_t steps, float* c) {
    const std::uint32_t* tile = k + (Mac::kOffset ? kTile : 0);
    for (std::int64_t r0 = 0; r0 < rows; r0 += kRowStep) {
        for (std::int64_t j = 0; j < kTile; j += kMostVectors * kLanes) {
            typename Mac::Sum sum[kRowStep][kMostVectors];
            for (auto& row : sum) {
                for (int v = 0; v < kMostVectors; v++) {
                    if constexpr (Mac::kOffset) {
                        row[v] = load(k + j + v * kLanes);
                    } else {
                        row[v] = Mac::zero();
                    }
                }
            }
            multiply<Mac, kMostVectors>(q + r0 * steps, steps, tile + j, kTile, steps, sum);
            for (std::int64_t r = 0; r < kRowStep; r++) {
                for (int v = 0; v < kMostVectors; v++) {
                    store(c + (r0 + r) * kTile + j + v * kLanes, Mac::floats(sum[r][v], 0));
                }
            }
        }
    }
}

template <class Mac, int kVectors>
QUATT_INLINE void values_of(const std::uint32_t* p, std::int64_t steps, const std::uint32_t* v,
                            std::int64_t dv, const float* factor, float* o) {
    typename Mac::Sum sum[kRowStep][kVectors];
    for (auto& row : sum) {
        for (auto& x : row) {
            x = Mac::zero();
        }
    }
    multiply<Mac, kVectors>(p, steps, v, dv / Mac::kParts, steps, sum);
#pragma GCC unroll 4
    for (std::int64_t r = 0; r < kRowStep; r++) {
#pragma GCC unroll 8
        for (int i = 0; i < kVectors * Mac::kParts; i++) {
            float* to = o + r * dv + i * kLanes;
            const F added = Mac::floats(sum[r][i / Mac::kParts], i % Mac::kParts);
            store(to, mul_add(load(to), all(factor[r]), added));
        }
    }
}

// The 64 keys of the tile are summed on their own before they join O.
template <class Mac, std::int64_t kSteps>
void pv_product(const std::uint32_t* p, const std::uint32_t* v, std::int64_t rows, std::int64_t dv,
                const float* factor, float* o) {
    constexpr std::int64_t kColumns = kLanes * Mac::kParts;  // of a vector
    for (std::int64_t d = 0; d < dv;) {
        const std::int64_t left = (dv - d) / kColumns;
        const std::uint32_t* b = v + d / Mac::kParts;
        const int vectors = left >= kMostVectors ? kMostVectors : left >= 2 ? 2 : 1;
        for (std::int64_t r = 0; r < rows; r += kRowStep) {
            const std::uint32_t* a = p + r * kSteps;
            float* to = o + r * dv + d;
            if (vectors == kMostVectors) {
                values_of<Mac, kMostVectors>(a, kSteps, b, dv, factor + r, to);
            } else if (vectors == 2) {
                values_of<Mac, 2>(a, kSteps, b, dv, factor + r, to);
            } else {
                values_of<Mac, 1>(a, kSteps, b, dv, factor + r, to);
            }
        }
        d += vectors * kColumns;
    }
}

// ---------------------------------------------------------------------------------------------
// Softmax

constexpr int kVectors = kTile / kLanes;  // of a row's scores

// Vectors that are worked on in step: the instructions of one would wait for each other.
constexpr int kInStep = 4;

template <class Do>
QUATT_INLINE void in_step(Do&& f) {
#pragma GCC unroll 4
    for (int v = 0; v < kInStep; v++) {
        f(v);
    }
}

// NOTE: an empty instruction that needs all of them: GCC otherwise undoes the step and puts the
// chains of dependent instructions one after the other, longer than the processor looks ahead.
QUATT_INLINE void keep_step(F* x) {
    static_assert(kInStep == 4);
    asm("" : "+v"(x[0]), "+v"(x[1]), "+v"(x[2]), "+v"(x[3]));
}

// recipe::exp2_fast, the same operations: the same bits (what it makes of x above 129 is infinite
// here too).
QUATT_INLINE void exp2_in_step(F* x) {
    constexpr float kSeries[] = {1.5403530393381608e-4f,
                                 1.3333558146428443e-3f,
                                 9.6181291076284772e-3f,
                                 5.5504108664821580e-2f,
                                 2.4022650695910071e-1f,
                                 6.9314718055994531e-1f,
                                 1.0f};
    F n[kInStep], f[kInStep], p[kInStep];
    in_step([&](int v) { x[v] = max(all(-151.0f), x[v]); });
    in_step([&](int v) { n[v] = nearest(x[v]); });
    in_step([&](int v) { f[v] = sub(x[v], n[v]); });
    keep_step(f);
    in_step([&](int v) { p[v] = mul(all(1.5252733804059841e-5f), f[v]); });
#pragma GCC unroll 7
    for (int i = 0; i < 7; i++) {
        in_step([&](int v) { p[v] = add(p[v], all(kSeries[i])); });
        keep_step(p);
        if (i < 6) {
            in_step([&](int v) { p[v] = mul(p[v], f[v]); });
        }
    }
    in_step([&](int v) { x[v] = times_power(p[v], n[v]); });
    keep_step(x);
}

// To nearest even with so many fraction bits, or to a multiple of 2^-kFraction of `least`, a power
// of two, below it: the sum with p's own power of two, times 2^(23 - kFraction), has its last place
// there. For p that is not negative.
template <int kFraction>
QUATT_INLINE F round_to(F p, std::int32_t least) {
    const I exponent = bits_and(as_ints(p), all(0x7F800000));
    const F adder = as_floats(add(max(exponent, all(least)), all((23 - kFraction) << 23)));
    return sub(add(p, adder), adder);
}

// Rounding of a row's P to a format. What decides on overflow is returned as bits, the largest a
// lane: nothing is negative, so larger bits are larger numbers, NaN above all.
struct RoundBf16 {
    static constexpr std::int32_t kOverflow = 0x5C800000;  // 2^58: 64 of them are a sum of 2^64
    QUATT_INLINE static F round(F p) {
        const I bits = as_ints(p);
        const I odd = bits_and(shift_right<16>(bits), all(1));
        return as_floats(
            bits_and(add(add(bits, odd), all(0x7FFF)), all(static_cast<std::int32_t>(0xFFFF0000))));
    }
    template <Product kAs>
    QUATT_INLINE static I round_row(const F (&p)[kVectors], F (&rounded)[kVectors]) {
        I top = all(0);
        for (int v = 0; v < kVectors; v++) {
            rounded[v] = kAs == Product::kBf16 ? p[v] : round(p[v]);  // store_p rounds pairs
            top = max_unsigned(top, as_ints(p[v]));
        }
        return top;
    }
};

struct RoundF16 {
    static constexpr std::int32_t kOverflow = 0x47000000;  // 2^15
    template <Product kAs>
    QUATT_INLINE static I round_row(const F (&p)[kVectors], F (&rounded)[kVectors]) {
        I top = all(0);
        for (int v = 0; v < kVectors; v++) {
            rounded[v] = round_f16(p[v]);
            top = max_unsigned(top, as_ints(rounded[v]));
        }
        return top;
    }
};

constexpr std::int32_t kE4m3Least = 0x3C800000;  // 2^-6

struct RoundE4m3 {
    static constexpr std::int32_t kOverflow = 0x43E00000;  // 448, code 0x7E
    template <Product kAs>
    QUATT_INLINE static I round_row(const F (&p)[kVectors], F (&rounded)[kVectors]) {
        I top = all(0);
        for (int v = 0; v < kVectors; v++) {
            rounded[v] = round_to<3>(p[v], kE4m3Least);
            top = max_unsigned(top, as_ints(rounded[v]));
        }
        return top;
    }
};

struct RoundE2m1 {
    static constexpr std::int32_t kOverflow = RoundE4m3::kOverflow;  // of a scale
    template <Product kAs>
    QUATT_INLINE static I round_row(const F (&p)[kVectors], F (&rounded)[kVectors]) {
        constexpr int kGroup = 32 / kLanes;        // vectors of the 32 keys of two scales
        constexpr std::int32_t kOne = 0x3F800000;  // below it E2M1 has multiples of a half
        I top = all(0);
        for (int g = 0; g < kVectors; g += kGroup) {
            I bits[kGroup];
            for (int v = 0; v < kGroup; v++) {
                bits[v] = as_ints(p[g + v]);
            }
            const F amax = as_floats(group_maximum(bits));
            const F scale = round_to<3>(mul(amax, all(1.0f / 6.0f)), kE4m3Least);
            const F inverse = reciprocal(scale);
            for (int v = 0; v < kGroup; v++) {
                const F code = min(round_to<1>(mul(p[g + v], inverse), kOne), all(6.0f));
                rounded[g + v] = mul(code, scale);
            }
            top = max_unsigned(top, as_ints(scale));
        }
        return top;
    }
};

template <class Round>
inline constexpr bool kIsBf16 = false;
template <>
inline constexpr bool kIsBf16<RoundBf16> = true;

template <Product kAs>
using As = std::integral_constant<Product, kAs>;

QUATT_INLINE void store_p(std::uint32_t* to, const F (&p)[kVectors], As<Product::kF32>) {
    for (int v = 0; v < kVectors; v++) {
        store(reinterpret_cast<float*>(to) + v * kLanes, p[v]);
    }
}
#if defined(__AVX512BF16__)
QUATT_INLINE void store_p(std::uint32_t* to, const F (&p)[kVectors], As<Product::kBf16>) {
    for (int v = 0; v < kVectors; v += 2) {
        const auto pair = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(p[v + 1], p[v]));
        _mm512_storeu_si512(to + v * kLanes / 2, pair);
    }
}
#endif
#if defined(QUATT_HAVE_FP16)
QUATT_INLINE void store_p(std::uint32_t* to, const F (&p)[kVectors], As<Product::kF16>) {
    const I twice = _mm512_or_si512(lane_numbers(), shift_left<16>(lane_numbers()));  // 0 0 1 1 ...
    for (int v = 0; v < kVectors; v++) {
        const __m256i half = _mm512_cvtps_ph(p[v], _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
        const I p16 = _mm512_permutexvar_epi16(twice, _mm512_castsi256_si512(half));
        _mm512_storeu_si512(to + v * kLanes, p16);
    }
}
#endif

struct Outcome {
    F sum;  // of the unrounded p, a lane each
    bool overflow;
};

// p = 2^(t - m + w), rounded, to memory.
template <class Round, Product kAs>
QUATT_INLINE Outcome make_p(const F (&t)[kVectors], float m, float w, std::uint32_t* to) {
    F p[kVectors], rounded[kVectors];
    for (int v = 0; v < kVectors; v++) {
        p[v] = add(sub(t[v], all(m)), all(w));
    }
    for (int v = 0; v < kVectors; v += kInStep) {
        exp2_in_step(p + v);
    }
    Outcome result{p[0], false};
    for (int v = 1; v < kVectors; v++) {
        result.sum = add(result.sum, p[v]);
    }
    const I top = Round::template round_row<kAs>(p, rounded);
    if constexpr (kIsBf16<Round>) {
        // Overflow is a matter of the row's sum, which is taken only where a p says that it may be.
        result.overflow = any_reaches(top, Round::kOverflow) && !(sum(result.sum) < 0x1p64f);
    } else {
        result.overflow = any_reaches(top, Round::kOverflow);
    }
    store_p(to, rounded, As<kAs>{});
    return result;
}

// The largest t, NaN ignored; -inf where there is none.
QUATT_INLINE float row_maximum(const F (&t)[kVectors]) {
    F x = all(-__builtin_inff());
    for (int v = 0; v < kVectors; v++) {
        x = max(t[v], x);
    }
    float lane[kLanes], top = -__builtin_inff();
    store(lane, x);
    for (const float a : lane) {
        top = a > top ? a : top;
    }
    return top;
}

// t = product * scales, -inf where the row does not see the key.
QUATT_INLINE void load_scores(const SoftmaxTile& m, std::int64_t i, F (&t)[kVectors]) {
    const F key_factor = all(m.key_factor), row_factor = all(m.row_factor[i]);
    for (int v = 0; v < kVectors; v++) {
        t[v] = load(m.t + i * kTile + v * kLanes);
    }
    if (m.mean_term != nullptr) {
        for (int v = 0; v < kVectors; v++) {
            t[v] = add(t[v], load(m.mean_term + v * kLanes));
        }
    }
    for (int v = 0; v < kVectors; v++) {
        t[v] = mul(mul(t[v], key_factor), row_factor);
    }
    if (m.first[i] > 0 || m.last[i] < kTile) {
        const F hidden = all(-__builtin_inff());
        for (int v = 0; v < kVectors; v++) {
            const I lane = add(lane_numbers(), all(v * kLanes));
            t[v] = select(greater(all(m.first[i]), lane), hidden, t[v]);
            t[v] = select(greater(all(m.last[i]), lane), t[v], hidden);
        }
    }
}

// A row's scores of a tile, as lazy softmax asks for them.
template <class Round, Product kAs>
struct RowTile {
    const F (&t)[kVectors];
    float w;
    std::uint32_t* p;
    F sum;  // of the unrounded p, a lane each

    [[nodiscard]] QUATT_INLINE float maximum() const { return row_maximum(t); }
    [[nodiscard]] QUATT_INLINE bool make_p(float m) {
        const Outcome made = cpu::make_p<Round, kAs>(t, m, w, p);
        sum = made.sum;
        return made.overflow;
    }
};

// A row whose running max may move, or has to.
template <class Round, Product kAs>
[[gnu::noinline]] void update_row(const SoftmaxTile& m, std::int64_t i, std::uint32_t* p) {
    F t[kVectors];
    load_scores(m, i, t);
    const float w = static_cast<float>(m.policy->exponent_bias);
    RowTile<Round, kAs> tile{.t = t, .w = w, .p = p, .sum = all(0.0f)};
    const float rescale = m.row[i].update(*m.policy, m.interval, tile).rescale;
    float* l = m.l + i * kSumLanes;
    store(l, mul_add(load(l), all(rescale), tile.sum));
    m.factor[i] = rescale;
}

template <class Round, Product kAs>
void softmax_rows(const SoftmaxTile& m) {
    constexpr std::int64_t kUnits = kTile / elements(kAs);
    const float w = static_cast<float>(m.policy->exponent_bias);
    for (std::int64_t i = 0; i < m.rows; i++) {
        std::uint32_t* p = m.p + i * kUnits;
        const recipe::RowState& row = m.row[i];
        if (m.first[i] >= m.last[i]) {  // a tile without a key changes nothing
            std::memset(p, 0, kUnits * sizeof *p);
            m.factor[i] = 1;
            continue;
        }
        // The common path: nothing moves. A row that overflows is done again; so is one without a
        // max, whose P overflows whatever its scores.
        if (row.is_settled(m.interval)) [[likely]] {
            F t[kVectors];
            load_scores(m, i, t);
            const Outcome made = make_p<Round, kAs>(t, row.m, w, p);
            if (!made.overflow) [[likely]] {
                float* l = m.l + i * kSumLanes;
                store(l, add(load(l), made.sum));
                m.factor[i] = 1;
                continue;
            }
        }
        update_row<Round, kAs>(m, i, p);
    }
}

template <Product kAs>
void softmax_tile(const SoftmaxTile& m) {
    switch (m.policy->p_format) {
        case QUATT_FORMAT_BF16:
            if constexpr (kAs != Product::kF16) {
                softmax_rows<RoundBf16, kAs>(m);
            }
            break;
        case QUATT_FORMAT_F16:
            if constexpr (kAs == Product::kF32) {
                softmax_rows<RoundF16, kAs>(m);
            }
            break;
        case QUATT_FORMAT_E2M1:
            if constexpr (kAs != Product::kF16) {
                softmax_rows<RoundE2m1, kAs>(m);
            }
            break;
        default:
            softmax_rows<RoundE4m3, kAs>(m);
            break;
    }
}

// ---------------------------------------------------------------------------------------------
// Tiles of 16-bit numbers

void widen_bf16_tile(const std::uint16_t* from, std::int64_t count, float* to) {
    for (std::int64_t i = 0; i < count; i += kLanes) {
        store(to + i, widen_bf16(from + i));
    }
}

void widen_f16_tile(const std::uint16_t* from, std::int64_t count, float* to) {
    for (std::int64_t i = 0; i < count; i += kLanes) {
        store(to + i, widen_f16(from + i));
    }
}

// ---------------------------------------------------------------------------------------------
// The table

[[maybe_unused]] void nothing() {}

}  // namespace

#if defined(QUATT_HAVE_AMX)
#define QUATT_AROUND kTileRows, kTileRows, configure_tiles, release_tiles
#define QUATT_INT8_QK tile_scores<DotInt8>
#define QUATT_BF16_QK tile_scores<DotBf16>
#define QUATT_BF16_PV tile_values
#else
#define QUATT_AROUND kRowStep, 1, nothing, nothing
#if defined(__AVX512VNNI__)
#define QUATT_INT8_QK qk_product<MacInt8>
#else
#define QUATT_INT8_QK nullptr
#endif
#if defined(__AVX512BF16__)
#define QUATT_BF16_QK qk_product<MacBf16>
#define QUATT_BF16_PV pv_product<MacBf16, kTile / 2>
#else
#define QUATT_BF16_QK nullptr
#define QUATT_BF16_PV nullptr
#endif
#endif
#if defined(__AVX512BF16__)
#define QUATT_BF16_MEET softmax_tile<Product::kBf16>
#else
#define QUATT_BF16_MEET nullptr
#endif
#if defined(QUATT_HAVE_FP16)
#define QUATT_F16_PV pv_product<MacF16, kTile>
#define QUATT_F16_MEET softmax_tile<Product::kF16>
#else
#define QUATT_F16_PV nullptr
#define QUATT_F16_MEET nullptr
#endif

const Kernels QUATT_LEVEL = {
    QUATT_AROUND,
    {qk_product<MacF32>, QUATT_BF16_QK, nullptr, QUATT_INT8_QK},
    {pv_product<MacF32, kTile>, QUATT_BF16_PV, QUATT_F16_PV},
    {softmax_tile<Product::kF32>, QUATT_BF16_MEET, QUATT_F16_MEET},
    widen_bf16_tile,
    widen_f16_tile,
};

}  // namespace quatt::cpu
