// What a kernel sees of the two sides that compile it: the macros QUATT_ABI, QUATT_DEV, QUATT_HD,
// QUATT_KERNEL(threads, blocks an SM), QUATT_GRID_CONSTANT(type), QUATT_UNROLL and QUATT_NO_UNROLL.
//
// They are defined one layer down, because the instructions need them too.
#pragma once

#include "cuda/ptx/platform.hpp"  // IWYU pragma: export
