// The fast engine: quantise, pack, attend, a few KV heads at a time.
#pragma once
#include <cstddef>
#include <span>

#include "core/kernel.hpp"
#include "cpu/level.hpp"

namespace quatt::cpu {

[[nodiscard]] core::Choice choose(const quatt_problem& p, const core::Shape& s, const Level& level);
[[nodiscard]] Status run(const core::Plan& plan, const quatt_tensors& t, const Level& level,
                         std::span<std::byte> workspace);

}  // namespace quatt::cpu
