// What the host kernels share: reading lengths and scales, quantising into the workspace, walking
// row blocks over the pool.
#pragma once
#include <span>

#include "core/kernel.hpp"

namespace quatt::core {

// What every host kernel takes, in the words of the support table.
inline constexpr const char* kHostHeadDims = "1..256";
inline constexpr const char* kHostDtypes =
    "q, k, v: f32 bf16 f16 e4m3 in any mix; out: bf16 f16 f32";

// Fields that exist for tests and measurements.
struct TestFields {
    bool rows = false, light_mass = false, counters = false;
};
// Refuses those that are used and not taken, and fields that are room for later.
void refuse_all_but(const quatt_problem& p, const TestFields& takes, Reasons& reasons);

[[nodiscard]] Choice choose_portable(const quatt_problem& p, const Shape& s, bool quantised);
// Of a row that packs K and V in memory of the caller.
[[nodiscard]] std::size_t portable_packed_bytes(const quatt_problem& p, const Shape& s);
[[nodiscard]] Status run_emulated(const Plan& plan, const Request& request);
[[nodiscard]] Status run_reference(const Plan& plan, const Request& request);

}  // namespace quatt::core
