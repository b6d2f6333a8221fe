// A planted fault of each class is reported at every seed, as what it is.
#include <gtest/gtest.h>

#include <algorithm>

#include "simt/problem.hpp"

namespace quatt::test {
namespace {

using simt::Fault;

template <class Run>
void expect_reported(Run run, std::initializer_list<Fault> any_of) {
    for (std::uint64_t seed = 0; seed < seeds(); seed++) {
        const simt::Result result = run(seed);
        const bool is_reported = std::any_of(any_of.begin(), any_of.end(),
                                             [&](Fault fault) { return result.has(fault); });
        EXPECT_TRUE(is_reported) << "seed " << seed << " reported:\n" << result.summary();
        for (const simt::Report& report : result.reports)
            EXPECT_NE(report.site.line(), 0u) << simt::to_string(report);
    }
}

template <copy_kernel::Planted P>
void expect_copy(std::initializer_list<Fault> any_of, std::uint32_t m = 64) {
    Problem problem(m, 32, 320);
    expect_reported(
        [&](std::uint64_t seed) {
            return problem.run_copy<P>({.seed = seed, .max_steps = 2'000'000});
        },
        any_of);
}

template <bulk_kernel::Planted P>
void expect_bulk(std::initializer_list<Fault> any_of) {
    Problem problem(64, 32, 640);
    expect_reported(
        [&](std::uint64_t seed) {
            return problem.run_bulk<P>({.seed = seed, .max_steps = 2'000'000});
        },
        any_of);
}

namespace copy {
using copy_kernel::Planted;

TEST(PlantedInCopy, NoWait) {
    expect_copy<Planted::kNoWait>({Fault::kInFlight});
}
TEST(PlantedInCopy, NoFullBarrier) {
    expect_copy<Planted::kNoFullBarrier>({Fault::kInFlight, Fault::kReadRace});
}
TEST(PlantedInCopy, NoFreeBarrier) {
    expect_copy<Planted::kNoFreeBarrier>({Fault::kWriteRace});
}
TEST(PlantedInCopy, SmallCount) {
    expect_copy<Planted::kSmallCount>({Fault::kInFlight, Fault::kReadRace});
}
TEST(PlantedInCopy, UnequalCounts) {
    expect_copy<Planted::kUnequalCounts>({Fault::kBarrierMisuse});
}
TEST(PlantedInCopy, NoSyncwarp) {
    expect_copy<Planted::kNoSyncwarp>({Fault::kReadRace});
}
TEST(PlantedInCopy, Divergent) {
    expect_copy<Planted::kDivergent>({Fault::kDivergence});
}
TEST(PlantedInCopy, OutOfBounds) {
    expect_copy<Planted::kOutOfBounds>({Fault::kGlobalBounds}, 63);
}
TEST(PlantedInCopy, SharedOutOfBounds) {
    expect_copy<Planted::kSharedOutOfBounds>({Fault::kSharedBounds});
}
TEST(PlantedInCopy, Misaligned) {
    expect_copy<Planted::kMisaligned>({Fault::kMisaligned});
}
TEST(PlantedInCopy, Endless) {
    expect_copy<Planted::kEndless>({Fault::kStepLimit});
}
TEST(PlantedInCopy, EarlyReturn) {
    expect_copy<Planted::kEarlyReturn>({Fault::kDivergence});
}
TEST(PlantedInCopy, MissedBarrier) {
    expect_copy<Planted::kMissedBarrier>({Fault::kDeadlock, Fault::kBarrierMisuse});
}
TEST(PlantedInCopy, NoTailWait) {
    expect_copy<Planted::kNoTailWait>({Fault::kInFlight});
}
TEST(PlantedInCopy, Uninitialised) {
    expect_copy<Planted::kUninitialised>({Fault::kUninitialised});
}
}  // namespace copy

namespace bulk {
using bulk_kernel::Planted;

TEST(PlantedInBulk, NoFullWait) {
    // Consumers that run before the producer read what nobody has written.
    expect_bulk<Planted::kNoFullWait>({Fault::kReadRace, Fault::kUninitialised});
}
TEST(PlantedInBulk, NoEmptyWait) {
    expect_bulk<Planted::kNoEmptyWait>({Fault::kWriteRace});
}
TEST(PlantedInBulk, EarlyEmpty) {
    expect_bulk<Planted::kEarlyEmpty>({Fault::kWriteRace});
}
TEST(PlantedInBulk, NoEmptyArrive) {
    expect_bulk<Planted::kNoEmptyArrive>({Fault::kDeadlock});
}
TEST(PlantedInBulk, NoSyncwarp) {
    expect_bulk<Planted::kNoSyncwarp>({Fault::kWriteRace});
}
TEST(PlantedInBulk, NoProxyFence) {
    expect_bulk<Planted::kNoProxyFence>({Fault::kProxyFence});
}
TEST(PlantedInBulk, NoInitFence) {
    expect_bulk<Planted::kNoInitFence>({Fault::kProxyFence});
}
TEST(PlantedInBulk, NoInitBarrier) {
    expect_bulk<Planted::kNoInitBarrier>({Fault::kMbarrierMisuse, Fault::kReadRace});
}
TEST(PlantedInBulk, SmallExpect) {
    expect_bulk<Planted::kSmallExpect>({Fault::kMbarrierMisuse, Fault::kDeadlock});
}
TEST(PlantedInBulk, LargeExpect) {
    expect_bulk<Planted::kLargeExpect>({Fault::kDeadlock});
}
TEST(PlantedInBulk, WrongCount) {
    expect_bulk<Planted::kWrongCount>({Fault::kBarrierMisuse, Fault::kReadRace});
}
TEST(PlantedInBulk, NoStoreWait) {
    expect_bulk<Planted::kNoStoreWait>({Fault::kInFlight});
}
TEST(PlantedInBulk, MisplacedBox) {
    expect_bulk<Planted::kMisplacedBox>({Fault::kMisaligned});
}

// The formal model also wants a fence between generic reads and the next bulk copy over them.
TEST(PlantedInBulk, FenceAfterReadsOnRequest) {
    Problem problem(64, 32, 640);
    expect_reported(
        [&](std::uint64_t seed) {
            return problem.run_bulk<Planted::kNone>({.seed = seed, .fence_after_reads = true});
        },
        {Fault::kProxyFence});
}
}  // namespace bulk

}  // namespace
}  // namespace quatt::test
