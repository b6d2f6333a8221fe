// Devices `cuda[:N]` and `emu:ARCH[:N]` in the support table.
#include "core/device.hpp"
#include "cuda/backend.hpp"
#include "cuda/native.hpp"

namespace quatt::core {
namespace {

// Where the caller did not say which GPU it is, the driver is asked.
quatt_device resolved(quatt_device d) {
    cuda::NativeDevice found;
    if (d.backend == QUATT_BACKEND_CUDA && d.compute_major == 0 &&
        cuda::find_native_device(d.ordinal, found)) {
        d.compute_major = found.compute / 10;
        d.compute_minor = found.compute % 10;
        d.sm_count = found.multiprocessors;
    }
    return d;
}

template <auto Refuse>
void refuse(const quatt_problem& p, const quatt_device& d, Reasons& reasons) {
    const quatt_device r = resolved(d);
    if (r.compute_major == 0) {
        reasons.push_back(text("there is no CUDA device ", d.ordinal,
                               ", and the compute capability is not given"));
        return;
    }
    Refuse(p, r, reasons);
}

template <auto Choose>
Choice choose(const quatt_problem& p, const Shape& s, const quatt_device& d) {
    return Choose(p, s, resolved(d));
}

// An emulated body exists for a warp's own instructions only: a warpgroup's accumulators and its
// products under way have no counterpart elsewhere.
void refuse_emulated_wgmma(const quatt_problem& p, const quatt_device& d, Reasons& reasons) {
    reasons.push_back("wgmma cannot be emulated on another GPU; simt:sm_90a runs it on the CPU");
    cuda::refuse_wgmma(p, d, reasons);
}

template <cuda::Schedule Schedule>
Status run_native(const Plan& plan, const quatt_tensors& t, std::span<std::byte> workspace,
                  void* stream) {
    cuda::Call call{};
    if (Status s = cuda::prepare_call(plan, t, workspace, Schedule, call); !s.ok()) {
        return s;
    }
    const cuda::NativeResult r = cuda::run_native(call, plan.choice.device.ordinal, stream);
    if (r.error != 0) {
        return {QUATT_DEVICE_ERROR, text(r.where, ": CUDA error ", r.error, ", ", r.message)};
    }
    return {};
}

}  // namespace

bool is_device_memory(const void* p) {
    return cuda::is_native_memory(p);
}

constinit const Kernel kCudaWgmmaKernel =
    cuda::wgmma_row(QUATT_BACKEND_CUDA, refuse<cuda::refuse_wgmma>, choose<cuda::choose_wgmma>,
                    run_native<cuda::Schedule::kWgmma>);
constinit const Kernel kCudaKernel =
    cuda::warp_mma_row(QUATT_BACKEND_CUDA, refuse<cuda::refuse_gpu>, choose<cuda::choose_gpu>,
                       run_native<cuda::Schedule::kWarpMma>);
constinit const Kernel kEmuWgmmaKernel =
    cuda::wgmma_row(QUATT_BACKEND_EMU, refuse<refuse_emulated_wgmma>, choose<cuda::choose_wgmma>,
                    run_native<cuda::Schedule::kWgmma>);
constinit const Kernel kEmuKernel =
    cuda::warp_mma_row(QUATT_BACKEND_EMU, refuse<cuda::refuse_gpu>, choose<cuda::choose_gpu>,
                       run_native<cuda::Schedule::kWarpMma>);

}  // namespace quatt::core
