// Levels of tests only: the kernels of cpu_avx512_fp16 and cpu_amx with the instructions in
// software, on any processor with AVX-512, in the library's own engine.
#pragma once
#include <quatt/quatt.h>
#include <quatt/status.hpp>

#include <cstddef>

#include "cpu/level.hpp"

namespace quatt::cpu {
extern const Kernels kEmulatedAvx512Fp16Kernels, kEmulatedAmxKernels;
}

namespace quatt::test {

// "cpu_avx512_fp16_software" or "cpu_amx_software"; null: no such level.
[[nodiscard]] const cpu::Level* software_level(const char* name);

// A problem on such a level; its `kernel` is not looked at.
[[nodiscard]] std::size_t workspace_on(const cpu::Level& level, const quatt_problem& p);
[[nodiscard]] Status run_on(const cpu::Level& level, const quatt_problem& p);

}  // namespace quatt::test
