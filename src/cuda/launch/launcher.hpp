// Starts a kernel: on a stream under nvcc, in the executor under a host compiler.
#pragma once

#include "cuda/ptx/platform.hpp"

#if defined(__CUDACC__)
#include <cuda_runtime.h>
#else
#include "simt/launch.hpp"
#endif

namespace quatt::launch {
inline namespace QUATT_ABI {

using ptx::u32;

struct Grid {
    u32 x = 1, y = 1, z = 1;
};

#if defined(__CUDACC__)

struct Launcher {
    cudaStream_t stream = nullptr;
    // Whether each launch but the first may start while the one before it ends (programmatic
    // dependent launch, sm_90 and later).
    bool overlaps = false;
    bool has_launched = false;
    cudaError_t error = cudaSuccess;  // the first; later launches are skipped
    const char* failed = "";          // kernel that it belongs to

    // A kernel that this build does not have.
    void fail(const char* name) {
        if (error == cudaSuccess) {
            error = cudaErrorInvalidDeviceFunction;
            failed = name;
        }
    }

    // `cluster`: neighbouring blocks along x that run at once; more than 1 needs sm_90.
    template <auto Kernel, class P>
    void run(const char* name, Grid grid, u32 threads, u32 shared_bytes, const P& params,
             u32 cluster = 1) {
        if (error == cudaSuccess && shared_bytes > 48 * 1024) {
            error = cudaFuncSetAttribute(Kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                         static_cast<int>(shared_bytes));
            failed = "cudaFuncSetAttribute";
        }
        if (error == cudaSuccess) {
            cudaLaunchAttribute attributes[2] = {};
            u32 count = 0;
            if (cluster > 1) {
                attributes[count].id = cudaLaunchAttributeClusterDimension;
                attributes[count].val.clusterDim.x = cluster;
                attributes[count].val.clusterDim.y = attributes[count].val.clusterDim.z = 1;
                count++;
            }
            if (overlaps && has_launched) {
                attributes[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
                attributes[count].val.programmaticStreamSerializationAllowed = 1;
                count++;
            }
            has_launched = true;
            cudaLaunchConfig_t config{};
            config.gridDim = dim3(grid.x, grid.y, grid.z);
            config.blockDim = dim3(threads);
            config.dynamicSmemBytes = shared_bytes;
            config.stream = stream;
            config.attrs = attributes;
            config.numAttrs = count;
            error = cudaLaunchKernelEx(&config, Kernel, params);
            if (error != cudaSuccess) {
                failed = name;
                (void)cudaGetLastError();  // or the caller would meet it again
            }
        }
    }
};

#else

struct Launcher {
    simt::Options options;
    simt::Result result;  // of all kernels so far
    bool ok = true;
    bool has_launched = false;

    void fail(const char*) { ok = false; }

    template <auto Kernel, class P>
    void run(const char* name, Grid grid, u32 threads, u32 shared_bytes, const P& params,
             u32 cluster = 1) {
        if (!ok) {
            return;
        }
        simt::Result r = simt::launch(
            {name, {grid.x, grid.y, grid.z}, {threads}, shared_bytes, 0, cluster, has_launched},
            options, [&] { Kernel(params); });
        has_launched = true;
        ok = r.ok();
        result.reports.insert(result.reports.end(), r.reports.begin(), r.reports.end());
    }
};

#endif

}  // namespace QUATT_ABI
}  // namespace quatt::launch
