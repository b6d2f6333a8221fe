// Loops of a host kernel in threads of the caller: `parallel_for` of a problem.
#pragma once
#include <quatt/quatt.h>
#include <quatt/status.hpp>

#include <cstdint>

#include "core/float_state.hpp"

namespace quatt::core {

using LoopBody = void (*)(void* context, int worker, std::int64_t i) noexcept;

// Calls body(context, worker, i) for every i in [0, n), 0 <= worker < threads, each worker number
// in one thread at a time. What the callback does against its contract is an error, and which calls
// were made is then unknown. `state`: of this thread.
[[nodiscard]] Status run_in_callers_threads(const quatt_problem& p, int threads, std::int64_t n,
                                            void* context, LoopBody body, const FloatState& state);

}  // namespace quatt::core
