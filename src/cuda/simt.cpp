// Device `simt:ARCH`: the GPU kernels, run by the executor on host memory. For tests; never chosen
// by itself.
#include <algorithm>

#include "core/backends.hpp"
#include "core/host_call.hpp"
#include "cuda/backend.hpp"
#include "cuda/chain.cuh"

// Every schedule has launch_attention and Params of its own.
#define QUATT_DEFINE(name, ...)                                                                  \
    void attention_##name(tile::Launcher& launcher, const Params& params, u32 multiprocessors) { \
        launch_attention<__VA_ARGS__>(launcher, params, multiprocessors);                        \
    }

namespace quatt::warp_mma {
inline namespace simt_abi {

QUATT_WARP_MMA_INSTANCES(QUATT_DEFINE)

}  // namespace simt_abi
}  // namespace quatt::warp_mma

namespace quatt::wgmma {
inline namespace simt_abi {

QUATT_WGMMA_INSTANCES(QUATT_DEFINE)

}  // namespace simt_abi
}  // namespace quatt::wgmma

#undef QUATT_DEFINE

namespace quatt::core {
namespace {

constexpr std::int32_t kBlocks =
    2;  // of a persistent grid: few, so that a block takes several items

Status run_simt(const Plan& plan, const quatt_tensors& t, std::span<std::byte> workspace, void*) {
    Reasons reasons;
    check_host_copies(t, plan.shape, reasons);
    if (!reasons.empty()) {
        return {QUATT_INVALID_ARGUMENT, join(reasons)};
    }
    cuda::Call call{};
    if (Status s = cuda::prepare_call(plan, t, workspace, call); !s.ok()) {
        return s;
    }
    call.blocks = kBlocks;
    tile::Launcher launcher;
    launcher.options.workers = static_cast<std::uint32_t>(plan.choice.threads);
    cuda::run_chain(call, launcher);
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
