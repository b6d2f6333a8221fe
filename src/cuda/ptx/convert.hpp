// Packed conversions. The first argument goes to the low end, which is the first in memory.
#pragma once

#include "cuda/ptx/platform.hpp"
#include "formats/bf16.hpp"
#include "formats/e4m3.hpp"
#include "formats/f16.hpp"

namespace quatt::ptx {
inline namespace QUATT_ABI {

// cvt.rn.satfinite.e4m3x2.f32: beyond 448 becomes 448, NaN becomes 0x7F. PTX ISA 9.7.9.21
// Emulated below sm_89.
[[nodiscard]] QUATT_DEV u16 pack_e4m3x2(float low, float high) {
#if defined(__CUDACC__) && QUATT_HAS_E4M3_CONVERSION
    u16 packed;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(packed) : "f"(high), "f"(low));
    return packed;
#else
    return static_cast<u16>(formats::E4m3::encode(low) | formats::E4m3::encode(high) << 8);
#endif
}

// Two of them, for a register of an mma fragment.
// NOTE: in one statement, so that the assembler merges the halves in the conversion itself.
[[nodiscard]] QUATT_DEV u32 pack_e4m3x4(float a, float b, float c, float d) {
#if defined(__CUDACC__) && QUATT_HAS_E4M3_CONVERSION
    u32 packed;
    asm("{\n"
        ".reg .b16 low, high;\n"
        "cvt.rn.satfinite.e4m3x2.f32 low, %2, %1;\n"
        "cvt.rn.satfinite.e4m3x2.f32 high, %4, %3;\n"
        "mov.b32 %0, {low, high};\n"
        "}\n"
        : "=r"(packed)
        : "f"(a), "f"(b), "f"(c), "f"(d));
    return packed;
#else
    return pack_e4m3x2(a, b) | static_cast<u32>(pack_e4m3x2(c, d)) << 16;
#endif
}

// cvt.rn.bf16x2.f32. PTX ISA 9.7.9.21
[[nodiscard]] QUATT_DEV u32 pack_bf16x2(float low, float high) {
#if defined(__CUDACC__)
    u32 packed;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
    return packed;
#else
    return formats::Bf16::encode(low) | static_cast<u32>(formats::Bf16::encode(high)) << 16;
#endif
}

// cvt.rn.f16x2.f32. PTX ISA 9.7.9.21
[[nodiscard]] QUATT_DEV u32 pack_f16x2(float low, float high) {
#if defined(__CUDACC__)
    u32 packed;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
    return packed;
#else
    return formats::F16::encode(low) | static_cast<u32>(formats::F16::encode(high)) << 16;
#endif
}

// bf16 to f32 is a shift: no instruction of its own.
[[nodiscard]] QUATT_DEV F32x2 unpack_bf16x2(u32 packed) {
    return {formats::bit_cast<float>(packed << 16), formats::bit_cast<float>(packed & 0xFFFF0000u)};
}

// cvt.f32.f16. PTX ISA 9.7.9.21
[[nodiscard]] QUATT_DEV F32x2 unpack_f16x2(u32 packed) {
#if defined(__CUDACC__)
    F32x2 f;
    asm("{\n"
        ".reg .b16 low, high;\n"
        "mov.b32 {low, high}, %2;\n"
        "cvt.f32.f16 %0, low;\n"
        "cvt.f32.f16 %1, high;\n"
        "}\n"
        : "=f"(f.x), "=f"(f.y)
        : "r"(packed));
    return f;
#else
    return {formats::F16::decode(static_cast<u16>(packed)),
            formats::F16::decode(static_cast<u16>(packed >> 16))};
#endif
}

// cvt.rn.f16x2.e4m3x2: exact. PTX ISA 9.7.9.21 Emulated below sm_89.
[[nodiscard]] QUATT_DEV u32 e4m3x2_to_f16x2(u16 packed) {
#if defined(__CUDACC__) && QUATT_HAS_E4M3_CONVERSION
    u32 halves;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(packed));
    return halves;
#else
    return pack_f16x2(formats::E4m3::decode(static_cast<u8>(packed)),
                      formats::E4m3::decode(static_cast<u8>(packed >> 8)));
#endif
}

[[nodiscard]] QUATT_DEV F32x2 unpack_e4m3x2(u16 packed) {
    return unpack_f16x2(e4m3x2_to_f16x2(packed));
}

}  // namespace QUATT_ABI
}  // namespace quatt::ptx
