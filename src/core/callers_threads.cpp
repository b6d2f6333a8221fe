#include "core/callers_threads.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <string>
#include <thread>

#include "core/text.hpp"

namespace quatt::core {
namespace {

// One call of parallel_for. A task is a worker that takes indices until there are none, so that a
// pool which starts its tasks late, or one after the other, needs no more of them than threads.
struct Tasks {
    std::int64_t n, tasks;
    void* context;
    LoopBody body;
    std::atomic<std::int64_t> next{0};     // index of the loop
    std::atomic<std::int64_t> started{0};  // tasks; also the next worker number
    std::atomic<std::int64_t> done{0};
    std::atomic<bool> strange{false};  // an index that is no task's

    void work(std::int64_t index) {
        // NOTE: a worker number is a place in the workspace. It is counted, since an index may come
        // twice from a pool that keeps no contract.
        const std::int64_t worker = started.fetch_add(1, std::memory_order_relaxed);
        if (index < 0 || index >= tasks) {
            strange.store(true, std::memory_order_relaxed);
        } else if (worker < tasks) {
            const FloatState own;
            for (std::int64_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < n;) {
                body(context, static_cast<int>(worker), i);
            }
        }
        done.fetch_add(1, std::memory_order_release);
    }
};

}  // namespace

Status run_in_callers_threads(const quatt_problem& p, int threads, std::int64_t n, void* context,
                              LoopBody body, const FloatState& state) {
    const std::int64_t count = std::min<std::int64_t>(threads, n);
    if (count <= 1) {
        for (std::int64_t i = 0; i < n; i++) {
            body(context, 0, i);
        }
        return {};
    }
    Tasks tasks{n, count, context, body};
    std::string fault;
    bool threw = false;
    try {
        state.with_callers([&] {
            p.parallel_for(
                p.parallel_for_user, count,
                [](void* all, std::int64_t index) { static_cast<Tasks*>(all)->work(index); },
                &tasks);
        });
    } catch (const std::exception& e) {
        threw = true;
        fault = text("parallel_for threw: ", e.what());
    } catch (...) {
        threw = true;
        fault = "parallel_for threw";
    }
    const bool early =
        tasks.done.load(std::memory_order_acquire) != tasks.started.load(std::memory_order_relaxed);
    // They work on memory of this call.
    while (tasks.done.load(std::memory_order_acquire) !=
           tasks.started.load(std::memory_order_relaxed)) {
        std::this_thread::yield();
    }
    const std::int64_t started = tasks.started.load(std::memory_order_relaxed);
    if (!threw && early) {
        fault = "parallel_for returned before all calls of body had";
    } else if (!threw && tasks.strange.load(std::memory_order_relaxed)) {
        fault = text("parallel_for called body with an index outside 0 to ", count - 1);
    } else if (!threw && started != count) {
        fault = text("parallel_for called body ", started, " times; it must call it ", count,
                     " times, once for each index from 0 to ", count - 1);
    }
    return fault.empty() ? Status() : Status(QUATT_INVALID_ARGUMENT, std::move(fault));
}

}  // namespace quatt::core
