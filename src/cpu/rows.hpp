// An instruction-set level as a row of the support table.
#pragma once
#include "core/kernel.hpp"
#include "core/portable.hpp"
#include "cpu/level.hpp"

namespace quatt::cpu {

// What the fast engine and the portable one take on the device cpu.
inline constexpr const char* kRecipes = "bf16 f16 fp8 fp8_head int8_fp8 nvfp4 nvfp4_fp8";
inline constexpr const char* kFeatures =
    "dense packed causal window gqa lse sink descale kv_lens splits zero_tail";

void refuse_level(const core::Kernel& row, const quatt_problem& p, const quatt_device& d,
                  core::Reasons& reasons);
[[nodiscard]] core::Choice choose_level(const core::Kernel& row, const quatt_problem& p,
                                        const core::Shape& s, const quatt_device& d);
[[nodiscard]] Status run_level(const core::Plan& plan, const core::Request& request);

// The level must outlive the row.
[[nodiscard]] constexpr core::Kernel level_row(const Level& level) {
    return {
        .name = level.kernel,
        .recipes = kRecipes,
        .head_dims = core::kHostHeadDims,
        .dtypes = core::kHostDtypes,
        .features = kFeatures,
        .variant = &level,
        .refuse = refuse_level,
        .choose = choose_level,
        .run = run_level,
    };
}

}  // namespace quatt::cpu
