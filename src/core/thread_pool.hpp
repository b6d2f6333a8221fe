// Worker threads that the plans of a process share, so that several calls at once do not add up to
// more threads than cores.
#pragma once
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

namespace quatt::core {

class ThreadPool {
public:
    // The pool of `threads` threads (the caller of run is one of them): made on first use, gone
    // with its last owner.
    [[nodiscard]] static std::shared_ptr<ThreadPool> shared(int threads);

    explicit ThreadPool(int threads);
    ~ThreadPool();
    ThreadPool(const ThreadPool&) = delete;
    ThreadPool& operator=(const ThreadPool&) = delete;

    [[nodiscard]] int threads() const { return static_cast<int>(workers_.size()) + 1; }

    // Calls f(worker, i) for every i in [0, n), 0 <= worker < threads(), each worker number in one
    // thread at a time. Returns when all are done. Allocates nothing; several threads may call it
    // at once. f must not throw.
    template <class F>
    void run(std::int64_t n, F&& f) {
        static_assert(std::is_nothrow_invocable_v<F&, int, std::int64_t>);
        Job job;
        job.count = n;
        job.context = &f;
        job.call = [](void* context, int worker, std::int64_t i) noexcept {
            (*static_cast<std::remove_reference_t<F>*>(context))(worker, i);
        };
        run(job);
    }

private:
    struct Job {
        std::int64_t count = 0;
        std::atomic<std::int64_t> next{0};
        void* context = nullptr;
        void (*call)(void*, int, std::int64_t) noexcept = nullptr;
        Job* after = nullptr;  // list of open jobs, under mutex_
        int joined = 1;        // worker numbers given out, under mutex_
        int active = 0;        // workers inside, under mutex_

        void work(int worker) {
            for (std::int64_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < count;) {
                call(context, worker, i);
            }
        }
    };

    void run(Job& job);
    void serve();
    [[nodiscard]] Job* open_job();

    std::mutex mutex_;
    std::condition_variable work_, done_;
    Job* jobs_ = nullptr;
    bool stop_ = false;
    std::vector<std::thread> workers_;
};

}  // namespace quatt::core
