// The GPU's side of test_native.cpp.
#include <cuda_runtime.h>

#include "both.cuh"
#include "device.cuh"
#include "recording.hpp"

namespace quatt::test {
bool record_on_gpu(Recording& r) {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) return false;
    std::uint8_t* bytes = to_device(r.bytes);
    float* floats = to_device(r.floats);
    std::uint32_t* exact = to_device(r.exact);
    float* sums = to_device(r.sums);
    float* approximate = to_device(r.approximate);
    const BothParams params{{bytes, static_cast<i64>(r.bytes.size())},
                            {floats, static_cast<i64>(r.floats.size())},
                            {exact, static_cast<i64>(r.exact.size())},
                            {sums, static_cast<i64>(r.sums.size())},
                            {approximate, static_cast<i64>(r.approximate.size())}};
    record<<<r.warps, 32, 1024>>>(params);
    check(cudaGetLastError());
    check(cudaDeviceSynchronize());
    to_host(r.exact, exact);
    to_host(r.sums, sums);
    to_host(r.approximate, approximate);
    check(cudaFree(bytes));
    check(cudaFree(floats));
    return true;
}

}  // namespace quatt::test
