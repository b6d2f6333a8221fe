// The schedules, in order of preference: the one list of them. A schedule is a folder with row.hpp
// (what it takes) and launch.cuh (its kernels, see schedules.cuh).
#pragma once

#include <array>

#include "cuda/warp_mma/row.hpp"
#include "cuda/wgmma/row.hpp"

#define QUATT_SCHEDULES(X) X(wgmma) X(warp_mma)

namespace quatt::cuda {

#define QUATT_ROW(name) &name::kRow,
inline constexpr std::array kSchedules = {QUATT_SCHEDULES(QUATT_ROW)};
#undef QUATT_ROW

}  // namespace quatt::cuda
