#include "core/thread_pool.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <numeric>
#include <set>
#include <thread>
#include <vector>

#include "support/attention.hpp"

namespace quatt::core {
namespace {

TEST(ThreadPool, CallsEachIndexOnce) {
    for (int threads = 1; threads <= 6; threads++) {
        ThreadPool pool(threads);
        EXPECT_EQ(pool.threads(), threads);
        for (const std::int64_t n : {0, 1, 2, threads - 1, threads, threads + 1, 1000}) {
            std::vector<std::atomic<int>> calls(
                static_cast<std::size_t>(std::max<std::int64_t>(n, 1)));
            std::atomic<int> strangers{0};
            pool.run(n, [&](int worker, std::int64_t i) noexcept {
                calls[static_cast<std::size_t>(i)]++;
                strangers += worker < 0 || worker >= threads ? 1 : 0;
            });
            EXPECT_EQ(strangers, 0);
            for (std::int64_t i = 0; i < n; i++) {
                EXPECT_EQ(calls[static_cast<std::size_t>(i)], 1) << i << " of " << n;
            }
        }
    }
}

// A worker number is a place in the workspace: two threads at once in it would share scratch.
TEST(ThreadPool, AWorkerNumberIsInOneThreadAtATime) {
    constexpr int kThreads = 5;
    ThreadPool pool(kThreads);
    std::vector<std::thread> callers;
    std::atomic<int> shared{0};
    for (int c = 0; c < 4; c++) {
        callers.emplace_back([&] {
            for (int repeat = 0; repeat < test::scaled(50); repeat++) {
                std::vector<std::atomic<int>> inside(kThreads);
                pool.run(200, [&](int worker, std::int64_t) noexcept {
                    std::atomic<int>& here = inside[static_cast<std::size_t>(worker)];
                    shared += here.fetch_add(1) != 0 ? 1 : 0;
                    std::this_thread::yield();
                    here--;
                });
            }
        });
    }
    for (std::thread& t : callers) {
        t.join();
    }
    EXPECT_EQ(shared, 0);
}

// run returns when all calls are done: what they wrote is there for the caller, without more locks.
TEST(ThreadPool, ReturnsWhenAllIsDone) {
    ThreadPool pool(4);
    for (int repeat = 0; repeat < test::scaled(200); repeat++) {
        std::vector<std::int64_t> squares(97, -1);
        pool.run(97, [&](int, std::int64_t i) noexcept {
            squares[static_cast<std::size_t>(i)] = i * i;
        });
        for (std::int64_t i = 0; i < 97; i++) {
            ASSERT_EQ(squares[static_cast<std::size_t>(i)], i * i);
        }
    }
}

// All workers help, where there is work for all.
TEST(ThreadPool, UsesItsThreads) {
    ThreadPool pool(3);
    std::set<int> workers;
    std::mutex mutex;
    for (int repeat = 0; repeat < 200 && workers.size() < 3; repeat++) {
        pool.run(30, [&](int worker, std::int64_t) noexcept {
            std::this_thread::sleep_for(std::chrono::microseconds(200));
            const std::lock_guard lock(mutex);
            workers.insert(worker);
        });
    }
    EXPECT_EQ(workers, (std::set<int>{0, 1, 2}));
}

TEST(ThreadPool, IsSharedByItsNumberOfThreads) {
    const auto two = ThreadPool::shared(2), again = ThreadPool::shared(2),
               three = ThreadPool::shared(3);
    EXPECT_EQ(two, again);
    EXPECT_NE(two, three);
    EXPECT_EQ(three->threads(), 3);
    const std::weak_ptr<ThreadPool> gone = ThreadPool::shared(7);
    EXPECT_TRUE(gone.expired()) << "with its last owner";
}

TEST(ThreadPool, StartsAndStopsInManyThreads) {
    std::vector<std::thread> callers;
    std::atomic<std::int64_t> sum{0};
    for (int c = 0; c < 4; c++) {
        callers.emplace_back([&, c] {
            for (int repeat = 0; repeat < test::scaled(40); repeat++) {
                const auto pool = ThreadPool::shared(1 + (c + repeat) % 3);
                pool->run(10, [&](int, std::int64_t i) noexcept { sum += i; });
            }
        });
    }
    for (std::thread& t : callers) {
        t.join();
    }
    EXPECT_EQ(sum, 4 * test::scaled(40) * 45);
}

}  // namespace
}  // namespace quatt::core
