#define QUATT_EMULATE_AMX
#include "cpu/software_levels.hpp"
#define QUATT_LEVEL kEmulatedAmxKernels
#include "cpu/level_kernels.hpp"
