// Asynchronous copies between global and shared memory.
#pragma once

#include "cuda/ptx/mbarrier.hpp"

namespace quatt::ptx {
inline namespace QUATT_ABI {

// cp.async of 4, 8 or 16 bytes, of which those past `source_bytes` become zeros and are not read.
// 16 bytes go past L1 (.cg), fewer through it (.ca). PTX ISA 9.7.9.25.3.1
template <int Bytes, class T>
QUATT_DEV void cp_async(Shared to, u32 offset, Global<const T> from, i64 i,
                        u32 source_bytes = Bytes, [[maybe_unused]] Site site = Site::current()) {
    static_assert(Bytes == 4 || Bytes == 8 || Bytes == 16, "cp.async moves 4, 8 or 16 bytes");
#if defined(__CUDACC__)
    if constexpr (Bytes == 16) {
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to.address() + offset),
                     "l"(from.data() + i), "r"(source_bytes)
                     : "memory");
    } else {
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to.address() + offset),
                     "l"(from.data() + i), "n"(Bytes), "r"(source_bytes)
                     : "memory");
    }
#else
    if (source_bytes > Bytes)
        return simt::block().report(simt::Fault::kBadOperand, site,
                                    "source size " + std::to_string(source_bytes));
    if (!to.check(offset, Bytes, Bytes, "cp.async", site)) return;
    if (source_bytes != 0 && !from.check(i, source_bytes, Bytes, "cp.async", site)) return;
    const auto* source = reinterpret_cast<const u8*>(source_bytes != 0 ? from.data() + i : nullptr);
    simt::block().copy(to.address() + offset, source, Bytes, source_bytes, site);
#endif
}

// cp.async.commit_group: the copies of this thread since the last one make up a group.
// PTX ISA 9.7.9.25.3.2
QUATT_DEV void cp_async_commit([[maybe_unused]] Site site = Site::current()) {
#if defined(__CUDACC__)
    asm volatile("cp.async.commit_group;" ::: "memory");
#else
    simt::block().copy_commit(site);
#endif
}

// cp.async.wait_group: all but this thread's newest `GroupsLeft` groups have arrived, for this
// thread; others need a barrier after it. PTX ISA 9.7.9.25.3.3
template <int GroupsLeft>
QUATT_DEV void cp_async_wait([[maybe_unused]] Site site = Site::current()) {
#if defined(__CUDACC__)
    asm volatile("cp.async.wait_group %0;" ::"n"(GroupsLeft) : "memory");
#else
    simt::block().copy_wait(GroupsLeft, site);
#endif
}

#if defined(__CUDACC__) && !QUATT_HAS_BULK_COPY
extern "C" __device__ void quatt_cp_async_bulk_needs_sm_90();
#endif

#if !defined(__CUDACC__)
namespace host {

// Whether `bytes` may go in bulk from one view to the other; reports what is wrong.
template <class To, class From>
bool check_bulk(const char* what, To to, From from, u32 bytes, Site site) {
    if (bytes % 16 != 0) {
        simt::block().report(simt::Fault::kBadOperand, site,
                             "bulk copy of " + std::to_string(bytes) + " bytes");
        return false;
    }
    return to.check(0, bytes, 16, what, site) && from.check(0, bytes, 16, what, site);
}

}  // namespace host
#endif

// cp.async.bulk, global to shared: `bytes`, a multiple of 16, counted by `barrier`; by one thread.
// PTX ISA 9.7.9.25.4.1
template <class T>
QUATT_DEV void bulk_load(Shared to, Global<const T> from, u32 bytes, Shared barrier,
                         [[maybe_unused]] Site site = Site::current()) {
#if defined(__CUDACC__)
#if QUATT_HAS_BULK_COPY
    // NOTE: for the older shared::cluster form of the destination ptxas adds a branch and a call
    // with a stack frame on sm_120. This form needs PTX ISA 8.6 (CUDA 12.7).
    asm volatile(
        "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
            to.address()),
        "l"(from.data()), "r"(bytes), "r"(barrier.address())
        : "memory");
#else
    quatt_cp_async_bulk_needs_sm_90();
#endif
#else
    if (host::check_bulk("bulk load", to, from, bytes, site))
        simt::block().bulk_load(to.address(), reinterpret_cast<const u8*>(from.data()), bytes,
                                barrier.address(), site);
#endif
}

// cp.async.bulk, shared to global, in this thread's open bulk group. PTX ISA 9.7.9.25.4.1
template <class T>
QUATT_DEV void bulk_store(Global<T> to, Shared from, u32 bytes,
                          [[maybe_unused]] Site site = Site::current()) {
#if defined(__CUDACC__)
#if QUATT_HAS_BULK_COPY
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to.data()),
                 "r"(from.address()), "r"(bytes)
                 : "memory");
#else
    quatt_cp_async_bulk_needs_sm_90();
#endif
#else
    if (host::check_bulk("bulk store", to, from, bytes, site))
        simt::block().bulk_store(reinterpret_cast<u8*>(to.data()), from.address(), bytes, site);
#endif
}

// cp.async.bulk.commit_group. PTX ISA 9.7.9.25.6.1
QUATT_DEV void bulk_commit([[maybe_unused]] Site site = Site::current()) {
#if defined(__CUDACC__)
#if QUATT_HAS_BULK_COPY
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
#else
    quatt_cp_async_bulk_needs_sm_90();
#endif
#else
    simt::block().store_commit(site);
#endif
}

// cp.async.bulk.wait_group.read: the source of all but the newest `GroupsLeft` groups may be
// written again. PTX ISA 9.7.9.25.6.2
template <int GroupsLeft>
QUATT_DEV void bulk_wait_read([[maybe_unused]] Site site = Site::current()) {
#if defined(__CUDACC__)
#if QUATT_HAS_BULK_COPY
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(GroupsLeft) : "memory");
#else
    quatt_cp_async_bulk_needs_sm_90();
#endif
#else
    simt::block().store_wait(GroupsLeft, site);
#endif
}

}  // namespace QUATT_ABI
}  // namespace quatt::ptx
