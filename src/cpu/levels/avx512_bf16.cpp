#define QUATT_LEVEL kAvx512Bf16Kernels
#include "cpu/level_kernels.hpp"
