// Clusters: blocks that run at once on neighbouring multiprocessors and reach each other's shared
// memory. sm_90 and newer.
#pragma once

#include "cuda/ptx/copy.hpp"

namespace quatt::ptx {
inline namespace QUATT_ABI {

// %cluster_ctarank: this block's number in its cluster. PTX ISA 10.19
[[nodiscard]] QUATT_DEV u32 cluster_rank() {
#if defined(__CUDACC__)
    u32 rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
#else
    return simt::block().cluster_rank();
#endif
}

// barrier.cluster.arrive (release) and wait (acquire) of all threads. PTX ISA 9.7.13.6
QUATT_DEV void cluster_sync([[maybe_unused]] Site site = Site::current()) {
#if defined(__CUDACC__)
#if QUATT_HAS_BULK_COPY
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::
                     : "memory");
#endif
#else
    simt::block().cluster_sync(site);
#endif
}

// mapa and mbarrier.arrive (release, cluster): one arrival on the mbarrier at the same place in the
// shared memory of block `rank`. PTX ISA 9.7.9.23, 9.7.13.15.13
QUATT_DEV void mbarrier_arrive_at(Shared barrier, u32 rank,
                                  [[maybe_unused]] Site site = Site::current()) {
#if defined(__CUDACC__)
#if QUATT_HAS_BULK_COPY
    asm volatile(
        "{\n"
        ".reg .b32 remote;\n"
        "mapa.shared::cluster.u32 remote, %0, %1;\n"
        "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [remote];\n"
        "}\n" ::"r"(barrier.address()),
        "r"(rank)
        : "memory");
#else
    quatt_mbarrier_needs_sm_90();
#endif
#else
    simt::block().mbarrier_arrive_at(barrier.address(), rank, site);
#endif
}

#if defined(__CUDACC__) && !QUATT_HAS_WGMMA
extern "C" __device__ void quatt_multicast_needs_sm_90a();
#endif

// cp.async.bulk with .multicast::cluster: the bytes go to the same place in the shared memory of
// every block whose bit is set in `ranks`, and count towards the mbarrier at the same place there.
// PTX ISA 9.7.9.25.4.1
template <class T>
QUATT_DEV void bulk_load_multicast(Shared to, Global<const T> from, u32 bytes, Shared barrier,
                                   u16 ranks, [[maybe_unused]] Site site = Site::current()) {
#if defined(__CUDACC__)
#if QUATT_HAS_WGMMA  // slow elsewhere, where it exists at all
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
        "[%0], [%1], %2, [%3], %4;" ::"r"(to.address()),
        "l"(from.data()), "r"(bytes), "r"(barrier.address()), "h"(ranks)
        : "memory");
#else
    quatt_multicast_needs_sm_90a();
#endif
#else
    if (host::check_bulk("bulk load", to, from, bytes, site))
        simt::block().bulk_load_multicast(to.address(), reinterpret_cast<const u8*>(from.data()),
                                          bytes, barrier.address(), ranks, site);
#endif
}

}  // namespace QUATT_ABI
}  // namespace quatt::ptx
