// What the three GPU devices (cuda, emu, simt) share on the host.
#pragma once

#include "core/kernel.hpp"
#include "cuda/call.hpp"

namespace quatt::cuda {

// Compute capabilities that the kernels are built for.
inline constexpr const char* kCompute = "9.0 12.0 12.1";

void refuse_gpu(const quatt_problem& p, const quatt_device& d, core::Reasons& reasons);
[[nodiscard]] core::Choice choose_gpu(const quatt_problem& p, const core::Shape& s,
                                      const quatt_device& d);
[[nodiscard]] Call make_call(const quatt_problem& p, const core::Shape& s, const quatt_device& d,
                             const quatt_tensors& t);
[[nodiscard]] Status check_alignment(const core::Plan& plan, const Call& call);

}  // namespace quatt::cuda
