// mbarrier objects: 8 bytes of shared memory, a phase, pending arrivals and pending bytes.
// `barrier` is a view of those bytes. All need sm_90 (older GPUs have no transactions).
#pragma once

#include "cuda/ptx/memory.hpp"

namespace quatt::ptx {
inline namespace QUATT_ABI {

#if defined(__CUDACC__) && !QUATT_HAS_BULK_COPY
// Never defined: whoever uses it on an older GPU is told so by name when the code is assembled.
extern "C" __device__ void quatt_mbarrier_needs_sm_90();
#endif

// mbarrier.init: `count` arrivals end a phase. PTX ISA 9.7.13.15.9
QUATT_DEV void mbarrier_init(Shared barrier, u32 count,
                             [[maybe_unused]] Site site = Site::current()) {
#if defined(__CUDACC__)
#if QUATT_HAS_BULK_COPY
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier.address()), "r"(count)
                 : "memory");
#else
    quatt_mbarrier_needs_sm_90();
#endif
#else
    if (barrier.check(0, 8, 8, "mbarrier.init", site))
        simt::block().mbarrier_init(barrier.address(), count, site);
#endif
}

// mbarrier.arrive (release, cta): one arrival. PTX ISA 9.7.13.15.13
QUATT_DEV void mbarrier_arrive(Shared barrier, [[maybe_unused]] Site site = Site::current()) {
#if defined(__CUDACC__)
#if QUATT_HAS_BULK_COPY
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier.address()) : "memory");
#else
    quatt_mbarrier_needs_sm_90();
#endif
#else
    simt::block().mbarrier_arrive(barrier.address(), 1, site);
#endif
}

// mbarrier.expect_tx: the phase also waits for `bytes`. PTX ISA 9.7.13.15.11
QUATT_DEV void mbarrier_expect_tx(Shared barrier, u32 bytes,
                                  [[maybe_unused]] Site site = Site::current()) {
#if defined(__CUDACC__)
#if QUATT_HAS_BULK_COPY
    asm volatile(
        "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(barrier.address()),
        "r"(bytes)
        : "memory");
#else
    quatt_mbarrier_needs_sm_90();
#endif
#else
    simt::block().mbarrier_expect(barrier.address(), bytes, site);
#endif
}

// mbarrier.arrive.expect_tx: both at once. PTX ISA 9.7.13.15.13
QUATT_DEV void mbarrier_arrive_expect_tx(Shared barrier, u32 bytes,
                                         [[maybe_unused]] Site site = Site::current()) {
#if defined(__CUDACC__)
#if QUATT_HAS_BULK_COPY
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier.address()),
                 "r"(bytes)
                 : "memory");
#else
    quatt_mbarrier_needs_sm_90();
#endif
#else
    simt::block().mbarrier_arrive_expect(barrier.address(), bytes, site);
#endif
}

#if defined(__CUDACC__)
#if QUATT_HAS_BULK_COPY
// Whether the phase of this parity is over, by mbarrier.NAME.
#define QUATT_MBARRIER_IS_OVER(name)          \
    u32 is_over;                              \
    asm volatile(                             \
        "{\n"                                 \
        ".reg .pred over;\n"                  \
        "mbarrier." name                      \
        ".shared::cta.b64 over, [%1], %2;\n"  \
        "selp.u32 %0, 1, 0, over;\n"          \
        "}\n"                                 \
        : "=r"(is_over)                       \
        : "r"(barrier.address()), "r"(parity) \
        : "memory");                          \
    return is_over != 0
#else
#define QUATT_MBARRIER_IS_OVER(name) \
    quatt_mbarrier_needs_sm_90();    \
    return true
#endif
#endif

// mbarrier.try_wait.parity (acquire, cta): whether the phase of this parity is over. May wait a
// while, and may come back without. PTX ISA 9.7.13.15.16
[[nodiscard]] QUATT_DEV bool mbarrier_try_wait(Shared barrier, u32 parity,
                                               [[maybe_unused]] Site site = Site::current()) {
#if defined(__CUDACC__)
    QUATT_MBARRIER_IS_OVER("try_wait.parity");
#else
    return simt::block().mbarrier_try_wait(barrier.address(), parity, site);
#endif
}

// mbarrier.test_wait.parity: the same, and does not wait.
[[nodiscard]] QUATT_DEV bool mbarrier_test_wait(Shared barrier, u32 parity,
                                                [[maybe_unused]] Site site = Site::current()) {
#if defined(__CUDACC__)
    QUATT_MBARRIER_IS_OVER("test_wait.parity");
#else
    return simt::block().mbarrier_test_wait(barrier.address(), parity, site);
#endif
}

#if defined(__CUDACC__)
#undef QUATT_MBARRIER_IS_OVER
#endif

// The usual loop around it.
QUATT_DEV void mbarrier_wait(Shared barrier, u32 parity, Site site = Site::current()) {
    while (!mbarrier_try_wait(barrier, parity, site)) {
    }
}

}  // namespace QUATT_ABI
}  // namespace quatt::ptx
