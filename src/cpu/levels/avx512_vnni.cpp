#define QUATT_LEVEL kAvx512VnniKernels
#include "cpu/level_kernels.hpp"
