// The fast engine: quantise, pack, attend, a few KV heads at a time.
#pragma once
#include "core/kernel.hpp"
#include "cpu/level.hpp"

namespace quatt::cpu {

[[nodiscard]] core::Choice choose(const quatt_problem& p, const core::Shape& s, const Level& level);
[[nodiscard]] Status run(const core::Plan& plan, const core::Request& request, const Level& level);

}  // namespace quatt::cpu
