// The executor itself: reports, limits, scheduling, unwinding.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <set>
#include <stdexcept>
#include <vector>

#include "cuda/ptx/ptx.hpp"
#include "simt/launch.hpp"

namespace quatt::test {
namespace {

using namespace quatt::ptx;
using simt::Fault;

template <class Kernel>
simt::Result run(std::uint32_t threads, const Kernel& kernel, simt::Options options = {}) {
    return simt::launch({"kernel", {1}, {threads}, 1024}, options, kernel);
}

TEST(Reports, NameKernelBlockThreadAndSite) {
    std::vector<u32> memory(4);
    std::uint32_t line = 0;
    const simt::Result result = simt::launch({"named", {3, 2}, {32}}, {}, [&] {
        line = __LINE__ + 1;
        if (block_x() == 1 && lane_id() == 9) (void)Global<u32>(memory.data(), 4).load(4);
    });
    ASSERT_EQ(result.reports.size(), 1u) << result.summary();
    const simt::Report& report = result.reports[0];
    EXPECT_EQ(report.fault, Fault::kGlobalBounds);
    EXPECT_EQ(report.kernel, "named");
    EXPECT_EQ(report.block.x, 1u);
    EXPECT_EQ(report.block.y, 0u);
    EXPECT_EQ(report.thread, 9u);
    EXPECT_EQ(report.site.line(), line);
    EXPECT_EQ(report.count, 2u);  // once in each of the two blocks with x = 1
    const std::string text = simt::to_string(report);
    EXPECT_NE(text.find("named: global memory out of bounds at test_executor.cpp:"),
              std::string::npos)
        << text;
    EXPECT_NE(text.find("block (1,0,0) thread 9, 2 times"), std::string::npos) << text;
}

TEST(Reports, ALaunchThatFollowsWaitsFirst) {
    std::vector<u32> memory(4);
    const auto faults = [&](bool follows, bool waits, bool touches) {
        const simt::LaunchConfig config{"second", {1}, {32}, 0, 0, 1, follows};
        return simt::launch(config, {}, [&] {
            if (touches && !waits) (void)Global<u32>(memory.data(), 4).load(0);
            if (waits) grid_wait();
            if (touches) (void)Global<u32>(memory.data(), 4).load(0);
        });
    };
    for (const bool touches : {false, true}) {
        EXPECT_TRUE(faults(false, false, touches).ok());
        EXPECT_TRUE(faults(true, true, touches).ok());
        const simt::Result result = faults(true, false, touches);
        ASSERT_EQ(result.reports.size(), 1u) << result.summary();
        EXPECT_EQ(result.reports[0].fault, Fault::kEarlyStart);
        EXPECT_EQ(result.reports[0].count, 32u);
    }
}

TEST(Reports, SayBothSidesOfARace) {
    const simt::Result result = run(64, [] {
        const Shared shared = dynamic_shared(1024);
        shared.store(4 * lane_id(), 1u);
    });
    ASSERT_EQ(result.reports.size(), 1u) << result.summary();
    EXPECT_EQ(result.reports[0].fault, Fault::kWriteRace);
    EXPECT_EQ(result.reports[0].count, 32u);
    EXPECT_EQ(result.reports[0].against.line(), result.reports[0].site.line());
}

TEST(Views, KnowTheirBounds) {
    std::vector<u32> memory(8);
    const auto fault = [&](auto use) {
        const simt::Result result = run(32, [&] {
            if (lane_id() == 0) use(Global<u32>(memory.data(), 8), dynamic_shared(1024));
        });
        return result.reports.size() == 1 ? simt::name(result.reports[0].fault)
                                          : std::string("reports: ") + result.summary();
    };
    const std::string global = simt::name(Fault::kGlobalBounds);
    const std::string shared = simt::name(Fault::kSharedBounds);
    const std::string misaligned = simt::name(Fault::kMisaligned);
    EXPECT_EQ(fault([](auto g, auto) { g.store(8, 1u); }), global);
    EXPECT_EQ(fault([](auto g, auto) { (void)g.load(-1); }), global);
    EXPECT_EQ(fault([](auto g, auto) { (void)g.template load<U32x4>(5); }), global);
    EXPECT_EQ(fault([](auto g, auto) { (void)g.sub(2, 7); }), global);
    EXPECT_EQ(fault([](auto g, auto) { (void)g.sub(2, 3).load(3); }), global);
    EXPECT_EQ(fault([](auto g, auto) { (void)g.sub(INT64_MAX, 1); }), global);
    EXPECT_EQ(fault([](auto g, auto) { (void)g.load(INT64_MIN); }), global);
    EXPECT_EQ(fault([](auto g, auto) { (void)g.template load<U32x2>(1); }), misaligned);
    EXPECT_EQ(fault([](auto, auto s) { s.store(1024, 1u); }), shared);
    EXPECT_EQ(fault([](auto, auto s) { s.store(1021, 1u); }), shared);
    EXPECT_EQ(fault([](auto, auto s) { s.store(~0u, 1u); }), shared);
    EXPECT_EQ(fault([](auto, auto s) { s.sub(16, 8).store(8, 1u); }), shared);
    EXPECT_EQ(fault([](auto, auto s) { (void)s.sub(1000, 100); }), shared);
    EXPECT_EQ(fault([](auto, auto s) { s.store(2, 1u); }), misaligned);
    EXPECT_EQ(fault([](auto, auto) { (void)dynamic_shared(1025); }), shared);
}

TEST(Shared, StartsAsNan) {
    float value = 0;
    (void)run(32, [&] { value = dynamic_shared(1024).load<float>(4 * lane_id()); });
    EXPECT_TRUE(std::isnan(value));
}

TEST(Collectives, DivergenceIsReported) {
    const auto faults = [](auto kernel) {
        std::set<std::string> names;
        for (std::uint64_t seed = 0; seed < 12; seed++)
            for (const simt::Report& r : run(64, kernel, {.seed = seed}).reports)
                names.insert(simt::name(r.fault));
        return names;
    };
    // NOTE: kernels stand outside the EXPECT macros, whose arguments are all one place to
    // std::source_location.
    const auto two_statements = [] {
        if (lane_id() % 2)
            (void)shfl_xor(1u, 1);
        else
            (void)shfl_xor(1u, 1);
    };
    const auto two_kinds = [] {
        if (lane_id() % 2)
            barrier_sync();
        else
            syncwarp();
    };
    const auto helper = [](u32 v, Site site = Site::current()) { return shfl_xor(v, 1, site); };
    const auto one_helper = [&] {
        if (lane_id() < 5)
            (void)helper(1);
        else
            (void)helper(2);
    };
    const auto early_return = [] {
        if (lane_id() > 20) return;
        (void)shfl_xor(1u, 1);
    };
    const std::set<std::string> divergence = {simt::name(Fault::kDivergence)};
    EXPECT_EQ(faults(two_statements), divergence);
    EXPECT_EQ(faults(two_kinds), divergence);
    EXPECT_EQ(faults(one_helper), divergence);
    EXPECT_EQ(faults(early_return), divergence);
    // Warps may meet in different statements of one barrier.
    const auto two_warps = [] {
        if (warp_id() == 0)
            barrier_sync();
        else
            barrier_sync();
    };
    EXPECT_TRUE(faults(two_warps).empty());
}

TEST(Barriers, MisuseIsReported) {
    const auto has = [](Fault fault, std::uint32_t threads, auto kernel) {
        for (std::uint64_t seed = 0; seed < 12; seed++)
            if (!run(threads, kernel, {.seed = seed}).has(fault)) return false;
        return true;
    };
    EXPECT_TRUE(has(Fault::kBadOperand, 32, [] { barrier_sync(16, 32); }));
    EXPECT_TRUE(has(Fault::kBarrierMisuse, 64, [] { barrier_sync(1, 48); }));
    EXPECT_TRUE(has(Fault::kBarrierMisuse, 64, [] { barrier_sync(1, 96); }));
    EXPECT_TRUE(has(Fault::kBarrierMisuse, 64, [] { barrier_sync(1, lane_id() < 9 ? 32 : 64); }));
    EXPECT_TRUE(has(Fault::kBarrierMisuse, 96, [] {
        if (warp_id() == 0) {
            barrier_arrive(1, 96);
            barrier_arrive(1, 96);
        }
    }));
    EXPECT_TRUE(has(Fault::kBarrierMisuse, 64, [] {
        if (warp_id() == 0) barrier_arrive(3, 64);  // and nobody else ever comes
    }));
    EXPECT_TRUE(has(Fault::kDeadlock, 64, [] {
        if (warp_id() == 0) barrier_sync();
    }));
}

TEST(Deadlock, NamesWhoWaitsWhere) {
    const simt::Result result = run(64, [] {
        const Shared barrier = dynamic_shared(1024).sub(0, 8);
        if (thread_x() == 0) mbarrier_init(barrier, 2);
        barrier_sync();
        if (thread_x() == 5) mbarrier_arrive(barrier);
        if (warp_id() == 1) mbarrier_wait(barrier, 0);
    });
    EXPECT_TRUE(result.has(Fault::kDeadlock));
    const std::string text = result.summary();
    EXPECT_NE(text.find("waits in mbarrier.try_wait; block (0,0,0) thread 32, 32 times"),
              std::string::npos)
        << text;
    EXPECT_NE(text.find("phase 0, waits for 1 arrivals and 0 bytes"), std::string::npos) << text;
}

TEST(Limits, EndlessLoopsEnd) {
    const simt::Options options{.max_steps = 100'000};
    EXPECT_TRUE(run(
                    32,
                    [] {
                        while (any(true)) {
                        }
                    },
                    options)
                    .has(Fault::kStepLimit));
    std::vector<u32> flag(1, 0);
    EXPECT_TRUE(run(
                    32,
                    [&] {
                        while (Global<u32>(flag.data(), 1).load(0) == 0) {
                        }
                    },
                    options)
                    .has(Fault::kStepLimit));
}

TEST(Limits, LaunchesAreChecked) {
    EXPECT_TRUE(run(33, [] {}).has(Fault::kBadOperand));
    EXPECT_TRUE(run(0, [] {}).has(Fault::kBadOperand));
    EXPECT_TRUE(run(1056, [] {}).has(Fault::kBadOperand));
    EXPECT_TRUE(run(1024, [] { barrier_sync(); }).ok());
    EXPECT_TRUE(
        simt::launch({"big", {1}, {32}, (228 << 10) + 4}, {}, [] {}).has(Fault::kBadOperand));
    EXPECT_TRUE(simt::launch({"none", {0}, {32}}, {}, [] { FAIL(); }).ok());
}

TEST(GivingUp, RunsDestructorsAndSparesTheOtherBlocks) {
    int alive = 0;
    struct Counted {
        int& n;
        explicit Counted(int& counter) : n(counter) { n++; }
        ~Counted() { n--; }
    };
    int finished = 0;
    const simt::Result result = simt::launch({"unwound", {4}, {96}}, {}, [&] {
        Counted counted(alive);
        const auto heap = std::make_unique<std::vector<int>>(100);
        barrier_sync();
        if (block_x() == 2 && thread_x() == 40) barrier_sync(16, 32);
        barrier_sync();
        finished++;
    });
    EXPECT_TRUE(result.has(Fault::kBadOperand) || result.has(Fault::kDivergence));
    EXPECT_EQ(alive, 0);
    EXPECT_EQ(finished, 3 * 96);
}

TEST(GivingUp, ExceptionsOfAKernelAreReported) {
    const simt::Result result = simt::launch({"throws", {2}, {64}}, {}, [] {
        syncwarp();
        if (block_x() == 1 && thread_x() == 33) throw std::runtime_error("out of ideas");
        barrier_sync();
    });
    ASSERT_EQ(result.reports.size(), 1u) << result.summary();
    EXPECT_EQ(result.reports[0].fault, Fault::kException);
    EXPECT_EQ(result.reports[0].thread, 33u);
    EXPECT_EQ(result.reports[0].detail, "out of ideas");
}

TEST(Schedules, DifferBetweenSeedsAndRepeatForOne) {
    const auto order = [](std::uint64_t seed) {
        std::vector<u32> turns;
        (void)run(128,
                  [&] {
                      for (int i = 0; i < 4; i++) {
                          if (lane_id() == 0) turns.push_back(warp_id());
                          syncwarp();
                      }
                  },
                  {.seed = seed});
        return turns;
    };
    std::set<std::vector<u32>> orders;
    for (std::uint64_t seed = 0; seed < 24; seed++) {
        orders.insert(order(seed));
        EXPECT_EQ(order(seed), order(seed));
    }
    EXPECT_GT(orders.size(), 8u);
}

TEST(Schedules, NoLaneIsAlwaysFirst) {
    std::set<u32> first;
    for (std::uint64_t seed = 0; seed < 64; seed++) {
        bool is_first = true;
        (void)run(32,
                  [&] {
                      if (is_first) first.insert(lane_id());
                      is_first = false;
                  },
                  {.seed = seed});
    }
    EXPECT_GT(first.size(), 16u);
}

TEST(Statistics, CountBankConflicts) {
    const auto conflicts = [](u32 row_bytes) {
        return run(32,
                   [=] {
                       const Shared shared = dynamic_shared(1024);
                       for (u32 i = lane_id(); i < 256; i += 32)
                           shared.store(4 * i, i);
                       syncwarp();
                       u32 r[1];
                       ldmatrix_x1(r, shared, lane_id() % 8 * row_bytes);
                   })
            .statistics.ldmatrix_conflicts;
    };
    EXPECT_EQ(conflicts(16), 0u);
    EXPECT_EQ(conflicts(64), 6u);
    EXPECT_EQ(conflicts(112), 0u);
}

TEST(Statistics, MeasureTheStack) {
    const simt::Result result = run(32,
                                    [] {
                                        volatile char big[20000];
                                        for (int i = 0; i < 20000; i += 64)
                                            big[i] = 1;
                                        syncwarp();
                                        EXPECT_EQ(big[64], 1);
                                    },
                                    {.measure_stack = true});
    EXPECT_GT(result.statistics.stack_bytes, 20000u);
    EXPECT_LE(result.statistics.stack_bytes, simt::Options{}.stack_bytes);
}

// Frames of each size in turn on the same stacks: for the address sanitizer, which must have
// forgotten the frames of the block before.
template <int N>
int fill_frame(int value) {
    volatile int frame[N];
    for (int i = 0; i < N; i++)
        frame[i] = value + i;
    syncwarp();
    return frame[N - 1];
}

TEST(Stacks, ServeOneBlockAfterTheOther) {
    const simt::Result result = simt::launch({"frames", {64}, {64}}, {}, [] {
        const int value = static_cast<int>(block_x());
        int got = 0;
        if (value % 4 == 0) got = fill_frame<3>(value) - 2;
        if (value % 4 == 1) got = fill_frame<50>(value) - 49;
        if (value % 4 == 2) got = fill_frame<17>(value) - 16;
        if (value % 4 == 3) got = fill_frame<300>(value) - 299;
        EXPECT_EQ(got, value);
    });
    EXPECT_TRUE(result.ok()) << result.summary();
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST(StacksDeathTest, OverflowFaultsAtTheGuardPage) {
    // Each frame looks at the one above it, so that no compiler makes a loop of it.
    const auto recurse = [](auto&& self, int depth, const volatile char* above) -> int {
        volatile char frame[4096];
        frame[0] = static_cast<char>(depth + above[0]);
        return depth == 0 ? frame[0] : self(self, depth - 1, frame) + frame[0];
    };
    const volatile char top[1] = {};
    EXPECT_DEATH((void)run(32, [&] { (void)recurse(recurse, 100, top); }), "");
}
#endif

}  // namespace
}  // namespace quatt::test
