#define QUATT_LEVEL kAmxKernels
#include "cpu/level_kernels.hpp"
