// Devices `cuda[:N]` and `emu:ARCH[:N]` in the support table.
#include <cstring>

#include "core/backends.hpp"
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

void refuse(const Kernel& row, const quatt_problem& p, const quatt_device& d, Reasons& reasons) {
    const quatt_device r = resolved(d);
    if (r.compute_major == 0) {
        reasons.push_back(text("there is no CUDA device ", d.ordinal,
                               ", and the compute capability is not given"));
        return;
    }
    cuda::refuse_gpu(row, p, r, reasons);
}

Choice choose(const Kernel& row, const quatt_problem& p, const Shape& s, const quatt_device& d) {
    return cuda::choose_gpu(row, p, s, resolved(d));
}

Status run_native(const Plan& plan, const quatt_tensors& t, std::span<std::byte> workspace,
                  void* stream) {
    cuda::Call call{};
    if (Status s = cuda::prepare_call(plan, t, workspace, call); !s.ok()) {
        return s;
    }
    const cuda::NativeResult r = cuda::run_native(call, plan.choice.device.ordinal, stream);
    if (r.error != 0) {
        return {QUATT_DEVICE_ERROR, text(r.where, ": CUDA error ", r.error, ", ", r.message)};
    }
    return {};
}

const char* why_not_emulated(const char* kernel) {
    for (const cuda::ScheduleRow& s : cuda::kSchedules) {
        if (std::strcmp(s.name, kernel) == 0) {
            return s.not_emulated;
        }
    }
    return nullptr;
}

constexpr auto kCudaRows = cuda::gpu_rows<QUATT_BACKEND_CUDA>(refuse, choose, run_native);
constexpr auto kEmuRows = cuda::gpu_rows<QUATT_BACKEND_EMU>(refuse, choose, run_native);

}  // namespace

constinit const Backend kCudaBackend{
    .device = QUATT_BACKEND_CUDA,
    .kernels = kCudaRows,
    .owns_memory = cuda::is_native_memory,
};
constinit const Backend kEmuBackend{
    .device = QUATT_BACKEND_EMU,
    .kernels = kEmuRows,
    .why_absent = why_not_emulated,
};

}  // namespace quatt::core
