// Device `simt:ARCH`: the GPU kernels, run by the executor on host memory. For tests; never chosen
// by itself.
#include <algorithm>

#include "core/backends.hpp"
#include "core/float_state.hpp"
#include "core/host_call.hpp"
#include "cuda/backend.hpp"
#include "cuda/stages.cuh"

namespace quatt::core {
namespace {

constexpr std::int32_t kBlocks =
    2;  // of a persistent grid: few, so that a block takes several items

Status run_simt(const Plan& plan, const Request& request) {
    Reasons reasons;
    check_host_copies(request.tensors, plan.shape, reasons);
    if (!reasons.empty()) {
        return {QUATT_INVALID_ARGUMENT, join(reasons)};
    }
    const FloatState own;  // the executor's threads and fibers inherit it
    cuda::Call call{};
    if (Status s = cuda::prepare_call(plan, request, call); !s.ok()) {
        return s;
    }
    call.blocks = kBlocks;
    launch::Launcher launcher;
    launcher.options.workers = static_cast<std::uint32_t>(plan.choice.threads);
    cuda::run_stages(call, launcher);
    if (launcher.ok) {
        return {};
    }
    std::string message = "the executor reports faults of a kernel:";
    const std::size_t shown = std::min<std::size_t>(launcher.result.reports.size(), 5);
    for (std::size_t i = 0; i < shown; i++) {
        message += "\n" + simt::to_string(launcher.result.reports[i]);
    }
    return {QUATT_INTERNAL, message};
}

constexpr auto kRows =
    cuda::gpu_rows<QUATT_BACKEND_SIMT>(cuda::refuse_gpu, cuda::choose_gpu, run_simt);

}  // namespace

constinit const Backend kSimtBackend{
    .device = QUATT_BACKEND_SIMT,
    .host = true,
    .kernels = kRows,
};

}  // namespace quatt::core
