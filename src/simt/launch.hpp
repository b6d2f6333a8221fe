// Runs a kernel for a grid on the CPU.
#pragma once

#include <type_traits>

#include "simt/types.hpp"

namespace quatt::simt {

struct LaunchConfig {
    const char* kernel = "kernel";
    Dim3 grid;
    Dim3 threads;  // of a block; their product is a multiple of 32, at most 1024
    std::uint32_t shared_bytes = 0;
    // Of a thread at the start, for setmaxnreg; 0: as many as fit 65536 a block, at most 256.
    std::uint32_t registers = 0;
    // Blocks of a cluster, neighbours along x: they run at once. 1 to 8, and a divisor of grid.x.
    std::uint32_t cluster = 1;
    // It may start before the launch before it has ended (programmatic dependent launch): each
    // thread waits (griddepcontrol.wait) before it touches memory.
    bool follows = false;
};

// `call(kernel)` is the body of each thread. Blocks run in any order, spread over
// options.workers OS threads; reports and results do not depend on their number.
[[nodiscard]] Result launch(const LaunchConfig& config, const Options& options,
                            void (*call)(const void*), const void* kernel);

template <class Kernel>
[[nodiscard]] Result launch(const LaunchConfig& config, const Options& options,
                            const Kernel& kernel) {
    return launch(
        config, options, [](const void* k) { (*static_cast<const Kernel*>(k))(); }, &kernel);
}

}  // namespace quatt::simt
