// fork: a child process has none of its parent's threads. What it inherits still works there, and
// goes without a word.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstring>
#include <set>
#include <thread>
#include <vector>

#include "core/thread_pool.hpp"
#include "support/attention.hpp"

namespace quatt {
namespace {

// NOTE: the thread sanitizer ends a child of a process with threads that starts one itself
// (die_after_fork): what is tested here cannot run under it.
#if defined(__SANITIZE_THREAD__)
#define QUATT_TEST_NEEDS_THREADS_IN_A_CHILD() \
    GTEST_SKIP() << "the thread sanitizer allows no new threads in a child of fork"
#else
#define QUATT_TEST_NEEDS_THREADS_IN_A_CHILD() \
    do {                                      \
    } while (false)
#endif

// What f returns in a child process; "" where the child was killed: after 30 s it hangs.
template <class F>
std::string in_child(F&& f) {
    const pid_t child = fork();
    if (child == 0) {
        alarm(30);
        _exit(f() ? 0 : 1);
    }
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) != child) {
        return "no child";
    }
    return WIFSIGNALED(status)        ? std::string("killed: ") + strsignal(WTERMSIG(status))
           : WEXITSTATUS(status) == 0 ? "right"
                                      : "wrong";
}

struct Call {
    std::vector<float> q, out;
    Problem problem;
    explicit Call(std::int32_t threads) : q(2 * 300 * 2 * 32), out(q.size()) {
        test::Random random(7);
        for (float& x : q) {
            x = static_cast<float>(random.normal());
        }
        const auto view = [](std::vector<float>& x) {
            return Tensor(x.data(), DType::f32, {2, 300, 2, 32});
        };
        problem = Problem(Recipe("fp8"), view(q), view(q), view(q), view(out));
        problem.threads = threads;
    }
    // Runs it, and compares with what is there already.
    bool again(const Plan& plan) {
        const std::vector<float> before = out;
        std::fill(out.begin(), out.end(), 0.0f);
        test::Workspace w(plan.workspace_bytes());
        return plan.run(problem.tensors, w.span()).ok() &&
               std::memcmp(before.data(), out.data(), out.size() * sizeof(float)) == 0;
    }
};

class Fork : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Devices, Fork, testing::Values("cpu", "emulate", "reference"),
                         [](const auto& device) { return device.param; });

TEST_P(Fork, APlanThatRanIsDestroyedInTheChild) {
    for (const std::int32_t threads : {1, 2, 4}) {
        Call call(threads);
        auto plan = std::make_unique<Plan>(Plan::create(call.problem, GetParam()).value());
        test::Workspace w(plan->workspace_bytes());
        ASSERT_TRUE(plan->run(call.problem.tensors, w.span()).ok());
        EXPECT_EQ(in_child([&] {
                      plan.reset();
                      return true;
                  }),
                  "right");
        EXPECT_TRUE(call.again(*plan)) << "the parent's goes on";
    }
}

TEST_P(Fork, APlanThatRanRunsInTheChild) {
    QUATT_TEST_NEEDS_THREADS_IN_A_CHILD();
    for (const std::int32_t threads : {1, 2, 4}) {
        Call call(threads);
        auto plan = std::make_unique<Plan>(Plan::create(call.problem, GetParam()).value());
        test::Workspace w(plan->workspace_bytes());
        ASSERT_TRUE(plan->run(call.problem.tensors, w.span()).ok());
        EXPECT_EQ(in_child([&] {
                      const bool right = call.again(*plan) && call.again(*plan);
                      const auto another = Plan::create(call.problem, GetParam());
                      plan.reset();  // and then the pool serves the other one
                      return right && call.again(*another) &&
                             in_child([&] { return call.again(*another); }) == "right";
                  }),
                  "right");
        EXPECT_TRUE(call.again(*plan)) << "the parent's goes on";
    }
}

// A fork in the middle of other threads' runs, plans and ends: whatever they held, the child works.
TEST(ForkPool, WhileOtherThreadsRun) {
    QUATT_TEST_NEEDS_THREADS_IN_A_CHILD();
#if defined(__SANITIZE_ADDRESS__)
    GTEST_SKIP() << "another thread may hold a lock of the sanitizer's allocator at the fork";
#endif
    std::atomic<bool> stop{false};
    std::vector<std::thread> others;
    const auto mine = core::ThreadPool::shared(3);
    for (int i = 0; i < 3; i++) {
        others.emplace_back([&, i] {
            while (!stop) {
                const auto pool = i == 0 ? mine : core::ThreadPool::shared(2 + i);
                std::atomic<int> sum{0};
                pool->run(5, [&](int, std::int64_t) noexcept { sum++; });
            }
        });
    }
    for (int repeat = 0; repeat < test::scaled(30); repeat++) {
        EXPECT_EQ(in_child([&] {
                      std::atomic<std::int64_t> sum{0};
                      for (const auto& pool :
                           {mine, core::ThreadPool::shared(3), core::ThreadPool::shared(4)}) {
                          pool->run(100, [&](int, std::int64_t i) noexcept { sum += i; });
                      }
                      return sum == 3 * 4950;
                  }),
                  "right");
    }
    stop = true;
    for (std::thread& t : others) {
        t.join();
    }
}

// The child has as many threads as its parent had.
TEST(ForkPool, TheChildUsesItsThreads) {
    QUATT_TEST_NEEDS_THREADS_IN_A_CHILD();
    const auto pool = core::ThreadPool::shared(3);
    EXPECT_EQ(in_child([&] {
                  std::atomic<unsigned> workers{0};
                  for (int repeat = 0; repeat < 200 && workers != 7; repeat++) {
                      pool->run(30, [&](int worker, std::int64_t) noexcept {
                          std::this_thread::sleep_for(std::chrono::microseconds(200));
                          workers |= 1u << worker;
                      });
                  }
                  return workers == 7;
              }),
              "right");
}

}  // namespace
}  // namespace quatt
