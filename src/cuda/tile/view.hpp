// The views through which kernels touch memory: Global<T>, from (pointer, count) on the host, and
// Shared, from ptx::dynamic_shared and a plan's offsets. Natively a pointer and a 32-bit address
// that cost nothing; in the executor they carry their extent, and every access is checked for
// bounds, alignment, happens-before order and copies in flight.
//
// They are defined one layer down, beside the load and store instructions that they stand for.
#pragma once

#include "cuda/ptx/memory.hpp"
#include "cuda/tile/platform.hpp"  // IWYU pragma: export

namespace quatt::tile {
inline namespace QUATT_ABI {

using ptx::Global;
using ptx::Shared;

// Of an input or output, in elements.
struct Strides {
    ptx::i64 token, head, channel;
};

}  // namespace QUATT_ABI
}  // namespace quatt::tile
