// The backends by name. Core includes nothing of the layers that define them; the linker brings
// them.
#pragma once
#include "core/kernel.hpp"

namespace quatt::core {

extern const Backend kCudaBackend, kEmuBackend;  // src/cuda/cuda.cpp
extern const Backend kSimtBackend;               // src/cuda/simt.cpp
extern const Backend kCpuBackend;                // src/cpu/cpu.cpp
extern const Backend kEmulateBackend, kReferenceBackend;

}  // namespace quatt::core
