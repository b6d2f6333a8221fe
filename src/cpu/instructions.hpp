// Instructions that few processors have, one a function: AVX512-FP16's multiply-add and the tiles
// of AMX. Each has two bodies: the native one, and one in software (software.hpp) that tests
// compile into the same kernels, so that these run on processors without the instructions. Which of
// them a file has follows from the flags that it is compiled with, QUATT_EMULATE_FP16 and
// QUATT_EMULATE_AMX. Operations: Intel 64 and IA-32 Architectures Software Developer's Manual,
// volume 2. NOTE: assembly and not intrinsics: GCC 12 copies sums around some of these (see
// MacInt8), and its tile intrinsics take register numbers as literals only and do not say that they
// touch memory.
#pragma once
#include <cstdint>

#include "cpu/lanes.hpp"

namespace quatt::cpu {
namespace {

// What LDTILECFG reads.
struct TileConfig {
    std::uint8_t palette, start_row, reserved[14];
    std::uint16_t row_bytes[16];  // of registers 0 to 7; the others do not exist
    std::uint8_t rows[16];
};
static_assert(sizeof(TileConfig) == 64);

}  // namespace
}  // namespace quatt::cpu

#if defined(QUATT_EMULATE_FP16) || defined(QUATT_EMULATE_AMX)
#include "cpu/software.hpp"
#endif

#if defined(QUATT_EMULATE_FP16) || defined(__AVX512FP16__)
#define QUATT_HAVE_FP16
#endif
#if defined(QUATT_EMULATE_AMX) || defined(__AMX_TILE__)
#define QUATT_HAVE_AMX
#endif

namespace quatt::cpu {
namespace {

#if defined(QUATT_HAVE_FP16)

// a * b + c in 32 lanes of fp16, rounded once to nearest even; subnormal numbers are numbers,
// whatever MXCSR says (VFMADD231PH).
QUATT_INLINE I fma_f16(I a, I b, I c) {
#if defined(QUATT_EMULATE_FP16)
    return software::fma_f16(a, b, c);
#else
    asm("vfmadd231ph %2, %1, %0" : "+v"(c) : "v"(a), "v"(b));
    return c;
#endif
}

#endif

#if defined(QUATT_HAVE_AMX)

// Sets the shapes of the tile registers of this thread and makes them 0 (LDTILECFG).
QUATT_INLINE void tile_configure(const TileConfig& config) {
#if defined(QUATT_EMULATE_AMX)
    software::tile_configure(config);
#else
    asm volatile("ldtilecfg %0" : : "m"(config));
#endif
}

// Back to no tiles: the system need not save them (TILERELEASE).
QUATT_INLINE void tile_release() {
#if defined(QUATT_EMULATE_AMX)
    software::tile_release();
#else
    asm volatile("tilerelease");
#endif
}

template <int kTo>
QUATT_INLINE void tile_zero() {  // TILEZERO
#if defined(QUATT_EMULATE_AMX)
    software::tile_zero(kTo);
#else
    asm volatile("tilezero %%tmm%c0" : : "i"(kTo));
#endif
}

// Rows from memory, so many bytes apart (TILELOADD).
template <int kTo>
QUATT_INLINE void tile_load(const void* from, std::int64_t stride_bytes) {
#if defined(QUATT_EMULATE_AMX)
    software::tile_load(kTo, from, stride_bytes);
#else
    asm volatile("tileloadd (%0,%1), %%tmm%c2"
                 :
                 : "r"(from), "r"(stride_bytes), "i"(kTo)
                 : "memory");
#endif
}

template <int kFrom>
QUATT_INLINE void tile_store(void* to, std::int64_t stride_bytes) {  // TILESTORED
#if defined(QUATT_EMULATE_AMX)
    software::tile_store(kFrom, to, stride_bytes);
#else
    asm volatile("tilestored %%tmm%c2, (%0,%1)"
                 :
                 : "r"(to), "r"(stride_bytes), "i"(kFrom)
                 : "memory");
#endif
}

// c [16, 16] += a [16, 16 units] . b [16 units, 16]: four unsigned bytes of a by four signed ones
// of b a unit, int32 sums (TDPBUSD).
template <int kC, int kA, int kB>
QUATT_INLINE void tile_dot_bytes() {
#if defined(QUATT_EMULATE_AMX)
    software::tile_dot_bytes(kC, kA, kB);
#else
    asm volatile("tdpbusd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kC), "i"(kA), "i"(kB));
#endif
}

// The same of two bf16 numbers a unit: the products of the first numbers and those of the second
// are summed apart, in fp32, before both join c; subnormal operands and results are 0 (TDPBF16PS).
template <int kC, int kA, int kB>
QUATT_INLINE void tile_dot_bf16() {
#if defined(QUATT_EMULATE_AMX)
    software::tile_dot_bf16(kC, kA, kB);
#else
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kC), "i"(kA), "i"(kB));
#endif
}

#endif

}  // namespace
}  // namespace quatt::cpu
