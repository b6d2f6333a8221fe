// Mask::first and Mask::last against the definition of causal and window, key by key.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cstdint>
#include <limits>
#include <vector>

#include "oracle.hpp"
#include "recipe/attend.hpp"

namespace quatt::recipe {
namespace {

constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

testing::AssertionResult agrees(const Mask& m, std::int64_t row) {
    const std::int64_t first = m.first(row), last = m.last(row);
    if (first < 0 || last < first || last > m.k_len) {
        return testing::AssertionFailure()
               << "[" << first << ", " << last << ") is no range of " << m.k_len << " keys";
    }
    for (std::int64_t j = 0; j < m.k_len; j++) {
        if (oracle::sees(row, j, m.q_len, m.k_len, m.causal, m.left, m.right) !=
            (j >= first && j < last)) {
            return testing::AssertionFailure()
                   << "row " << row << " of " << m.q_len << ", key " << j << " of " << m.k_len
                   << ", causal " << m.causal << ", window " << m.left << ", " << m.right << ": ["
                   << first << ", " << last << ")";
        }
    }
    return testing::AssertionSuccess();
}

TEST(Mask, EverySmallCase) {
    const std::vector<std::int64_t> windows = {-1, 0, 1, 2, 3, 4, 5, 6, 7, 100, kMost - 1, kMost};
    for (std::int64_t q_len = 1; q_len <= 6; q_len++) {
        for (std::int64_t k_len = 0; k_len <= 6; k_len++) {
            for (const std::int64_t left : windows) {
                for (const std::int64_t right : windows) {
                    for (const bool causal : {false, true}) {
                        for (std::int64_t row = 0; row < q_len; row++) {
                            ASSERT_TRUE(agrees({q_len, k_len, causal, left, right}, row));
                        }
                    }
                }
            }
        }
    }
}

RC_GTEST_PROP(Mask, RandomCase, ()) {
    const auto window = [](std::int64_t len) {
        return *rc::gen::oneOf(
            rc::gen::just<std::int64_t>(-1), rc::gen::inRange<std::int64_t>(0, 2 * len + 2),
            rc::gen::elementOf(std::vector<std::int64_t>{kMost, kMost - 1, kMost / 2}));
    };
    const auto q_len = *rc::gen::inRange<std::int64_t>(1, 300),
               k_len = *rc::gen::inRange<std::int64_t>(0, 300);
    const Mask m{q_len, k_len, *rc::gen::arbitrary<bool>(), window(q_len + k_len),
                 window(q_len + k_len)};
    RC_ASSERT(static_cast<bool>(agrees(m, *rc::gen::inRange<std::int64_t>(0, q_len))));
}

// Lengths at which a 32-bit index would wrap.
TEST(Mask, LongSegments) {
    constexpr std::int64_t kLong = std::int64_t{1} << 40;
    const Mask causal{kLong, kLong, true, -1, -1};
    EXPECT_EQ(causal.first(kLong - 1), 0);
    EXPECT_EQ(causal.last(kLong - 1), kLong);
    EXPECT_EQ(causal.last(0), 1);
    const Mask window{1, kLong, true, 127, -1};
    EXPECT_EQ(window.first(0), kLong - 128);
    EXPECT_EQ(window.last(0), kLong);
    const Mask more_queries{kLong, 3, true, kMost, kMost};
    EXPECT_EQ(more_queries.last(kLong - 4), 0);
    EXPECT_EQ(more_queries.last(kLong - 3), 1);
    EXPECT_EQ(more_queries.first(kLong - 1), 0);
    const Mask before{kLong, 3, false, 0, 0};
    EXPECT_EQ(before.first(0), before.last(0)) << "a row far before the first key sees nothing";
}

}  // namespace
}  // namespace quatt::recipe
