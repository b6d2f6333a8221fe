// The CPU backend: the named recipes, multi-threaded, by the portable emulation's arithmetic.
#include <quatt/quatt.h>

#include "core/kernel.hpp"
#include "core/portable.hpp"
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

}  // namespace

const Kernel kCpuKernel = {
    "cpu",
    QUATT_BACKEND_CPU,
    true,
    true,
    "",
    "bf16 f16 fp8 fp8_head int8_fp8 nvfp4 nvfp4_fp8",
    "1..256",
    "q, k, v: f32 bf16 f16 e4m3 in any mix; out: bf16 f16 f32",
    "dense packed causal window gqa lse sink descale kv_lens splits zero_tail",
    refuse,
    choose,
    run_cpu};

}  // namespace quatt::core
