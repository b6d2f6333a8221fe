// Scalar fp32 instructions.
#pragma once

#include "cuda/ptx/platform.hpp"

#if !defined(__CUDACC__)
#include <cmath>
#endif

namespace quatt::ptx {
inline namespace QUATT_ABI {

#if !defined(__CUDACC__)
namespace host {

// .ftz: subnormals become zeros of the same sign.
inline float flush(float x) {
    return std::fabs(x) < 0x1p-126f ? std::copysign(0.0f, x) : x;
}

}  // namespace host
#endif

// ex2.approx.ftz.f32: 2^x to 2 ulp; exact for integers. The host body rounds 2^x to nearest.
// PTX ISA 9.7.3.21
[[nodiscard]] QUATT_DEV float ex2(float x) {
#if defined(__CUDACC__)
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#else
    return host::flush(std::exp2(host::flush(x)));
#endif
}

// lg2.approx.ftz.f32. PTX ISA 9.7.3.20
[[nodiscard]] QUATT_DEV float lg2(float x) {
#if defined(__CUDACC__)
    float y;
    asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#else
    return host::flush(std::log2(host::flush(x)));
#endif
}

// rcp.approx.ftz.f32: 1/x to 1 ulp. PTX ISA 9.7.3.13
[[nodiscard]] QUATT_DEV float rcp(float x) {
#if defined(__CUDACC__)
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#else
    return host::flush(1.0f / host::flush(x));
#endif
}

// fma.rn.f32. PTX ISA 9.7.3.6
[[nodiscard]] QUATT_DEV float fma(float a, float b, float c) {
#if defined(__CUDACC__)
    return __fmaf_rn(a, b, c);
#else
    return std::fma(a, b, c);
#endif
}

// sub.rm.f32: a - b, rounded down. PTX ISA 9.7.3.4
[[nodiscard]] QUATT_DEV float sub_down(float a, float b) {
#if defined(__CUDACC__)
    return __fsub_rd(a, b);
#else
    const float nearest = a - b, back = nearest - a;
    const float error = (a - (nearest - back)) + (-b - back);  // of `nearest`, exact
    return error < 0 ? std::nextafter(nearest, -INFINITY) : nearest;
#endif
}

// max.f32: the other operand where one is NaN; +0 is above -0. PTX ISA 9.7.3.12
[[nodiscard]] QUATT_DEV float max(float a, float b) {
#if defined(__CUDACC__)
    return fmaxf(a, b);
#else
    if (a == b) return std::signbit(a) ? b : a;
    return std::fmax(a, b);
#endif
}

// max.NaN.f32: NaN where one is. sm_80 and later. PTX ISA 9.7.3.12
[[nodiscard]] QUATT_DEV float max_or_nan(float a, float b) {
#if defined(__CUDACC__)
    float d;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(d) : "f"(a), "f"(b));
    return d;
#else
    return a != a || b != b ? std::numeric_limits<float>::quiet_NaN() : max(a, b);
#endif
}

// max.u16x2: of each half by itself; before sm_90 in software. PTX ISA 9.7.1.13
[[nodiscard]] QUATT_DEV u32 max_u16x2(u32 a, u32 b) {
#if defined(__CUDACC__) && (!defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900)
    u32 d;
    asm("max.u16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
    return d;
#else
    const u32 low = (a & 0xFFFFu) < (b & 0xFFFFu) ? b & 0xFFFFu : a & 0xFFFFu;
    return low | (a >> 16 < b >> 16 ? b >> 16 : a >> 16) << 16;
#endif
}

// min.f32: the other operand where one is NaN; -0 is below +0. PTX ISA 9.7.3.11
[[nodiscard]] QUATT_DEV float min(float a, float b) {
#if defined(__CUDACC__)
    return fminf(a, b);
#else
    if (a == b) return std::signbit(a) ? a : b;
    return std::fmin(a, b);
#endif
}

// cvt.rpi.f32.f32: up to an integer. PTX ISA 9.7.9.21
[[nodiscard]] QUATT_DEV float ceil(float x) {
#if defined(__CUDACC__)
    return ceilf(x);
#else
    return std::ceil(x);
#endif
}

// No instruction. Keeps the compiler from computing what depends on x before this point is
// reached: it likes to move work out of a rare branch onto the common path.
QUATT_DEV void optimizer_barrier([[maybe_unused]] float& x) {
#if defined(__CUDACC__)
    asm volatile("" : "+f"(x));
#endif
}
QUATT_DEV void optimizer_barrier([[maybe_unused]] u32& x) {
#if defined(__CUDACC__)
    asm volatile("" : "+r"(x));
#endif
}

}  // namespace QUATT_ABI
}  // namespace quatt::ptx
