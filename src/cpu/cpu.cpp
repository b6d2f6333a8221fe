// The CPU's rows of the support table: the fast engine on each instruction-set level, then the
// portable engine, for processors without any of them.
#include <quatt/quatt.h>

#include "core/device.hpp"
#include "core/kernel.hpp"
#include "core/portable.hpp"
#include "cpu/engine.hpp"
#include "recipe/recipes.hpp"

namespace quatt::core {
namespace {

void refuse(const quatt_problem& p, const quatt_device&, Reasons& reasons) {
    refuse_all_but(p, {}, reasons);
    const quatt_recipe* named = recipe::find_recipe(p.recipe.name);
    if (named == nullptr || !recipe::same_arithmetic(*named, p.recipe)) {
        reasons.push_back(
            text("recipe \"", p.recipe.name,
                 "\" is not one of the named recipes as they are; emulate takes changed ones"));
    }
    if (p.key_tile != 0 && p.key_tile != 64) {
        reasons.push_back(text("key_tile is ", p.key_tile, "; this kernel has 64"));
    }
}

Choice choose(const quatt_problem& p, const Shape& s, const quatt_device&) {
    return choose_portable(p, s, true);
}

Status run_cpu(const Plan& plan, const quatt_tensors& t, std::span<std::byte> w, void*) {
    return run_emulated(plan, t, w);
}

#if defined(__x86_64__)

template <std::size_t kLevel>
void refuse_level(const quatt_problem& p, const quatt_device& d, Reasons& reasons) {
    const cpu::Level& level = cpu::levels()[kLevel];
    refuse(p, d, reasons);
    if (!level.supported()) {
        reasons.push_back(text("needs ", level.needs, "; this CPU has ", cpu_features()));
    } else if (!level.preferred(p.recipe) && p.kernel == nullptr) {
        reasons.push_back(text("is not faster than the next with this recipe on this CPU; kernel=",
                               level.kernel, " takes it all the same"));
    } else if (reasons.empty()) {  // asked last: the answer changes the process (level.cpp)
        if (std::string no = level.permission(); !no.empty()) {
            reasons.push_back(std::move(no));
        }
    }
}

template <std::size_t kLevel>
Choice choose_level(const quatt_problem& p, const Shape& s, const quatt_device&) {
    return cpu::choose(p, s, cpu::levels()[kLevel]);
}

template <std::size_t kLevel>
Status run_level(const Plan& plan, const quatt_tensors& t, std::span<std::byte> w, void*) {
    return cpu::run(plan, t, cpu::levels()[kLevel], w);
}

#endif

constexpr const char* kRecipes = "bf16 f16 fp8 fp8_head int8_fp8 nvfp4 nvfp4_fp8";
constexpr const char* kDtypes = "q, k, v: f32 bf16 f16 e4m3 in any mix; out: bf16 f16 f32";
constexpr const char* kFeatures =
    "dense packed causal window gqa lse sink descale kv_lens splits zero_tail";

}  // namespace

#if defined(__x86_64__)

// NOTE: its order is that of cpu::levels().
template <std::size_t kLevel>
constexpr Kernel level_kernel(const char* name) {
    return {name,
            QUATT_BACKEND_CPU,
            true,
            true,
            "",
            kRecipes,
            "1..256",
            kDtypes,
            kFeatures,
            refuse_level<kLevel>,
            choose_level<kLevel>,
            run_level<kLevel>};
}
const Kernel kCpuLevelKernels[6] = {
    level_kernel<0>("cpu_amx"),         level_kernel<1>("cpu_avx512_fp16"),
    level_kernel<2>("cpu_avx512_bf16"), level_kernel<3>("cpu_avx512_vnni"),
    level_kernel<4>("cpu_avx512"),      level_kernel<5>("cpu_avx2")};

#endif

const Kernel kCpuKernel = {"cpu",    QUATT_BACKEND_CPU, true,      true,   "",     kRecipes,
                           "1..256", kDtypes,           kFeatures, refuse, choose, run_cpu};

}  // namespace quatt::core
