// Barriers of a warp and a block, and fences.
#pragma once

#include "cuda/ptx/platform.hpp"

namespace quatt::ptx {
inline namespace QUATT_ABI {

// bar.warp.sync of the full warp (__syncwarp): the one warp collective that orders memory.
// Shuffles and votes do not. PTX ISA 9.7.13.2
QUATT_DEV void syncwarp([[maybe_unused]] Site site = Site::current()) {
#if defined(__CUDACC__)
    asm volatile("bar.warp.sync 0xffffffff;" ::: "memory");
#else
    simt::block().syncwarp(site);
#endif
}

// barrier.sync.aligned of `threads` threads on barrier `id` (0 to 15). PTX ISA 9.7.13.1
QUATT_DEV void barrier_sync(u32 id, u32 threads, [[maybe_unused]] Site site = Site::current()) {
#if defined(__CUDACC__)
    asm volatile("barrier.sync.aligned %0, %1;" ::"r"(id), "r"(threads) : "memory");
#else
    simt::block().barrier(id, threads, true, site);
#endif
}

// The same of the whole block on barrier 0 (__syncthreads).
QUATT_DEV void barrier_sync([[maybe_unused]] Site site = Site::current()) {
#if defined(__CUDACC__)
    asm volatile("barrier.sync.aligned 0;" ::: "memory");
#else
    const simt::Dim3 threads = simt::block().launch().threads;
    simt::block().barrier(0, threads.x * threads.y * threads.z, true, site);
#endif
}

// barrier.arrive.aligned: counts, and does not wait. PTX ISA 9.7.13.1
QUATT_DEV void barrier_arrive(u32 id, u32 threads, [[maybe_unused]] Site site = Site::current()) {
#if defined(__CUDACC__)
    asm volatile("barrier.arrive.aligned %0, %1;" ::"r"(id), "r"(threads) : "memory");
#else
    simt::block().barrier(id, threads, false, site);
#endif
}

// fence.proxy.async.shared::cta: generic accesses of shared memory before it are seen by bulk
// copies, and later by wgmma, after it. PTX ISA 9.7.13.4
QUATT_DEV void fence_proxy_async([[maybe_unused]] Site site = Site::current()) {
#if defined(__CUDACC__)
#if QUATT_HAS_BULK_COPY
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
#else
    simt::block().fence_proxy_async(site);
#endif
}

// fence.mbarrier_init.release.cluster: bulk copies see the mbarriers that this thread has
// initialised. PTX ISA 9.7.13.4
QUATT_DEV void fence_mbarrier_init([[maybe_unused]] Site site = Site::current()) {
#if defined(__CUDACC__)
#if QUATT_HAS_BULK_COPY
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
#else
    simt::block().fence_mbarrier_init(site);
#endif
}

// griddepcontrol.wait: the launch just before this one has ended, and its results are there.
// Without programmatic dependent launch it returns at once. NOTE: all launches before have ended if
// each kernel waits before it says grid_launch_dependents. PTX ISA 9.7.13.13
QUATT_DEV void grid_wait([[maybe_unused]] Site site = Site::current()) {
#if defined(__CUDACC__)
#if QUATT_HAS_DEPENDENT_LAUNCH
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
#else
    simt::block().grid_wait(site);
#endif
}

// griddepcontrol.launch_dependents: once all blocks have said it, the next launch may start, and
// runs up to its grid_wait. PTX ISA 9.7.13.13
QUATT_DEV void grid_launch_dependents([[maybe_unused]] Site site = Site::current()) {
#if defined(__CUDACC__)
#if QUATT_HAS_DEPENDENT_LAUNCH
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
#else
    simt::block().grid_launch_dependents(site);
#endif
}

}  // namespace QUATT_ABI
}  // namespace quatt::ptx
