// The two kernels as they are: right, silent, and the same bits whatever the schedule.
#include <gtest/gtest.h>

#include <cstring>

#include "simt/problem.hpp"

namespace quatt::test {
namespace {

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

TEST(Kernels, CopyGivesTheExpectedBitsAtEverySeed) {
    for (const std::uint32_t m : {1u, 63u, 64u, 100u}) {
        Problem problem(m, 64, 256);
        const std::vector<float> expected = problem.expected();
        for (std::uint64_t seed = 0; seed < seeds(); seed++) {
            const simt::Result result = problem.run_copy({.seed = seed});
            EXPECT_TRUE(result.ok()) << "seed " << seed << "\n" << result.summary();
            EXPECT_TRUE(same_bits(problem.c, expected)) << "m " << m << " seed " << seed;
        }
    }
}

TEST(Kernels, BulkGivesTheExpectedBitsAtEverySeed) {
    for (const std::uint32_t m : {1u, 64u, 100u}) {
        Problem problem(m, 64, 640);
        const std::vector<float> expected = problem.expected();
        for (std::uint64_t seed = 0; seed < seeds(); seed++) {
            const simt::Result result = problem.run_bulk({.seed = seed});
            EXPECT_TRUE(result.ok()) << "seed " << seed << "\n" << result.summary();
            EXPECT_TRUE(same_bits(problem.c, expected)) << "m " << m << " seed " << seed;
        }
    }
}

TEST(Kernels, WorkersChangeNothing) {
    Problem problem(300, 96, 256);
    const std::vector<float> expected = problem.expected();
    for (const unsigned workers : {1u, 2u, 5u, 0u}) {
        EXPECT_TRUE(problem.run_copy({.seed = 7, .workers = workers}).ok());
        EXPECT_TRUE(same_bits(problem.c, expected));
        EXPECT_TRUE(problem.run_bulk({.seed = 7, .workers = workers}).ok());
        EXPECT_TRUE(same_bits(problem.c, expected));
    }
}

TEST(Kernels, ReportsDoNotDependOnWorkers) {
    Problem problem(300, 96, 256);
    using copy_kernel::Planted;
    const std::string one =
        problem.run_copy<Planted::kNoFullBarrier>({.seed = 5, .workers = 1}).summary();
    const std::string many =
        problem.run_copy<Planted::kNoFullBarrier>({.seed = 5, .workers = 4}).summary();
    EXPECT_FALSE(one.empty());
    EXPECT_EQ(one, many);
}

TEST(Kernels, EveryCompletionMeetsEveryOrder) {
    Problem problem(64, 32, 512);
    const std::vector<float> expected = problem.expected();
    for (int completion = 0; completion < 3; completion++)
        for (int order = 0; order < 4; order++) {
            const simt::Options options{.seed = 99,
                                        .completion = static_cast<simt::Completion>(completion),
                                        .order = static_cast<simt::WarpOrder>(order)};
            EXPECT_TRUE(problem.run_copy(options).ok());
            EXPECT_TRUE(same_bits(problem.c, expected));
            EXPECT_TRUE(problem.run_bulk(options).ok());
            EXPECT_TRUE(same_bits(problem.c, expected));
        }
}

TEST(Kernels, TheSwizzleLeavesNoBankConflict) {
    Problem problem(64, 32, 256);
    const simt::Result copy = problem.run_copy({});
    EXPECT_GT(copy.statistics.ldmatrix_rows, 0u);
    EXPECT_EQ(copy.statistics.ldmatrix_conflicts, 0u);
    const simt::Result bulk = problem.run_bulk({});
    EXPECT_EQ(bulk.statistics.ldmatrix_conflicts, 0u);
}

}  // namespace
}  // namespace quatt::test
