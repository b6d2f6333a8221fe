// The GPU's side of test_native.cpp for what only sm_90a has.
#include <cuda_runtime.h>

#include "../../simt/broadcast_cluster.cuh"
#include "both_wgmma.cuh"
#include "cuda/launch/launcher.hpp"
#include "device.cuh"
#include "recording.hpp"

namespace quatt::test {

namespace {

bool is_sm_90() {
    int devices = 0, major = 0, minor = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) return false;
    check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0));
    check(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0));
    return major == 9 && minor == 0;
}

}  // namespace

bool record_cluster_on_gpu(ClusterRecording& r) {
    if (!is_sm_90()) return false;
    std::uint8_t* in = to_device(r.in);
    std::uint32_t* out = to_device(r.out);
    using namespace cluster_kernel;
    const Params params{
        {in, static_cast<i64>(r.in.size())}, {out, static_cast<i64>(r.out.size())}, r.tiles};
    launch::Launcher launcher;
    launcher.run<broadcast<>>("broadcast", {r.blocks}, kThreads, sizeof(SharedPlan), params,
                              kCluster);
    check(launcher.error);
    check(cudaDeviceSynchronize());
    to_host(r.out, out);
    check(cudaFree(in));
    return true;
}

bool record_wgmma_on_gpu(WgmmaRecording& r) {
    if (!is_sm_90()) return false;
    std::uint8_t* a = to_device(r.a);
    std::uint8_t* b = to_device(r.b);
    float* c = to_device(r.c);
    float* out = to_device(r.out);
    using namespace wgmma_record;
    const Params params{{a, static_cast<i64>(r.a.size())},
                        {b, static_cast<i64>(r.b.size())},
                        {c, static_cast<i64>(r.c.size())},
                        {out, static_cast<i64>(r.out.size())}};
    record<<<r.blocks, 128, kSharedBytes>>>(params);
    check(cudaGetLastError());
    check(cudaDeviceSynchronize());
    to_host(r.out, out);
    check(cudaFree(a));
    check(cudaFree(b));
    check(cudaFree(c));
    return true;
}

}  // namespace quatt::test
