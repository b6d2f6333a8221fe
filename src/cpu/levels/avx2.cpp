#define QUATT_LEVEL kAvx2Kernels
#include "cpu/level_kernels.hpp"
