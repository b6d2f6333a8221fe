#include "cpu/emulated_levels.hpp"

#include <array>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/device.hpp"
#include "core/kernel.hpp"
#include "cpu/engine.hpp"

namespace quatt::test {
namespace {

std::string nothing_to_ask() {
    return {};
}
bool always(const quatt_recipe&) {
    return true;
}
bool has_avx512_vnni() {
    return cpu::levels()[3].supported();
}
bool has_avx512_bf16() {
    return cpu::levels()[2].supported();
}

const std::array<cpu::Level, 2>& levels() {
    static constexpr std::array<cpu::Level, 2> kLevels = {{
        {"cpu_avx512_fp16_emulated", "AVX512F AVX512BW AVX512DQ AVX512VL AVX512VNNI",
         &cpu::kEmulatedAvx512Fp16Kernels, true, false, true, has_avx512_vnni, nothing_to_ask,
         always},
        {"cpu_amx_emulated", "AVX512F AVX512BW AVX512DQ AVX512VL AVX512VNNI AVX512BF16",
         &cpu::kEmulatedAmxKernels, true, true, false, has_avx512_bf16, nothing_to_ask, always},
    }};
    return kLevels;
}

template <std::size_t kLevel>
core::Choice choose(const quatt_problem& p, const core::Shape& s, const quatt_device&) {
    return cpu::choose(p, s, levels()[kLevel]);
}
template <std::size_t kLevel>
Status run(const core::Plan& plan, const quatt_tensors& t, std::span<std::byte> w, void*) {
    return cpu::run(plan, t, levels()[kLevel], w);
}

// The plan of the portable engine, carried over to a level: both take the same problems.
std::unique_ptr<core::Plan> plan_on(const cpu::Level& level, const quatt_problem& p) {
    static const std::array<core::Kernel, 2> kernels = [] {
        std::array<core::Kernel, 2> both = {core::kCpuKernel, core::kCpuKernel};
        both[0].choose = choose<0>;
        both[0].run = run<0>;
        both[1].choose = choose<1>;
        both[1].run = run<1>;
        return both;
    }();
    quatt_problem portable = p;
    portable.kernel = "cpu";
    const quatt_device device = core::parse_device("cpu").value();
    auto plan = core::make_plan(portable, device).value();
    plan->kernel = &kernels[static_cast<std::size_t>(&level - levels().data())];
    plan->choice = plan->kernel->choose(plan->problem, plan->shape, device);
    return plan;
}

}  // namespace

const cpu::Level* emulated_level(const char* name) {
    for (const cpu::Level& level : levels()) {
        if (std::strcmp(level.kernel, name) == 0) {
            return &level;
        }
    }
    return nullptr;
}

std::size_t workspace_on(const cpu::Level& level, const quatt_problem& p) {
    return plan_on(level, p)->choice.workspace_bytes;
}

Status run_on(const cpu::Level& level, const quatt_problem& p) {
    const auto plan = plan_on(level, p);
    std::vector<std::byte> workspace(plan->choice.workspace_bytes + core::kWorkspaceAlign);
    void* base = workspace.data();
    std::size_t room = workspace.size();
    base = std::align(core::kWorkspaceAlign, plan->choice.workspace_bytes, base, room);
    return core::run(*plan, p.tensors, base, plan->choice.workspace_bytes, nullptr);
}

}  // namespace quatt::test
