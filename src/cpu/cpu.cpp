// The CPU's rows of the support table: the fast engine on each instruction-set level, then the
// portable engine, for processors without any of them.
#include <quatt/quatt.h>

#include <array>
#include <cstddef>

#include "core/backends.hpp"
#include "core/device.hpp"
#include "core/portable.hpp"
#include "cpu/engine.hpp"
#include "cpu/rows.hpp"
#include "recipe/recipes.hpp"

namespace quatt::cpu {
namespace {

using core::Choice;
using core::Kernel;
using core::Plan;
using core::Reasons;
using core::Request;
using core::Shape;
using core::text;

void refuse(const Kernel&, const quatt_problem& p, const quatt_device&, Reasons& reasons) {
    core::refuse_all_but(p, {}, reasons);
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

Choice choose(const Kernel&, const quatt_problem& p, const Shape& s, const quatt_device&) {
    Choice c = core::choose_portable(p, s, true);
    c.packed_bytes = core::portable_packed_bytes(p, s);
    return c;
}

constexpr Kernel kPortable{
    .name = "cpu",
    .recipes = kRecipes,
    .head_dims = core::kHostHeadDims,
    .dtypes = core::kHostDtypes,
    .features = kFeatures,
    .refuse = refuse,
    .choose = choose,
    .run = core::run_emulated,
};

#if defined(__x86_64__)

const Level& level_of(const Kernel& row) {
    return *static_cast<const Level*>(row.variant);
}

constexpr auto all_rows() {
    std::array<Kernel, kLevels.size() + 1> rows;
    for (std::size_t i = 0; i < kLevels.size(); i++) {
        rows[i] = level_row(kLevels[i]);
    }
    rows.back() = kPortable;
    return rows;
}
constexpr auto kRows = all_rows();

#else

constexpr std::array kRows = {kPortable};

#endif

}  // namespace

#if defined(__x86_64__)

void refuse_level(const Kernel& row, const quatt_problem& p, const quatt_device& d,
                  Reasons& reasons) {
    const Level& level = level_of(row);
    refuse(row, p, d, reasons);
    if (!level.supported()) {
        reasons.push_back(text("needs ", level.needs, "; this CPU has ", core::cpu_features()));
    } else if (level.preferred != nullptr && !level.preferred(level, p.recipe) &&
               p.kernel == nullptr) {
        reasons.push_back(text("is not faster than the next with this recipe on this CPU; kernel=",
                               level.kernel, " takes it all the same"));
    } else if (reasons.empty() && level.permission != nullptr) {
        // Asked last: the answer changes the process (level.cpp).
        if (std::string no = level.permission(); !no.empty()) {
            reasons.push_back(std::move(no));
        }
    }
}

Choice choose_level(const Kernel& row, const quatt_problem& p, const Shape& s,
                    const quatt_device&) {
    return choose(p, s, level_of(row));
}

Status run_level(const Plan& plan, const Request& request) {
    return run(plan, request, level_of(*plan.kernel));
}

#endif

}  // namespace quatt::cpu

namespace quatt::core {

constinit const Backend kCpuBackend{
    .device = QUATT_BACKEND_CPU,
    .host = true,
    .fallback = true,
    .kernels = cpu::kRows,
};

}  // namespace quatt::core
