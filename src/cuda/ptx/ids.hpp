// Who runs: thread, block and lane ids. PTX ISA 10.1 (%tid), 10.5 (%ctaid), 10.3 (%laneid)
#pragma once

#include "cuda/ptx/platform.hpp"

namespace quatt::ptx {
inline namespace QUATT_ABI {

#if defined(__CUDACC__)
QUATT_DEV u32 thread_x() {
    return threadIdx.x;
}
QUATT_DEV u32 thread_y() {
    return threadIdx.y;
}
QUATT_DEV u32 thread_z() {
    return threadIdx.z;
}
QUATT_DEV u32 threads_x() {
    return blockDim.x;
}
QUATT_DEV u32 block_x() {
    return blockIdx.x;
}
QUATT_DEV u32 block_y() {
    return blockIdx.y;
}
QUATT_DEV u32 block_z() {
    return blockIdx.z;
}
QUATT_DEV u32 blocks_x() {
    return gridDim.x;
}
QUATT_DEV u32 blocks_y() {
    return gridDim.y;
}
QUATT_DEV u32 blocks_z() {
    return gridDim.z;
}
QUATT_DEV u32 lane_id() {
    u32 lane;
    asm("mov.u32 %0, %%laneid;" : "=r"(lane));
    return lane;
}
// Of a one-dimensional block. The shuffle tells the compiler that it is the same in all lanes.
QUATT_DEV u32 warp_id() {
    return __shfl_sync(0xFFFFFFFFu, threadIdx.x / 32, 0);
}
#else
inline u32 thread_x() {
    return simt::self().thread % simt::block().launch().threads.x;
}
inline u32 thread_y() {
    const simt::Dim3 threads = simt::block().launch().threads;
    return simt::self().thread / threads.x % threads.y;
}
inline u32 thread_z() {
    const simt::Dim3 threads = simt::block().launch().threads;
    return simt::self().thread / threads.x / threads.y;
}
inline u32 threads_x() {
    return simt::block().launch().threads.x;
}
inline u32 block_x() {
    return simt::block().index().x;
}
inline u32 block_y() {
    return simt::block().index().y;
}
inline u32 block_z() {
    return simt::block().index().z;
}
inline u32 blocks_x() {
    return simt::block().launch().grid.x;
}
inline u32 blocks_y() {
    return simt::block().launch().grid.y;
}
inline u32 blocks_z() {
    return simt::block().launch().grid.z;
}
inline u32 lane_id() {
    return simt::self().thread % simt::kLanes;
}
inline u32 warp_id() {
    return simt::self().thread / simt::kLanes;
}
#endif

}  // namespace QUATT_ABI
}  // namespace quatt::ptx
