// The one place that knows which side compiles: nvcc for a GPU, or a host compiler for the
// executor (docs/executor.md).
//
// The switch is __CUDACC__, the whole translation unit, and never __CUDA_ARCH__: nvcc's host pass
// must see the same layouts as its device pass. What depends on the architecture is decided inside
// the wrappers of this folder, by the QUATT_HAS_ macros below.
#pragma once

#include <cstdint>

#include "formats/platform.hpp"  // QUATT_HD

#if defined(__CUDACC__)

// NOTE: everything that sees a view or a Site lives in this inline namespace, or the linker would
// mix functions of both worlds without a word.
#define QUATT_ABI cuda_abi
#define QUATT_DEV __device__ __forceinline__
#define QUATT_KERNEL(...) __global__ void __launch_bounds__(__VA_ARGS__)  // threads, CTAs an SM
// A kernel parameter that stays where the launch put it: tensor maps need that.
#define QUATT_GRID_CONSTANT(type) const __grid_constant__ type
#define QUATT_UNROLL _Pragma("unroll")
#define QUATT_NO_UNROLL _Pragma("unroll 1")

#if defined(__CUDA_ARCH__)
#define QUATT_HAS_E4M3_CONVERSION (__CUDA_ARCH__ >= 890)
#define QUATT_HAS_E4M3_MMA (__CUDA_ARCH__ >= 890)
#define QUATT_HAS_BULK_COPY (__CUDA_ARCH__ >= 900)
#define QUATT_HAS_DEPENDENT_LAUNCH (__CUDA_ARCH__ >= 900)
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define QUATT_HAS_WGMMA 1
#else
#define QUATT_HAS_WGMMA 0
#endif
#if defined(__CUDA_ARCH_FAMILY_SPECIFIC__)
#define QUATT_HAS_BLOCK_SCALED_MMA (__CUDA_ARCH_FAMILY_SPECIFIC__ == 1200)
#elif defined(__CUDA_ARCH_SPECIFIC__)
#define QUATT_HAS_BLOCK_SCALED_MMA (__CUDA_ARCH_SPECIFIC__ / 100 == 12)
#else
#define QUATT_HAS_BLOCK_SCALED_MMA 0
#endif
#else  // nvcc's host pass compiles no device body
#define QUATT_HAS_E4M3_CONVERSION 1
#define QUATT_HAS_E4M3_MMA 1
#define QUATT_HAS_BULK_COPY 1
#define QUATT_HAS_WGMMA 1
#define QUATT_HAS_BLOCK_SCALED_MMA 1
#endif

#else

#include "simt/block.hpp"

#define QUATT_ABI simt_abi
#define QUATT_DEV inline
#define QUATT_KERNEL(...) void
#define QUATT_GRID_CONSTANT(type) const type&
#define QUATT_UNROLL
#define QUATT_NO_UNROLL

#endif

namespace quatt::ptx {
inline namespace QUATT_ABI {

using i32 = std::int32_t;
using i64 = std::int64_t;
using u8 = std::uint8_t;
using u16 = std::uint16_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;

// Where in a kernel an access or a collective stands. Helpers that wrap a collective take one as
// their last parameter and forward it, or two branches that call them would look like one place.
#if defined(__CUDACC__)
struct Site {
    QUATT_HD static constexpr Site current() { return {}; }
};
#else
using Site = simt::Site;
#endif

// What one 8- or 16-byte access moves.
struct alignas(8) U32x2 {
    u32 x, y;
};
struct alignas(16) U32x4 {
    u32 x, y, z, w;
};
struct alignas(8) F32x2 {
    float x, y;
};
struct alignas(16) F32x4 {
    float x, y, z, w;
};

}  // namespace QUATT_ABI
}  // namespace quatt::ptx
