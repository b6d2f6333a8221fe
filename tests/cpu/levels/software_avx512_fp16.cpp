#define QUATT_EMULATE_FP16
#include "cpu/software_levels.hpp"
#define QUATT_LEVEL kEmulatedAvx512Fp16Kernels
#include "cpu/level_kernels.hpp"
