// What the three GPU devices (cuda, emu, simt) share on the host.
#pragma once

#include "core/kernel.hpp"
#include "cuda/call.hpp"

namespace quatt::cuda {

// Compute capabilities that the kernels are built for.
inline constexpr const char* kCompute = "9.0 12.0 12.1";

// Rows of the support table.
using Refuse = void (*)(const quatt_problem& p, const quatt_device& d, core::Reasons& reasons);
using Choose = core::Choice (*)(const quatt_problem& p, const core::Shape& s,
                                const quatt_device& d);
using Run = Status (*)(const core::Plan& plan, const quatt_tensors& tensors,
                       std::span<std::byte> workspace, void* stream);
[[nodiscard]] constexpr core::Kernel gpu_row(const char* name, quatt_backend backend,
                                             const char* compute, const char* recipes,
                                             const char* dtypes, Refuse refuse, Choose choose,
                                             Run run) {
    return {name,     backend, backend == QUATT_BACKEND_SIMT,
            false,    compute, recipes,
            "1..128", dtypes,  "dense packed causal gqa lse kv_lens zero_tail status_word",
            refuse,   choose,  run};
}
[[nodiscard]] constexpr core::Kernel warp_mma_row(quatt_backend backend, Refuse refuse,
                                                  Choose choose, Run run) {
    return gpu_row("warp_mma", backend, kCompute, "bf16 f16 fp8",
                   "q, k, v: all bf16 or all f16 (bf16 and f16: their own); out: bf16 f16 f32",
                   refuse, choose, run);
}
// Its accumulators are Hopper's: accumulator=hopper with key_tile=64 is its emulation.
[[nodiscard]] constexpr core::Kernel wgmma_row(quatt_backend backend, Refuse refuse, Choose choose,
                                               Run run) {
    return gpu_row("wgmma", backend, "9.0", "fp8",
                   "q, k, v: all bf16 or all f16; out: bf16 f16 f32", refuse, choose, run);
}

void refuse_gpu(const quatt_problem& p, const quatt_device& d, core::Reasons& reasons);
[[nodiscard]] core::Choice choose_gpu(const quatt_problem& p, const core::Shape& s,
                                      const quatt_device& d);
void refuse_wgmma(const quatt_problem& p, const quatt_device& d, core::Reasons& reasons);
[[nodiscard]] core::Choice choose_wgmma(const quatt_problem& p, const core::Shape& s,
                                        const quatt_device& d);
[[nodiscard]] Call make_call(const quatt_problem& p, const core::Shape& s, const quatt_device& d,
                             const quatt_tensors& t);
// The call of a plan with these tensors; refuses tensors that are less aligned than the plan's.
[[nodiscard]] Status prepare_call(const core::Plan& plan, const quatt_tensors& t,
                                  std::span<std::byte> workspace, Schedule schedule, Call& call);

}  // namespace quatt::cuda
