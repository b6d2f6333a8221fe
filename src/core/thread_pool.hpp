// Worker threads that the plans of a process share, so that several calls at once do not add up to
// more threads than cores. A child process of fork has none of them: its first run makes new ones,
// and what its parent's threads held is left where it is.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <type_traits>

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

    // At most: as many as the system gave when the first run of this process needed them.
    [[nodiscard]] int threads() const { return threads_; }

    // Calls f(worker, i) for every i in [0, n), 0 <= worker < threads(), each worker number in one
    // thread at a time. Returns when all are done. Allocates nothing but the threads of a child
    // process; several threads may call it at once. f must not throw.
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
        Job* after = nullptr;  // list of open jobs, under the crew's mutex
        int joined = 1;        // worker numbers given out, under the mutex
        int active = 0;        // workers inside, under the mutex

        void work(int worker) {
            for (std::int64_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < count;) {
                call(context, worker, i);
            }
        }
    };
    struct Crew;  // threads of one process, and what they share

    void run(Job& job);
    [[nodiscard]] Crew* crew();  // of this process; null where there is no memory for one

    int threads_;
    std::atomic<Crew*> crew_;
};

}  // namespace quatt::core
