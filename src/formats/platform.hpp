// What lets one source of the number formats serve the host compiler and nvcc.
#pragma once

#include <cstdint>

#if defined(__CUDACC__)
#define QUATT_HD __host__ __device__
#define QUATT_HD_UNROLL _Pragma("unroll")
#define QUATT_HD_INLINE __host__ __device__ __forceinline__  // or arrays go to memory
#else
#define QUATT_HD
#define QUATT_HD_UNROLL
#define QUATT_HD_INLINE inline
#endif

namespace quatt::formats {

// NOTE: std::bit_cast is a host function to nvcc unless --expt-relaxed-constexpr is given; the
// builtin behind it is fine on both sides and in constant expressions.
template <class To, class From>
[[nodiscard]] QUATT_HD constexpr To bit_cast(From from) noexcept {
    static_assert(sizeof(To) == sizeof(From), "bit_cast keeps the size");
    return __builtin_bit_cast(To, from);
}

}  // namespace quatt::formats
