// Devices `cuda[:N]` and `emu:ARCH[:N]` in the support table.
#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>

#include "core/backends.hpp"
#include "core/device.hpp"
#include "cuda/backend.hpp"
#include "cuda/native.hpp"

namespace quatt::core {
namespace {

// Compute capabilities that this build has machine code for (QUATT_CUDA_ARCHITECTURES).
constexpr std::string_view kBuilt = QUATT_CUDA_COMPUTE;

// Of each schedule those that it is for.
constexpr auto built_compute() {
    std::array<std::array<char, kBuilt.size() + 1>, cuda::kSchedules.size()> all{};
    for (std::size_t i = 0; i < all.size(); i++) {
        std::size_t length = 0;
        for (std::size_t at = 0, end = 0; at < kBuilt.size(); at = end + 1) {
            end = std::min(kBuilt.find(' ', at), kBuilt.size());
            const std::string_view one = kBuilt.substr(at, end - at);
            if (cuda::is_among(cuda::kSchedules[i]->compute, one)) {
                if (length > 0) {
                    all[i][length++] = ' ';
                }
                length += one.copy(&all[i][length], one.size());
            }
        }
    }
    return all;
}
constexpr auto kBuiltCompute = built_compute();

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
    // Code of the GPU that runs it: emu's is another one than it emulates, and where there is none
    // the question stays open.
    const bool is_emu = d.backend == QUATT_BACKEND_EMU;
    cuda::NativeDevice gpu{10 * r.compute_major + r.compute_minor, 0};
    if (!is_emu || cuda::find_native_device(d.ordinal, gpu)) {
        const std::string compute = text(gpu.compute / 10, ".", gpu.compute % 10);
        const auto& schedule = *static_cast<const schedule::ScheduleRow*>(row.variant);
        // Of a GPU that the schedule is not for, refuse_gpu speaks.
        if (!cuda::is_among(kBuilt, compute) &&
            (is_emu || cuda::is_among(schedule.compute, compute))) {
            reasons.push_back(text("compute capability of GPU ", d.ordinal, " is ", compute,
                                   "; this build has code for ", kBuilt,
                                   " (CMake option QUATT_CUDA_ARCHITECTURES)"));
        }
    }
    cuda::refuse_gpu(row, p, r, reasons);
}

Choice choose(const Kernel& row, const quatt_problem& p, const Shape& s, const quatt_device& d) {
    return cuda::choose_gpu(row, p, s, resolved(d));
}

Status run_native(const Plan& plan, const Request& request) {
    cuda::Call call{};
    if (Status s = cuda::prepare_call(plan, request, call); !s.ok()) {
        return s;
    }
    const cuda::NativeResult r = cuda::run_native(call, plan.choice.device.ordinal, request.stream);
    if (r.error != 0) {
        return {QUATT_DEVICE_ERROR, text(r.where, ": CUDA error ", r.error, ", ", r.message)};
    }
    return {};
}

const char* why_not_on_emu(const char* kernel) {
    for (const schedule::ScheduleRow* s : cuda::kSchedules) {
        if (std::strcmp(s->name, kernel) == 0) {
            return s->not_on_emu;
        }
    }
    return nullptr;
}

constexpr auto cuda_rows() {
    auto rows = cuda::gpu_rows<QUATT_BACKEND_CUDA>(refuse, choose, run_native);
    static_assert(rows.size() == kBuiltCompute.size());
    for (std::size_t i = 0; i < rows.size(); i++) {
        rows[i].compute = kBuiltCompute[i].data();
    }
    return rows;
}
constexpr auto kCudaRows = cuda_rows();
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
    .why_absent = why_not_on_emu,
};

}  // namespace quatt::core
