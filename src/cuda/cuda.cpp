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

void refuse(const quatt_problem& p, const quatt_device& d, Reasons& reasons) {
    const quatt_device r = resolved(d);
    if (r.compute_major == 0) {
        reasons.push_back(text("there is no CUDA device ", d.ordinal,
                               ", and the compute capability is not given"));
        return;
    }
    cuda::refuse_gpu(p, r, reasons);
}

Choice choose(const quatt_problem& p, const Shape& s, const quatt_device& d) {
    return cuda::choose_gpu(p, s, resolved(d));
}

Status run_native(const Plan& plan, const quatt_tensors& t, std::span<std::byte> workspace,
                  void* stream) {
    cuda::Call call = cuda::make_call(plan.problem, plan.shape, plan.device, t);
    if (Status s = cuda::check_alignment(plan, call); !s.ok()) {
        return s;
    }
    call.is_direct =
        cuda::make_call(plan.problem, plan.shape, plan.device, plan.problem.tensors).is_direct;
    call.workspace = workspace.data();
    const cuda::NativeResult r = cuda::run_native(call, plan.device.ordinal, stream);
    if (r.error != 0) {
        return {QUATT_DEVICE_ERROR, text(r.where, ": CUDA error ", r.error, ", ", r.message)};
    }
    return {};
}

constexpr const char* kDtypes =
    "q, k, v: all bf16 or all f16 (bf16 and f16: their own); out: bf16 f16 f32";
constexpr const char* kFeatures = "dense packed causal gqa lse kv_lens zero_tail status_word";

}  // namespace

bool is_device_memory(const void* p) {
    return cuda::is_native_memory(p);
}

const Kernel kCudaKernel = {"warp_mma",     QUATT_BACKEND_CUDA, false,   false,     cuda::kCompute,
                            "bf16 f16 fp8", "1..128",           kDtypes, kFeatures, refuse,
                            choose,         run_native};
const Kernel kEmuKernel = {"warp_mma",     QUATT_BACKEND_EMU, false,   false,     cuda::kCompute,
                           "bf16 f16 fp8", "1..128",          kDtypes, kFeatures, refuse,
                           choose,         run_native};

}  // namespace quatt::core
