#include "cuda/native.hpp"

#include "cuda/stages.cuh"

namespace quatt::cuda {

NativeResult run_native(Call call, int device, void* stream) {
    const auto result = [](cudaError_t e, const char* where) {
        return NativeResult{static_cast<int>(e), cudaGetErrorString(e), where};
    };
    int before = 0;
    if (const cudaError_t e = cudaGetDevice(&before); e != cudaSuccess) {
        return result(e, "cudaGetDevice");
    }
    if (before != device) {
        if (const cudaError_t e = cudaSetDevice(device); e != cudaSuccess) {
            return result(e, "cudaSetDevice");
        }
    }
    launch::Launcher launcher;
    launcher.stream = static_cast<cudaStream_t>(stream);
    launcher.overlaps = call.overlaps;
    if (call.blocks == 0) {
        launcher.error =
            cudaDeviceGetAttribute(&call.blocks, cudaDevAttrMultiProcessorCount, device);
        launcher.failed = "cudaDeviceGetAttribute";
    }
    if (launcher.error == cudaSuccess) {
        run_stages(call, launcher);
    }
    if (before != device) {
        const cudaError_t e = cudaSetDevice(before);
        if (launcher.error == cudaSuccess && e != cudaSuccess) {
            launcher.error = e;
            launcher.failed = "cudaSetDevice";
        }
    }
    return launcher.error == cudaSuccess ? NativeResult{} : result(launcher.error, launcher.failed);
}

bool find_native_device(int device, NativeDevice& found) {
    int major = 0, minor = 0;
    const bool ok =
        cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) == cudaSuccess &&
        cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device) == cudaSuccess &&
        cudaDeviceGetAttribute(&found.multiprocessors, cudaDevAttrMultiProcessorCount, device) ==
            cudaSuccess;
    found.compute = 10 * major + minor;
    if (!ok) {
        (void)cudaGetLastError();  // the caller gets a message; no later call shall find this error
    }
    return ok;
}

bool is_native_memory(const void* p) {
    cudaPointerAttributes attributes{};
    if (p == nullptr || cudaPointerGetAttributes(&attributes, p) != cudaSuccess) {
        (void)cudaGetLastError();
        return false;
    }
    return attributes.type == cudaMemoryTypeDevice;
}

}  // namespace quatt::cuda
