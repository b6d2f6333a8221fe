// The kernels on a real GPU. Plain types: native.cu is compiled by nvcc, cuda.cpp by the host
// compiler.
#pragma once

#include <cstdint>

#include "cuda/call.hpp"

namespace quatt::cuda {

// error 0: all is launched. Else the CUDA error, its text, and the kernel or call that failed.
struct NativeResult {
    int error = 0;
    const char* message = "";
    const char* where = "";
};

// Launches all kernels on the stream; the current device is afterwards what it was.
[[nodiscard]] NativeResult run_native(Call call, int device, void* stream);

// Compute capability times ten and multiprocessors of a device, without a context; false where
// there is none.
struct NativeDevice {
    int compute = 0, multiprocessors = 0;
};
[[nodiscard]] bool find_native_device(int device, NativeDevice& found);

// Whether the host cannot read where p leads.
[[nodiscard]] bool is_native_memory(const void* p);

}  // namespace quatt::cuda
