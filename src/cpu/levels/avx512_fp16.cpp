#define QUATT_LEVEL kAvx512Fp16Kernels
#include "cpu/level_kernels.hpp"
