// The caller's floating-point state (rounding, subnormal numbers flushed to 0, exceptions that stop
// the program) changes no bit of a result, in no thread, and is as it was afterwards.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "support/attention.hpp"

#if defined(__x86_64__)
#include <xmmintrin.h>

namespace quatt::test {
namespace {

constexpr unsigned kDefault = 0x1F80;
constexpr unsigned kStates[] = {
    0x1F80 | 0x8000,           // results flushed to 0
    0x1F80 | 0x0040,           // operands taken as 0
    0x1F80 | 0x8040,           // both
    0x1F80 | 0x2000,           // rounded down
    0x1F80 | 0x4000,           // up
    0x1F80 | 0x6000,           // toward 0
    0x1F80 | 0x6000 | 0x8040,  // and flushed
    0x0000,                    // each exception a signal
    0x1F80 | 0x003F,           // each exception seen
};

// Sets a state for a scope.
class State {
public:
    explicit State(unsigned s) : before_(_mm_getcsr()) { _mm_setcsr(s); }
    ~State() { _mm_setcsr(before_); }
    State(const State&) = delete;
    State& operator=(const State&) = delete;

private:
    unsigned before_;
};

// Numbers around the smallest normal ones, beside ordinary ones: flushing and rounding both show.
Case small_numbers(Spec s) {
    s.heads_q = s.heads_kv = 2;
    Case c(s);
    for (std::int64_t b = 0; b < s.batch; b++) {
        for (std::int64_t j = 0; j < s.tokens_k; j++) {
            for (std::int64_t d = 0; d < s.dim; d++) {
                const Extents at = {b, j, 1, d};
                c.v.set_one(at, static_cast<float>(value_at(c.v.view(), at)) * 0x1p-128f);
            }
        }
    }
    return c;
}

Case small_numbers() {
    Spec s;
    s.batch = 2;
    s.tokens_q = 70;
    s.tokens_k = 150;
    s.dim = 24;
    s.q = s.k = QUATT_BF16;
    s.v = QUATT_F32;
    return small_numbers(s);
}

class FloatState : public testing::TestWithParam<Way> {};
INSTANTIATE_TEST_SUITE_P(Ways, FloatState, testing::ValuesIn(all_ways()), name_of);

// The plan's threads are there before the state changes, and are made after it did.
TEST_P(FloatState, OfTheCallerChangesNothing) {
    const Way way = GetParam();
    Case c = small_numbers();
    const Bits expected = bits_of(c, way);
    for (const std::int32_t threads : {1, 2, 3}) {
        Problem p = c.problem(way);
        p.threads = threads;
        const auto before = Plan::create(p, way.device);
        ASSERT_TRUE(before.ok());
        Workspace w(before->workspace_bytes());
        ASSERT_TRUE(before->run(p.tensors, w.span()).ok());
        for (const unsigned state : kStates) {
            c.reset_outputs();
            Status s;
            unsigned after = 0;
            {
                const State set(state);
                s = before->run(p.tensors, w.span());
                after = _mm_getcsr();
            }
            ASSERT_TRUE(s.ok()) << s.message();
            EXPECT_EQ(after, state);
            EXPECT_EQ((Bits{c.out.codes(), c.lse.codes()}), expected)
                << threads << " threads, state " << std::hex << state;
        }
    }
}

TEST_P(FloatState, OfThreadsMadeLaterChangesNothing) {
    const Way way = GetParam();
    Case c = small_numbers();
    const Bits expected = bits_of(c, way);
    for (const unsigned state : kStates) {
        c.reset_outputs();
        Problem p = c.problem(way);
        p.threads = 6;  // a pool that no other test has
        const Device device(way.device);
        Status s;
        unsigned after = 0;
        {
            const State set(state);
            s = Status::from_c(quatt_attention(&p, &device));
            after = _mm_getcsr();
        }
        ASSERT_TRUE(s.ok()) << s.message();
        EXPECT_EQ(after, state);
        EXPECT_EQ((Bits{c.out.codes(), c.lse.codes()}), expected) << std::hex << state;
    }
}

// The caller's pool runs under the caller's state, its calls of body under the library's.
TEST_P(FloatState, OfTheCallersPoolChangesNothing) {
    const Way way = GetParam();
    Case c = small_numbers();
    const Bits expected = bits_of(c, way);
    for (const unsigned state : kStates) {
        c.reset_outputs();
        std::atomic<int> changed{0};
        const auto pool = [&](std::int64_t count, auto&& body) {
            changed += _mm_getcsr() != state ? 1 : 0;
            std::vector<std::thread> threads;
            for (std::int64_t i = 0; i < count; i++) {
                threads.emplace_back([&, i] {
                    const unsigned other =
                        kStates[static_cast<std::size_t>(i) % std::size(kStates)];
                    const State set(other);
                    body(i);
                    changed += _mm_getcsr() != other ? 1 : 0;
                });
            }
            for (std::thread& t : threads) {
                t.join();
            }
        };
        Problem p = c.problem(way);
        p.threads = 9;
        p.set_parallel_for(pool);
        const auto plan = Plan::create(p, way.device);
        ASSERT_TRUE(plan.ok());
        Workspace w(plan->workspace_bytes());
        Status s;
        {
            const State set(state);
            s = plan->run(p.tensors, w.span());
        }
        ASSERT_TRUE(s.ok()) << s.message();
        EXPECT_EQ(changed, 0);
        EXPECT_EQ((Bits{c.out.codes(), c.lse.codes()}), expected) << std::hex << state;
    }
}

// The executor runs kernels in threads and fibers of its own.
TEST(FloatStateOnSimt, OfTheCallerChangesNothing) {
    Spec spec;
    spec.tokens_q = 20;
    spec.tokens_k = 70;
    spec.dim = 64;
    Case c = small_numbers(spec);
    const Way way = {"simt:sm_90", "bf16"};
    if (const auto info = query(c.problem(way), way.device); !info.ok()) {
        GTEST_SKIP() << info.status().message();
    }
    const Bits expected = bits_of(c, way);
    for (const unsigned state : {kStates[2], kStates[6]}) {
        for (const std::int32_t threads : {1, 2}) {
            c.reset_outputs();
            Problem p = c.problem(way);
            p.threads = threads;
            const auto plan = Plan::create(p, way.device);
            ASSERT_TRUE(plan.ok());
            Workspace w(plan->workspace_bytes());
            Status s;
            unsigned after = 0;
            {
                const State set(state);
                s = plan->run(p.tensors, w.span());
                after = _mm_getcsr();
            }
            ASSERT_TRUE(s.ok()) << s.message();
            EXPECT_EQ(after, state);
            EXPECT_EQ((Bits{c.out.codes(), c.lse.codes()}), expected) << std::hex << state;
        }
    }
}

TEST(FloatStateOfConvert, ChangesNothing) {
    const float from[] = {0x1p-140f, 0x1.8p-133f, 1.0f + 0x1p-9f, -1.0f - 0x1.8p-8f, 3.3e38f, 0.1f};
    std::uint16_t expected[std::size(from)], to[std::size(from)];
    for (const quatt_dtype dtype : {QUATT_BF16, QUATT_F16}) {
        ASSERT_EQ(quatt_convert(expected, dtype, from, QUATT_F32, std::size(from)), QUATT_OK);
        for (const unsigned state : kStates) {
            unsigned after = 0;
            {
                const State set(state);
                (void)quatt_convert(to, dtype, from, QUATT_F32, std::size(from));
                after = _mm_getcsr();
            }
            EXPECT_EQ(after, state);
            EXPECT_EQ(std::memcmp(to, expected, sizeof to), 0) << std::hex << state;
        }
    }
}

// The test can see it: plain arithmetic depends on the state.
TEST(FloatStateOfTests, Matters) {
    volatile float x = 0x1p-126f, half = 0.5f, third = 3.0f, one = 1.0f;
    const float kept = x * half, rounded = one / third;
    float flushed = 1, up = 0;
    {
        const State set(0x1F80 | 0x8000);
        flushed = x * half;
    }
    {
        const State set(0x1F80 | 0x4000);
        up = one / third;
    }
    EXPECT_NE(kept, flushed);
    EXPECT_EQ(flushed, 0);
    EXPECT_EQ(_mm_getcsr() & ~0x3Fu, kDefault);
    EXPECT_NE(std::nextafter(up, 0.0f), up);
    EXPECT_GE(up, rounded);
}

}  // namespace
}  // namespace quatt::test

#endif
