#include "core/thread_pool.hpp"

#include <pthread.h>

#include <condition_variable>
#include <map>
#include <mutex>
#include <new>
#include <thread>
#include <vector>

#include "core/float_state.hpp"

namespace quatt::core {
namespace {

// Forks between the process that loaded the library and this one: a crew of another number has its
// threads in another process.
std::atomic<unsigned> generation{0};

// Held across a fork, so that the child finds the registry whole.
std::mutex registry_mutex;

void watch_forks() {
    [[maybe_unused]] static const bool watched = [] {
        const int error =
            pthread_atfork([] { registry_mutex.lock(); }, [] { registry_mutex.unlock(); },
                           [] {
                               generation.fetch_add(1, std::memory_order_relaxed);
                               registry_mutex.unlock();
                           });
        if (error != 0) {
            throw std::bad_alloc();  // the only error that there is
        }
        return true;
    }();
}

}  // namespace

struct ThreadPool::Crew {
    explicit Crew(int threads);
    ~Crew();
    Crew(const Crew&) = delete;
    Crew& operator=(const Crew&) = delete;

    [[nodiscard]] bool is_ours() const {
        return born == generation.load(std::memory_order_relaxed);
    }
    void run(Job& job);
    void serve();
    [[nodiscard]] Job* open_job();
    void abandon();

    const unsigned born = generation.load(std::memory_order_relaxed);
    std::mutex mutex;
    std::condition_variable work, done;
    Job* jobs = nullptr;
    bool stop = false;
    std::vector<std::thread> workers;
    Crew* after = nullptr;  // list of abandoned crews
};

ThreadPool::Crew::Crew(int threads) {
    try {
        workers.reserve(static_cast<std::size_t>(threads - 1));
        for (int i = 1; i < threads; i++) {
            workers.emplace_back([this] { serve(); });
        }
    } catch (...) {
        // The system gives no more threads: work with those that there are.
    }
}

ThreadPool::Crew::~Crew() {
    {
        const std::lock_guard lock(mutex);
        stop = true;
    }
    work.notify_all();
    for (std::thread& t : workers) {
        t.join();
    }
}

// Of a parent process: its threads cannot be joined here, and one of them may have held the mutex.
// Nothing of it is touched again; the list keeps it from being reported as a leak.
void ThreadPool::Crew::abandon() {
    static std::atomic<Crew*> abandoned{nullptr};
    after = abandoned.load(std::memory_order_relaxed);
    while (!abandoned.compare_exchange_weak(after, this, std::memory_order_relaxed)) {
    }
}

ThreadPool::Job* ThreadPool::Crew::open_job() {
    for (Job* j = jobs; j != nullptr; j = j->after) {
        if (j->joined <= static_cast<int>(workers.size()) &&
            j->next.load(std::memory_order_relaxed) < j->count) {
            return j;
        }
    }
    return nullptr;
}

void ThreadPool::Crew::run(Job& job) {
    {
        const std::lock_guard lock(mutex);
        job.after = jobs;
        jobs = &job;
    }
    work.notify_all();
    job.work(0);
    std::unique_lock lock(mutex);
    Job** link = &jobs;
    while (*link != &job) {
        link = &(*link)->after;
    }
    *link = job.after;
    done.wait(lock, [&] { return job.active == 0; });
}

void ThreadPool::Crew::serve() {
    const FloatState own;
    std::unique_lock lock(mutex);
    for (;;) {
        Job* job = nullptr;
        work.wait(lock, [&] { return stop || (job = open_job()) != nullptr; });
        if (job == nullptr) {
            return;
        }
        const int worker = job->joined++;
        job->active++;
        lock.unlock();
        job->work(worker);
        lock.lock();
        if (--job->active == 0) {
            done.notify_all();
        }
    }
}

std::shared_ptr<ThreadPool> ThreadPool::shared(int threads) {
    static std::map<int, std::weak_ptr<ThreadPool>> pools;
    watch_forks();
    const std::lock_guard lock(registry_mutex);
    std::weak_ptr<ThreadPool>& entry = pools[threads];
    std::shared_ptr<ThreadPool> pool = entry.lock();
    if (!pool) {
        pool = std::make_shared<ThreadPool>(threads);
        entry = pool;
    }
    return pool;
}

ThreadPool::ThreadPool(int threads) : threads_(threads), crew_(nullptr) {
    watch_forks();
    crew_ = new Crew(threads);
}

ThreadPool::~ThreadPool() {
    Crew* const last = crew_;
    if (last->is_ours()) {
        delete last;
    } else {
        last->abandon();
    }
}

ThreadPool::Crew* ThreadPool::crew() {
    Crew* now = crew_.load(std::memory_order_acquire);
    if (now->is_ours()) {
        return now;
    }
    Crew* const made = new (std::nothrow) Crew(threads_);
    if (made == nullptr) {
        return nullptr;
    }
    if (crew_.compare_exchange_strong(now, made, std::memory_order_acq_rel)) {
        now->abandon();
        return made;
    }
    delete made;  // another thread was first
    return now;
}

void ThreadPool::run(Job& job) {
    Crew* const now = job.count > 1 && threads_ > 1 ? crew() : nullptr;
    if (now != nullptr && !now->workers.empty()) {
        now->run(job);
    } else {
        job.work(0);
    }
}

}  // namespace quatt::core
