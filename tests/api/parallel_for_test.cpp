// A thread pool of the caller: the same bits, no thread of the library, and a pool that breaks its
// contract is an error.
#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <thread>

#include "support/attention.hpp"

namespace quatt::test {
namespace {

// Starts a thread for each index; counts its calls.
struct ThreadEach {
    std::atomic<int> calls{0};
    std::atomic<std::int64_t> largest{0};

    template <class Body>
    void operator()(std::int64_t count, Body&& body) {
        calls++;
        largest = std::max<std::int64_t>(largest, count);
        std::vector<std::thread> threads;
        for (std::int64_t i = 0; i < count; i++) {
            threads.emplace_back([&body, i] { body(i); });
        }
        for (std::thread& t : threads) {
            t.join();
        }
    }
};

struct Serial {
    bool backward = false;
    int calls = 0;
    template <class Body>
    void operator()(std::int64_t count, Body&& body) {
        calls++;
        for (std::int64_t i = 0; i < count; i++) {
            body(backward ? count - 1 - i : i);
        }
    }
};

Spec several() {
    Spec s;
    s.batch = 2;
    s.tokens_q = 150;
    s.tokens_k = 200;
    s.heads_q = 4;
    s.heads_kv = 2;
    s.dim = 24;
    s.causal = true;
    return s;
}

class ParallelFor : public testing::TestWithParam<Way> {};
INSTANTIATE_TEST_SUITE_P(Ways, ParallelFor, testing::ValuesIn(all_ways()), name_of);

TEST_P(ParallelFor, GivesTheSameBits) {
    const Way way = GetParam();
    Case c(several());
    const Bits alone = bits_of(c, way);
    for (std::int32_t threads = 1; threads <= 8; threads++) {
        ThreadEach each;
        Serial serial, backward{.backward = true};
        EXPECT_EQ(bits_of(c, way,
                          [&](Problem& p) {
                              p.threads = threads;
                              p.set_parallel_for(each);
                          }),
                  alone);
        EXPECT_EQ(bits_of(c, way,
                          [&](Problem& p) {
                              p.threads = threads;
                              p.set_parallel_for(serial);
                          }),
                  alone);
        EXPECT_EQ(bits_of(c, way,
                          [&](Problem& p) {
                              p.threads = threads;
                              p.set_parallel_for(backward);
                          }),
                  alone);
        EXPECT_EQ(each.calls > 0, threads > 1) << "one thread is the caller's own";
        EXPECT_EQ(serial.calls > 0, threads > 1);
        EXPECT_LE(each.largest, threads);
    }
}

TEST_P(ParallelFor, RunsWithinItsThreadsOnly) {
    const Way way = GetParam();
    // Every thread that the pool does not know would find this variable unset.
    static thread_local bool known = false;
    static std::atomic<int> inside{0};
    struct Pool {
        static void call(void* user, std::int64_t count, quatt_body_fn body, void* context) {
            EXPECT_EQ(user, &inside);
            EXPECT_TRUE(known) << "the callback runs in the thread of the call";
            for (std::int64_t i = 0; i < count; i++) {
                inside++;
                body(context, i);
                inside--;
            }
        }
    };
    known = true;
    Case c(several());
    (void)bits_of(c, way, [&](Problem& p) {
        p.threads = 3;
        p.parallel_for = Pool::call;
        p.parallel_for_user = &inside;
    });
    EXPECT_EQ(inside, 0);
}

// A plan keeps the pool; several threads run it at once.
TEST_P(ParallelFor, SeveralRunsAtOnce) {
    const Way way = GetParam();
    Case first(several()), second(several());
    const Bits alone = bits_of(first, way);
    ThreadEach each;
    Problem p = first.problem(way);
    p.threads = 3;
    p.set_parallel_for(each);
    const auto plan = Plan::create(p, way.device);
    ASSERT_TRUE(plan.ok());
    std::vector<std::thread> callers;
    for (Case* c : {&first, &second}) {
        c->reset_outputs();
        callers.emplace_back([&plan, c, &way] {
            Workspace w(plan->workspace_bytes());
            const Status s = plan->run(c->problem(way).tensors, w.span());
            EXPECT_TRUE(s.ok()) << s.message();
        });
    }
    for (std::thread& t : callers) {
        t.join();
    }
    EXPECT_EQ((Bits{first.out.codes(), first.lse.codes()}), alone);
    EXPECT_EQ((Bits{second.out.codes(), second.lse.codes()}), alone);
}

struct Broken {
    const char* name;
    const char* message;
    void (*call)(std::int64_t count, const std::function<void(std::int64_t)>& body);
};

const Broken kBroken[] = {
    {"drops one", "called body 3 times; it must call it 4 times",
     [](std::int64_t n, const auto& body) {
         for (std::int64_t i = 0; i + 1 < n; i++) {
             body(i);
         }
     }},
    {"drops all", "called body 0 times; it must call it 4 times", [](std::int64_t, const auto&) {}},
    {"twice", "called body 8 times; it must call it 4 times",
     [](std::int64_t n, const auto& body) {
         for (std::int64_t i = 0; i < 2 * n; i++) {
             body(i % n);
         }
     }},
    {"past the end", "with an index outside 0 to 3",
     [](std::int64_t n, const auto& body) {
         for (std::int64_t i = 1; i <= n; i++) {
             body(i);
         }
     }},
    {"below 0", "with an index outside 0 to 3",
     [](std::int64_t n, const auto& body) {
         for (std::int64_t i = 0; i < n; i++) {
             body(-i);
         }
     }},
    {"throws", "parallel_for threw: no more",
     [](std::int64_t, const auto& body) {
         body(0);
         throw std::runtime_error("no more");
     }},
    {"throws no exception of the library's", "parallel_for threw",
     [](std::int64_t, const auto&) { throw 3; }},
};

TEST_P(ParallelFor, ABrokenContractIsAnError) {
    const Way way = GetParam();
    Case c(several());
    for (const Broken& broken : kBroken) {
        const auto pool = [&](std::int64_t count, auto&& body) {
            broken.call(count, [&](std::int64_t i) { body(i); });
        };
        Problem p = c.problem(way);
        p.threads = 4;
        p.set_parallel_for(pool);
        const Status s = run(p, way.device);
        EXPECT_EQ(s.code(), QUATT_INVALID_ARGUMENT) << broken.name;
        EXPECT_NE(s.message().find(broken.message), std::string::npos)
            << broken.name << ": " << s.message();
    }
    EXPECT_EQ(bits_of(c, way, [](Problem& p) { p.threads = 4; }), bits_of(c, way));
}

TEST(ParallelForOnSimt, IsRefused) {
    Case c(several());
    Serial serial;
    Problem p = c.problem({"cpu", "bf16"});
    p.tensors.out.dtype = QUATT_BF16;
    const bool built = query(p, "simt:sm_90").ok();
    p.set_parallel_for(serial);
    const auto refused = query(p, "simt:sm_90");
    ASSERT_FALSE(refused.ok());
    if (built) {
        EXPECT_NE(refused.status().message().find("parallel_for is given"), std::string::npos)
            << refused.status().message();
    }
}

}  // namespace
}  // namespace quatt::test
