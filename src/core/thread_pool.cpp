#include "core/thread_pool.hpp"

#include <map>

namespace quatt::core {

std::shared_ptr<ThreadPool> ThreadPool::shared(int threads) {
    static std::mutex mutex;
    static std::map<int, std::weak_ptr<ThreadPool>> pools;
    const std::lock_guard lock(mutex);
    std::weak_ptr<ThreadPool>& entry = pools[threads];
    std::shared_ptr<ThreadPool> pool = entry.lock();
    if (!pool) {
        pool = std::make_shared<ThreadPool>(threads);
        entry = pool;
    }
    return pool;
}

ThreadPool::ThreadPool(int threads) {
    workers_.reserve(static_cast<std::size_t>(threads - 1));
    try {
        for (int i = 1; i < threads; i++) {
            workers_.emplace_back([this] { serve(); });
        }
    } catch (...) {
        // The system gives no more threads: work with those that there are.
    }
}

ThreadPool::~ThreadPool() {
    {
        const std::lock_guard lock(mutex_);
        stop_ = true;
    }
    work_.notify_all();
    for (std::thread& t : workers_) {
        t.join();
    }
}

ThreadPool::Job* ThreadPool::open_job() {
    for (Job* j = jobs_; j != nullptr; j = j->after) {
        if (j->joined <= static_cast<int>(workers_.size()) &&
            j->next.load(std::memory_order_relaxed) < j->count) {
            return j;
        }
    }
    return nullptr;
}

void ThreadPool::run(Job& job) {
    if (job.count > 1 && !workers_.empty()) {
        {
            const std::lock_guard lock(mutex_);
            job.after = jobs_;
            jobs_ = &job;
        }
        work_.notify_all();
        job.work(0);
        std::unique_lock lock(mutex_);
        Job** link = &jobs_;
        while (*link != &job) {
            link = &(*link)->after;
        }
        *link = job.after;
        done_.wait(lock, [&] { return job.active == 0; });
    } else {
        job.work(0);
    }
}

void ThreadPool::serve() {
    std::unique_lock lock(mutex_);
    for (;;) {
        Job* job = nullptr;
        work_.wait(lock, [&] { return stop_ || (job = open_job()) != nullptr; });
        if (job == nullptr) {
            return;
        }
        const int worker = job->joined++;
        job->active++;
        lock.unlock();
        job->work(worker);
        lock.lock();
        if (--job->active == 0) {
            done_.notify_all();
        }
    }
}

}  // namespace quatt::core
