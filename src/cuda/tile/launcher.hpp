// Starts a kernel: on a stream under nvcc, in the executor under a host compiler.
#pragma once

#include "cuda/ptx/platform.hpp"

#if defined(__CUDACC__)
#include <cuda_runtime.h>
#else
#include "simt/launch.hpp"
#endif

namespace quatt::tile {
inline namespace QUATT_ABI {

using ptx::u32;

struct Grid {
    u32 x = 1, y = 1, z = 1;
};

#if defined(__CUDACC__)

struct Launcher {
    cudaStream_t stream = nullptr;
    cudaError_t error = cudaSuccess;  // the first; later launches are skipped
    const char* failed = "";          // kernel that it belongs to

    template <auto Kernel, class P>
    void run(const char* name, Grid grid, u32 threads, u32 shared_bytes, const P& params) {
        if (error == cudaSuccess && shared_bytes > 48 * 1024) {
            error = cudaFuncSetAttribute(Kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                         static_cast<int>(shared_bytes));
        }
        if (error == cudaSuccess) {
            Kernel<<<dim3(grid.x, grid.y, grid.z), threads, shared_bytes, stream>>>(params);
            error = cudaGetLastError();
            failed = error == cudaSuccess ? failed : name;
        }
    }
};

#else

struct Launcher {
    simt::Options options;
    simt::Result result;  // of all kernels so far
    bool ok = true;

    template <auto Kernel, class P>
    void run(const char* name, Grid grid, u32 threads, u32 shared_bytes, const P& params) {
        if (!ok) {
            return;
        }
        simt::Result r = simt::launch({name, {grid.x, grid.y, grid.z}, {threads}, shared_bytes},
                                      options, [&] { Kernel(params); });
        ok = r.ok();
        result.reports.insert(result.reports.end(), r.reports.begin(), r.reports.end());
    }
};

#endif

}  // namespace QUATT_ABI
}  // namespace quatt::tile
