// Relaxed atomics on global memory, device scope.
#pragma once

#include "cuda/ptx/memory.hpp"

#if !defined(__CUDACC__)
#include <atomic>
#endif

namespace quatt::ptx {
inline namespace QUATT_ABI {

#if !defined(__CUDACC__)
namespace host {

// Replaces the value at `i` by `update(value)` and returns what was there.
template <class T, class Update>
T update(const Global<T>& at, i64 i, const char* what, Site site, Update update) {
    simt::block().step(site);
    if (!at.check(i, sizeof(T), sizeof(T), what, site)) return T{};
    std::atomic_ref<T> cell(at.data()[i]);
    T old = cell.load(std::memory_order_relaxed);
    while (!cell.compare_exchange_weak(old, update(old), std::memory_order_relaxed)) {
    }
    return old;
}

}  // namespace host
#endif

// atom.add.u32, returns what was there. PTX ISA 9.7.13.5
QUATT_DEV u32 atomic_add(Global<u32> at, i64 i, u32 value,
                         [[maybe_unused]] Site site = Site::current()) {
#if defined(__CUDACC__)
    u32 old;
    asm volatile("atom.relaxed.gpu.global.add.u32 %0, [%1], %2;"
                 : "=r"(old)
                 : "l"(at.data() + i), "r"(value)
                 : "memory");
    return old;
#else
    return host::update(at, i, "atom.add", site, [=](u32 old) { return old + value; });
#endif
}

// red.add.f32: the order of additions is free, so results are not reproducible. PTX ISA 9.7.13.6
QUATT_DEV void atomic_add(Global<float> at, i64 i, float value,
                          [[maybe_unused]] Site site = Site::current()) {
#if defined(__CUDACC__)
    asm volatile("red.relaxed.gpu.global.add.f32 [%0], %1;" ::"l"(at.data() + i), "f"(value)
                 : "memory");
#else
    host::update(at, i, "red.add", site, [=](float old) { return old + value; });
#endif
}

// atom.max.u32, returns what was there. PTX ISA 9.7.13.5
QUATT_DEV u32 atomic_max(Global<u32> at, i64 i, u32 value,
                         [[maybe_unused]] Site site = Site::current()) {
#if defined(__CUDACC__)
    u32 old;
    asm volatile("atom.relaxed.gpu.global.max.u32 %0, [%1], %2;"
                 : "=r"(old)
                 : "l"(at.data() + i), "r"(value)
                 : "memory");
    return old;
#else
    return host::update(at, i, "atom.max", site,
                        [=](u32 old) { return old < value ? value : old; });
#endif
}

// The maximum of floats, none of them NaN. There is no such instruction for f32: as integers,
// non-negative floats are ordered like signed numbers, negative ones against unsigned ones.
// red.max.s32, red.min.u32. PTX ISA 9.7.13.6
QUATT_DEV void atomic_max(Global<float> at, i64 i, float value,
                          [[maybe_unused]] Site site = Site::current()) {
#if defined(__CUDACC__)
    const u32 bits = formats::bit_cast<u32>(value);
    if ((bits >> 31) == 0)
        asm volatile("red.relaxed.gpu.global.max.s32 [%0], %1;" ::"l"(at.data() + i), "r"(bits)
                     : "memory");
    else
        asm volatile("red.relaxed.gpu.global.min.u32 [%0], %1;" ::"l"(at.data() + i), "r"(bits)
                     : "memory");
#else
    host::update(at, i, "red.max", site, [=](float old) { return old < value ? value : old; });
#endif
}

}  // namespace QUATT_ABI
}  // namespace quatt::ptx
