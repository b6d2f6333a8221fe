#define QUATT_LEVEL kAvx512Kernels
#include "cpu/level_kernels.hpp"
