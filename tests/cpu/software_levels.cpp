#include "cpu/software_levels.hpp"

#include <array>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "core/device.hpp"
#include "core/kernel.hpp"
#include "cpu/rows.hpp"

namespace quatt::test {
namespace {

constexpr std::array kLevels = {
    cpu::Level{
        .kernel = "cpu_avx512_fp16_software",
        .needs = "AVX512F AVX512BW AVX512DQ AVX512VL AVX512VNNI",
        .kernels = &cpu::kEmulatedAvx512Fp16Kernels,
        .int8 = true,
        .bf16 = false,
        .f16 = true,
        .supported = cpu::has_avx512_vnni,
    },
    cpu::Level{
        .kernel = "cpu_amx_software",
        .needs = "AVX512F AVX512BW AVX512DQ AVX512VL AVX512VNNI AVX512BF16",
        .kernels = &cpu::kEmulatedAmxKernels,
        .int8 = true,
        .bf16 = true,
        .f16 = false,
        .supported = cpu::has_avx512_bf16,
    },
};

// The device cpu with these levels alone.
constexpr std::array kRows = {cpu::level_row(kLevels[0]), cpu::level_row(kLevels[1])};
constexpr core::Backend kBackend{
    .device = QUATT_BACKEND_CPU,
    .host = true,
    .kernels = kRows,
};

std::unique_ptr<core::Plan> plan_on(const cpu::Level& level, const quatt_problem& p) {
    static constexpr std::array kTable = {&kBackend};
    quatt_problem named = p;
    named.kernel = level.kernel;
    return core::make_plan(named, core::parse_device("cpu").value(), kTable).value();
}

}  // namespace

const cpu::Level* software_level(const char* name) {
    for (const cpu::Level& level : kLevels) {
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
