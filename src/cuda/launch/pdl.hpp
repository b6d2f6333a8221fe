// Programmatic dependent launch: the first statement of a kernel in a row of launches that overlap
// (Launcher::overlaps).
#pragma once

#include "cuda/ptx/ptx.hpp"

namespace quatt::launch {
inline namespace QUATT_ABI {

// Waits for the launch before, then lets the next one start. NOTE: in this order, or a kernel two
// further on would not wait for this one's predecessor.
QUATT_DEV void pdl_wait_then_trigger() {
    ptx::grid_wait();
    ptx::grid_launch_dependents();
}

}  // namespace QUATT_ABI
}  // namespace quatt::launch
