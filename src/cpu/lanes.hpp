// The vectors that the kernels are written in: one set of names over AVX2 (8 lanes of 32 bits) and
// AVX-512 (16). Which one follows from the flags that the including file is compiled with
// (levels/*.cpp).
// NOTE: everything here is inlined or in an anonymous namespace: a function with external linkage
// that was compiled for AVX-512 could be the copy that the linker keeps for the whole library
// (tests/cpu checks the object files).
#pragma once
#include <immintrin.h>

#include <cstdint>

#include "recipe/simd.hpp"  // QUATT_INLINE

namespace quatt::cpu {
namespace {

#if defined(__AVX512F__)

inline constexpr int kLanes = 16;
using F = __m512;
using I = __m512i;
using Mask = __mmask16;

QUATT_INLINE F load(const float* p) {
    return _mm512_loadu_ps(p);
}
QUATT_INLINE I load(const std::uint32_t* p) {
    return _mm512_loadu_si512(p);
}
QUATT_INLINE void store(float* p, F x) {
    _mm512_storeu_ps(p, x);
}
QUATT_INLINE F all(float x) {
    return _mm512_set1_ps(x);
}
QUATT_INLINE I all(std::int32_t x) {
    return _mm512_set1_epi32(x);
}
QUATT_INLINE F as_floats(I x) {
    return _mm512_castsi512_ps(x);
}
QUATT_INLINE I as_ints(F x) {
    return _mm512_castps_si512(x);
}
QUATT_INLINE F to_floats(I x) {
    return _mm512_cvtepi32_ps(x);
}
QUATT_INLINE F mul(F a, F b) {
    return _mm512_mul_ps(a, b);
}
QUATT_INLINE F add(F a, F b) {
    return _mm512_add_ps(a, b);
}
QUATT_INLINE F sub(F a, F b) {
    return _mm512_sub_ps(a, b);
}
QUATT_INLINE F mul_add(F a, F b, F c) {
    return _mm512_fmadd_ps(a, b, c);
}
// The second operand where either is NaN, as in the instruction.
QUATT_INLINE F max(F a, F b) {
    return _mm512_max_ps(a, b);
}
QUATT_INLINE F min(F a, F b) {
    return _mm512_min_ps(a, b);
}
QUATT_INLINE I add(I a, I b) {
    return _mm512_add_epi32(a, b);
}
QUATT_INLINE I max(I a, I b) {
    return _mm512_max_epi32(a, b);
}
QUATT_INLINE I bits_and(I a, I b) {
    return _mm512_and_si512(a, b);
}
template <int kShift>
QUATT_INLINE I shift_left(I x) {
    return _mm512_slli_epi32(x, kShift);
}
template <int kShift>
QUATT_INLINE I shift_right(I x) {  // zeros come in
    return _mm512_srli_epi32(x, kShift);
}
QUATT_INLINE I lane_numbers() {
    return _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}
QUATT_INLINE Mask greater(I a, I b) {
    return _mm512_cmpgt_epi32_mask(a, b);
}
QUATT_INLINE I max_unsigned(I a, I b) {
    return _mm512_max_epu32(a, b);
}
// In each lane the largest of the lanes of its half of every 8, of both vectors: of the 16 keys
// that share a scale in nvfp4, {8i + 4b + 0..3 : i = 0..3} of 32.
QUATT_INLINE I group_maximum(const I* x) {
    I m = max_unsigned(x[0], x[1]);
    m = max_unsigned(m, _mm512_shuffle_i32x4(m, m, 0x4E));
    m = max_unsigned(m, _mm512_shuffle_epi32(m, static_cast<_MM_PERM_ENUM>(0x4E)));
    return max_unsigned(m, _mm512_shuffle_epi32(m, static_cast<_MM_PERM_ENUM>(0xB1)));
}
QUATT_INLINE F reciprocal(F x) {  // 0 of 0
    return _mm512_maskz_div_ps(_mm512_cmp_ps_mask(x, _mm512_setzero_ps(), _CMP_NEQ_UQ), all(1.0f),
                               x);
}
QUATT_INLINE bool any_reaches(I x, std::int32_t least) {  // unsigned
    return _mm512_cmpge_epu32_mask(x, all(least)) != 0;
}
QUATT_INLINE F nearest(F x) {  // whole number, ties to even
    return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
QUATT_INLINE F select(Mask m, F yes, F no) {
    return _mm512_mask_blend_ps(m, no, yes);
}
// p * 2^n for whole n, rounded once; NaN stays.
QUATT_INLINE F times_power(F p, F n) {
    return _mm512_scalef_ps(p, n);
}
QUATT_INLINE float sum(F x) {
    return _mm512_reduce_add_ps(x);
}
QUATT_INLINE F widen_bf16(const std::uint16_t* p) {
    const __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    return as_floats(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}
QUATT_INLINE F widen_f16(const std::uint16_t* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
QUATT_INLINE F round_f16(F x) {
    return _mm512_cvtph_ps(_mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

#else

inline constexpr int kLanes = 8;
using F = __m256;
using I = __m256i;
struct Mask {
    __m256 lanes;
};

QUATT_INLINE F load(const float* p) {
    return _mm256_loadu_ps(p);
}
QUATT_INLINE I load(const std::uint32_t* p) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}
QUATT_INLINE void store(float* p, F x) {
    _mm256_storeu_ps(p, x);
}
QUATT_INLINE F all(float x) {
    return _mm256_set1_ps(x);
}
QUATT_INLINE I all(std::int32_t x) {
    return _mm256_set1_epi32(x);
}
QUATT_INLINE F as_floats(I x) {
    return _mm256_castsi256_ps(x);
}
QUATT_INLINE I as_ints(F x) {
    return _mm256_castps_si256(x);
}
QUATT_INLINE F mul(F a, F b) {
    return _mm256_mul_ps(a, b);
}
QUATT_INLINE F add(F a, F b) {
    return _mm256_add_ps(a, b);
}
QUATT_INLINE F sub(F a, F b) {
    return _mm256_sub_ps(a, b);
}
QUATT_INLINE F mul_add(F a, F b, F c) {
    return _mm256_fmadd_ps(a, b, c);
}
// The second operand where either is NaN, as in the instruction.
QUATT_INLINE F max(F a, F b) {
    return _mm256_max_ps(a, b);
}
QUATT_INLINE F min(F a, F b) {
    return _mm256_min_ps(a, b);
}
QUATT_INLINE I add(I a, I b) {
    return _mm256_add_epi32(a, b);
}
QUATT_INLINE I max(I a, I b) {
    return _mm256_max_epi32(a, b);
}
QUATT_INLINE I bits_and(I a, I b) {
    return _mm256_and_si256(a, b);
}
template <int kShift>
QUATT_INLINE I shift_left(I x) {
    return _mm256_slli_epi32(x, kShift);
}
template <int kShift>
QUATT_INLINE I shift_right(I x) {  // zeros come in
    return _mm256_srli_epi32(x, kShift);
}
QUATT_INLINE I lane_numbers() {
    return _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
}
QUATT_INLINE Mask greater(I a, I b) {
    return {as_floats(_mm256_cmpgt_epi32(a, b))};
}
QUATT_INLINE I max_unsigned(I a, I b) {
    return _mm256_max_epu32(a, b);
}
// In each lane the largest of the lanes of its half, of all four vectors: of the 16 keys that share
// a scale in nvfp4, {8i + 4b + 0..3 : i = 0..3} of 32.
QUATT_INLINE I group_maximum(const I* x) {
    I m = max_unsigned(max_unsigned(x[0], x[1]), max_unsigned(x[2], x[3]));
    m = max_unsigned(m, _mm256_shuffle_epi32(m, 0x4E));
    return max_unsigned(m, _mm256_shuffle_epi32(m, 0xB1));
}
QUATT_INLINE F reciprocal(F x) {  // 0 of 0
    const F zero = _mm256_setzero_ps();
    return _mm256_and_ps(_mm256_cmp_ps(x, zero, _CMP_NEQ_UQ), _mm256_div_ps(all(1.0f), x));
}
QUATT_INLINE bool any_reaches(I x, std::int32_t least) {  // unsigned
    return _mm256_movemask_epi8(_mm256_cmpeq_epi32(max_unsigned(x, all(least)), x)) != 0;
}
QUATT_INLINE F nearest(F x) {  // whole number, ties to even
    return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
QUATT_INLINE F select(Mask m, F yes, F no) {
    return _mm256_blendv_ps(no, yes, m.lanes);
}
// p * 2^n for whole n >= -151, rounded once; NaN stays. Two factors, since 2^-151 and 2^129 are no
// normal floats.
QUATT_INLINE F times_power(F p, F n) {
    const I whole = _mm256_cvtps_epi32(_mm256_min_ps(n, _mm256_set1_ps(129)));
    const I half = _mm256_srai_epi32(whole, 1);
    const auto power = [](I e) {
        return as_floats(_mm256_slli_epi32(_mm256_add_epi32(e, _mm256_set1_epi32(127)), 23));
    };
    return mul(mul(p, power(half)), power(_mm256_sub_epi32(whole, half)));
}
QUATT_INLINE float sum(F x) {
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}
QUATT_INLINE F widen_bf16(const std::uint16_t* p) {
    const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return as_floats(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
}
QUATT_INLINE F widen_f16(const std::uint16_t* p) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
QUATT_INLINE F round_f16(F x) {
    return _mm256_cvtph_ps(_mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

#endif

}  // namespace
}  // namespace quatt::cpu
