// wgmma: d += a b by a warpgroup (4 warps, the first a multiple of 4), asynchronously, with fp32
// accumulators. A is 64 x K, from registers or shared memory; B is K x N in shared memory. sm_90a.
//
// Registers: warp w of the group holds rows 16 w .. 16 w + 15. Within it, with g = lane / 4 and
// t = lane % 4, A and D lie as in mma.hpp: d[4 n + i] is column 8 n + 2 t + i % 2 of row
// g + 8 (i / 2).
//
// Rules (PTX ISA 9.7.15): `wgmma_fence` before the first wgmma of a warpgroup and whenever its
// registers were written by something else; registers of a wgmma (A too) are not touched from its
// issue until a `wgmma_wait` that covers its group. What generic stores wrote to shared memory
// needs a `fence_proxy_async` before a wgmma reads it.
// NOTE: read strictly, a wait says that the 16 rows of its own warp are done, and nothing of the
// other three, which read all of B too. So each warp lets go of a stage for itself. The four run
// the same sequence of wgmma, fence, commit and wait.
#pragma once

#include "cuda/ptx/mbarrier.hpp"

#if !defined(__CUDACC__)
#include "cuda/ptx/wgmma_host.hpp"
#endif

namespace quatt::ptx {
inline namespace QUATT_ABI {

namespace detail {

// The upper half of a descriptor: from 8 rows to the next, and the swizzle.
template <u32 Span>
[[nodiscard]] QUATT_DEV u64 shape_of() {
    static_assert(Span == 32 || Span == 64 || Span == 128);
    return u64(8 * Span / 16) << 32 | u64(Span == 128 ? 1 : Span == 64 ? 2 : 3) << 62;
}

}  // namespace detail

// The descriptor of a K-major operand: rows of Span bytes (32, 64 or 128) along K, one after the
// other, in the swizzle of that span. `at` is at the start of the pattern (8 rows), or a multiple
// of 32 bytes along K beyond it. PTX ISA 9.7.15.5.1 (matrix descriptor)
template <u32 Span>
[[nodiscard]] QUATT_DEV u64 k_major(Shared at, [[maybe_unused]] Site site = Site::current()) {
    [[maybe_unused]] constexpr u32 kStep = 32;  // bytes along K
#if !defined(__CUDACC__)
    (void)at.check(0, kStep, 16, "matrix descriptor", site);
#endif
    return u64(at.address() >> 4 & 0x3FFF) | u64(1) << 16 | detail::shape_of<Span>();
}

// An operand `bytes` after one of another span.
template <u32 Span>
[[nodiscard]] QUATT_DEV u64 k_major(u64 before, u32 bytes) {
    return u64(static_cast<u32>(before) + bytes / 16) | detail::shape_of<Span>();
}

// The same operand so many 16-byte pieces further on. NOTE: in 32 bits, the other half does not
// change; in pieces, or the compiler divides what it cannot know not to have wrapped.
[[nodiscard]] QUATT_DEV u64 advanced(u64 matrix, u32 pieces) {
    return (matrix & 0xFFFFFFFF00000000) | (static_cast<u32>(matrix) + pieces);
}

#if defined(__CUDACC__)
#if !QUATT_HAS_WGMMA
extern "C" __device__ void quatt_wgmma_needs_sm_90a();
#endif
namespace detail {

// Lists of the accumulators, as operands and in the text of the instruction.
#define QUATT_D8(i)                                                                     \
    "+f"(d[i]), "+f"(d[(i) + 1]), "+f"(d[(i) + 2]), "+f"(d[(i) + 3]), "+f"(d[(i) + 4]), \
        "+f"(d[(i) + 5]), "+f"(d[(i) + 6]), "+f"(d[(i) + 7])
#define QUATT_D32(i) QUATT_D8(i), QUATT_D8((i) + 8), QUATT_D8((i) + 16), QUATT_D8((i) + 24)
#define QUATT_T32                                                             \
    "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define QUATT_T64                                                                        \
    QUATT_T32                                                                            \
    ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
    "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define QUATT_T96                                                                        \
    QUATT_T64                                                                            \
    ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, " \
    "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"

// text: of the accumulators, and `operands` they themselves; a_text: of A in registers. p: whether
// d counts. Descriptors come as two words each (QUATT_WORDS): with one of 64 bits the compiler adds
// with a carry, and the upper half is constant.
#define QUATT_WORDS(m) "r"(static_cast<u32>(m)), "r"(static_cast<u32>((m) >> 32))
#define QUATT_WGMMA_RS(n, text, a_text, b0, b1, p_text, operands, ...)                            \
    asm volatile("{\n.reg .pred p;\n.reg .b64 b;\nsetp.ne.b32 p, " p_text ", 0;\nmov.b64 b, {" b0 \
                 ", " b1                                                                          \
                 "};\n"                                                                           \
                 "wgmma.mma_async.sync.aligned.m64n" #n "k32.f32.e4m3.e4m3 " text "}, " a_text    \
                 ", b, p, 1, 1;\n}\n"                                                             \
                 : operands                                                                       \
                 : __VA_ARGS__)
#define QUATT_WGMMA_SS(n, text, a0, a1, b0, b1, p_text, operands, ...)            \
    asm volatile("{\n.reg .pred p;\n.reg .b64 a, b;\nsetp.ne.b32 p, " p_text      \
                 ", 0;\nmov.b64 a, {" a0 ", " a1 "};\nmov.b64 b, {" b0 ", " b1    \
                 "};\n"                                                           \
                 "wgmma.mma_async.sync.aligned.m64n" #n "k32.f32.e4m3.e4m3 " text \
                 "}, a, b, p, 1, 1;\n}\n"                                         \
                 : operands                                                       \
                 : __VA_ARGS__)

}  // namespace detail
#endif

// wgmma.mma_async.m64nNk32.f32.e4m3.e4m3, N = 64, 128 or 192, A and B in shared memory. Without
// `accumulate`, d is overwritten. Hopper keeps 13 fraction bits of sums
// (formats/hopper_accumulator.hpp). PTX ISA 9.7.15.5.2
template <u32 N>
QUATT_DEV void wgmma_e4m3(float (&d)[N / 2], u64 a, u64 b, bool accumulate,
                          [[maybe_unused]] Site site = Site::current()) {
#if defined(__CUDACC__)
#if QUATT_HAS_WGMMA
    const i32 p = accumulate ? 1 : 0;
#define QUATT_LIST(...) __VA_ARGS__
    if constexpr (N == 64) {
        QUATT_WGMMA_SS(64, QUATT_T32, "%32", "%33", "%34", "%35", "%36", QUATT_LIST(QUATT_D32(0)),
                       QUATT_WORDS(a), QUATT_WORDS(b), "r"(p));
    } else if constexpr (N == 128) {
        QUATT_WGMMA_SS(128, QUATT_T64, "%64", "%65", "%66", "%67", "%68",
                       QUATT_LIST(QUATT_D32(0), QUATT_D32(32)), QUATT_WORDS(a), QUATT_WORDS(b),
                       "r"(p));
    } else {
        static_assert(N == 192);
        QUATT_WGMMA_SS(192, QUATT_T96, "%96", "%97", "%98", "%99", "%100",
                       QUATT_LIST(QUATT_D32(0), QUATT_D32(32), QUATT_D32(64)), QUATT_WORDS(a),
                       QUATT_WORDS(b), "r"(p));
    }
#else
    quatt_wgmma_needs_sm_90a();
#endif
#else
    host::wgmma_e4m3(d, N, a, b, accumulate, site);
#endif
}

// The same with A in registers.
template <u32 N>
QUATT_DEV void wgmma_e4m3(float (&d)[N / 2], const u32 (&a)[4], u64 b, bool accumulate,
                          [[maybe_unused]] Site site = Site::current()) {
#if defined(__CUDACC__)
#if QUATT_HAS_WGMMA
    const i32 p = accumulate ? 1 : 0;
    if constexpr (N == 64) {
        QUATT_WGMMA_RS(64, QUATT_T32, "{%32, %33, %34, %35}", "%36", "%37", "%38",
                       QUATT_LIST(QUATT_D32(0)), "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]),
                       QUATT_WORDS(b), "r"(p));
    } else {
        static_assert(N == 128);
        QUATT_WGMMA_RS(128, QUATT_T64, "{%64, %65, %66, %67}", "%68", "%69", "%70",
                       QUATT_LIST(QUATT_D32(0), QUATT_D32(32)), "r"(a[0]), "r"(a[1]), "r"(a[2]),
                       "r"(a[3]), QUATT_WORDS(b), "r"(p));
    }
#else
    quatt_wgmma_needs_sm_90a();
#endif
#else
    host::wgmma_e4m3(d, N, a, b, accumulate, site);
#endif
}

// wgmma.fence: the registers of this warp are ready for the wgmmas that follow.
// PTX ISA 9.7.15.7.1
QUATT_DEV void wgmma_fence([[maybe_unused]] Site site = Site::current()) {
#if defined(__CUDACC__)
#if QUATT_HAS_WGMMA
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
#else
    host::wgmma_fence(site);
#endif
}

// wgmma.commit_group. PTX ISA 9.7.15.7.2
QUATT_DEV void wgmma_commit([[maybe_unused]] Site site = Site::current()) {
#if defined(__CUDACC__)
#if QUATT_HAS_WGMMA
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#endif
#else
    host::wgmma_commit(site);
#endif
}

// wgmma.wait_group: all but the newest `GroupsLeft` groups of the warp are done. PTX ISA 9.7.15.7.3
template <u32 GroupsLeft>
QUATT_DEV void wgmma_wait([[maybe_unused]] Site site = Site::current()) {
#if defined(__CUDACC__)
#if QUATT_HAS_WGMMA
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(GroupsLeft) : "memory");
#endif
#else
    host::wgmma_wait(GroupsLeft, site);
#endif
}

// setmaxnreg: registers a thread of this warpgroup from here on, 24 to 256, a multiple of 8. All
// warps of the warpgroup run it. PTX ISA 9.7.19.5
// NOTE: ptxas ignores it in a kernel whose launch bounds do not name the blocks of a
// multiprocessor.
template <u32 Count>
QUATT_DEV void setmaxnreg_inc([[maybe_unused]] Site site = Site::current()) {
    static_assert(Count >= 24 && Count <= 256 && Count % 8 == 0);
#if defined(__CUDACC__)
#if QUATT_HAS_WGMMA
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Count));
#endif
#else
    host::set_registers(Count, true, site);
#endif
}

template <u32 Count>
QUATT_DEV void setmaxnreg_dec([[maybe_unused]] Site site = Site::current()) {
    static_assert(Count >= 24 && Count <= 256 && Count % 8 == 0);
#if defined(__CUDACC__)
#if QUATT_HAS_WGMMA
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Count));
#endif
#else
    host::set_registers(Count, false, site);
#endif
}

}  // namespace QUATT_ABI
}  // namespace quatt::ptx
