// Centres and V's scale from a sample, and tokens far from V's centre: every part of the rule by
// itself, and whole heads against oracle_sample.hpp.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "oracle_sample.hpp"
#include "recipe/sample.hpp"
#include "support.hpp"

namespace quatt::recipe {
namespace {

using support::bf16;
using support::QuantisedHead;
using support::Random;
using support::view_of;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr double kScaleError = 0x1p-22;  // the reciprocal of the target and the product are rounded

const quatt_operand_recipe& of_k() {
    return find_recipe("fp8")->k;
}
const quatt_operand_recipe& of_v() {
    return find_recipe("fp8")->v;
}

// ------------------------------------------------------------------------------------- positions

// Lengths of all kinds, up to what no memory holds.
std::vector<std::int64_t> lengths() {
    std::vector<std::int64_t> all = {1025,  1026,   1039,    1040,    1087,       2047,
                                     2048,  2049,   3000,    8192,    30272,      75600,
                                     99999, 131072, 1 << 20, 3 << 22, 0x7FFFFFFF, INT64_C(1) << 33};
    Random random(1);
    for (int i = 0; i < support::cases(200); i++) {
        all.push_back(1025 + static_cast<std::int64_t>(std::exp2(random.uniform(0, 36))));
    }
    return all;
}

// The sample in the order of its tokens: (token, group).
std::vector<std::pair<std::int64_t, std::uint32_t>> sample_of(std::int64_t tokens) {
    std::vector<std::pair<std::int64_t, std::uint32_t>> all;
    for (std::uint32_t g = 0; g < 16; g++) {
        for (std::uint32_t t = 0; t < 64; t++) {
            if (const std::int64_t j = sample_token(g, t, tokens); j >= 0) {
                all.emplace_back(j, g);
            }
        }
    }
    std::sort(all.begin(), all.end());
    return all;
}

TEST(Sample, IsAllTokensOfShortSegments) {
    for (std::int64_t n = 0; n <= 1024; n++) {
        const auto all = sample_of(n);
        ASSERT_EQ(static_cast<std::int64_t>(all.size()), n);
        for (std::int64_t i = 0; i < n; i++) {
            ASSERT_EQ(all[static_cast<std::size_t>(i)].first, i) << n << " tokens";
        }
        ASSERT_EQ(sample_size(n), n);
    }
}

TEST(Sample, HasOneTokenOfEach1024th) {
    for (const std::int64_t n : lengths()) {
        const auto all = sample_of(n);
        ASSERT_EQ(all.size(), 1024U);
        ASSERT_EQ(sample_size(n), 1024);
        for (std::int64_t i = 0; i < 1024; i++) {
            const std::int64_t j = all[static_cast<std::size_t>(i)].first;
            ASSERT_GE(j, i * n / 1024) << n << " tokens";
            ASSERT_LT(j, (i + 1) * n / 1024) << n << " tokens";
        }
    }
}

TEST(Sample, GivesEachGroupOneOf16Neighbours) {
    for (std::int64_t n = 0; n < 1024; n++) {
        std::vector<std::uint32_t> size(16, 0);
        const auto all = sample_of(n);
        std::uint32_t seen = 0;
        for (std::size_t i = 0; i < all.size(); i++) {
            seen = i % 16 == 0 ? 0 : seen;
            ASSERT_EQ(seen >> all[i].second & 1U, 0U) << n << " tokens, number " << i;
            seen |= 1U << all[i].second;
            size[all[i].second]++;
        }
        for (std::uint32_t g = 0; g < 16; g++) {
            ASSERT_EQ(group_size(g, n), size[g]) << n << " tokens";
        }
    }
    for (const std::int64_t n : lengths()) {
        const auto all = sample_of(n);
        for (std::size_t i = 0; i < 1024; i += 16) {
            std::set<std::uint32_t> groups;
            for (std::size_t k = i; k < i + 16; k++) {
                groups.insert(all[k].second);
            }
            ASSERT_EQ(groups.size(), 16U) << n << " tokens, neighbours " << i;
        }
        ASSERT_EQ(group_size(7, n), 64U);
    }
}

// Positions and groups are part of the recipe: kernels have them in bits.
TEST(Sample, PositionsAreThoseOfTheOracle) {
    std::vector<std::int64_t> all = lengths();
    for (std::int64_t n = 0; n <= 1024; n += 13) {
        all.push_back(n);
    }
    for (const std::int64_t n : all) {
        const oracle::SampleGroups want = oracle::sample_groups(n);
        for (std::uint32_t g = 0; g < 16; g++) {
            for (std::uint32_t t = 0; t < 64; t++) {
                ASSERT_EQ(sample_token(g, t, n), want[g][t]) << n << " tokens, group " << g;
            }
        }
    }
}

// Of a wave of period p in the tokens the sample sees no more than chance would show it: 1024
// random phases add up to a vector of length sqrt(1024), 99.99 % of them to less than three times
// that. A group of 64 likewise. Periods of grids, of tiles and of the strata themselves.
TEST(Sample, ResonatesWithNoGrid) {
    for (const std::int64_t n : {4096, 8192, 30272, 75600, 131072}) {
        for (const double period : {2.0, 3.0, 4.0, 7.0, 8.0, 16.0, 32.0, 45.0, 64.0, 80.0, 100.0,
                                    128.0, 256.0, 3600.0, static_cast<double>(n) / 1024,
                                    static_cast<double>(n) / 512, static_cast<double>(n) / 64}) {
            if (period * 64 > static_cast<double>(n) && period > static_cast<double>(n) / 100) {
                continue;  // strata resolve it
            }
            double x = 0, y = 0;
            std::vector<double> group_x(16, 0), group_y(16, 0);
            for (const auto& [j, g] : sample_of(n)) {
                const double phase =
                    2 * 3.14159265358979 * std::fmod(static_cast<double>(j), period) / period;
                x += std::cos(phase);
                y += std::sin(phase);
                group_x[g] += std::cos(phase);
                group_y[g] += std::sin(phase);
            }
            const double slack = period == 2 ? std::sqrt(2.0) : 1;
            EXPECT_LE(std::hypot(x, y), slack * 3 * 32) << n << " tokens, period " << period;
            for (std::size_t g = 0; g < 16; g++) {
                EXPECT_LE(std::hypot(group_x[g], group_y[g]), slack * 3.6 * 8)
                    << n << " tokens, period " << period << ", group " << g;
            }
        }
    }
}

// No group always has the same place among its neighbours.
TEST(Sample, OrdersDiffer) {
    const auto all = sample_of(1024);
    for (std::uint32_t g = 0; g < 16; g++) {
        std::vector<int> places(16, 0);
        for (std::size_t i = 0; i < all.size(); i++) {
            places[i % 16] += all[i].second == g ? 1 : 0;
        }
        EXPECT_GE(std::count_if(places.begin(), places.end(), [](int n) { return n > 0; }), 12);
        EXPECT_LE(*std::max_element(places.begin(), places.end()), 12);
    }
}

// --------------------------------------------------------------------------------------- medians

RC_GTEST_PROP(SampleMedian, IsTheMiddleOfTheSorted, ()) {
    Random random(*rc::gen::arbitrary<std::uint64_t>());
    const auto n = *rc::gen::inRange<std::uint32_t>(0, 17);
    float x[16];
    std::vector<double> finite;
    for (std::uint32_t i = 0; i < 16; i++) {
        x[i] = i < n
                   ? static_cast<float>(random.integer(0, 2) == 0
                                            ? static_cast<double>(random.integer(-2, 2))
                                            : random.normal() * std::exp2(random.uniform(-60, 60)))
                   : kInf;
        if (i < n) {
            finite.push_back(static_cast<double>(x[i]));
        }
    }
    std::vector<std::size_t> order(16);  // those left out stand anywhere
    std::iota(order.begin(), order.end(), std::size_t{0});
    for (std::size_t i = 16; i > 1; i--) {
        std::swap(x[i - 1],
                  x[static_cast<std::size_t>(random.integer(0, static_cast<std::int64_t>(i) - 1))]);
    }
    RC_ASSERT(static_cast<double>(median(x, n)) ==
              oracle::nearest(oracle::kF32, oracle::median_of(finite)));
}

TEST(SampleMedian, OfTheLargestNumbersIsFinite) {
    constexpr float kMax = std::numeric_limits<float>::max();
    float x[16];
    std::fill(x, x + 16, kMax);
    EXPECT_EQ(median(x, 16), kMax);
    std::fill(x, x + 8, -kMax);
    EXPECT_EQ(median(x, 16), 0);
}

// ------------------------------------------------------------------------------- data of a head

struct Data {
    std::int64_t tokens = 0, channels = 0;
    std::vector<float> x;

    Data(std::int64_t n, std::int64_t d)
        : tokens(n), channels(d), x(static_cast<std::size_t>(n * d)) {}
    float& at(std::int64_t j, std::int64_t d) {
        return x[static_cast<std::size_t>(j * channels + d)];
    }
    [[nodiscard]] double operator()(std::int64_t j, std::int64_t d) const {
        return static_cast<double>(x[static_cast<std::size_t>(j * channels + d)]);
    }
    [[nodiscard]] HeadView view() const { return view_of(x, tokens, channels); }
};

Data normal_data(Random& random, std::int64_t tokens, std::int64_t channels, double mean = 0) {
    Data x(tokens, channels);
    for (float& y : x.x) {
        y = bf16(random.normal() + mean);
    }
    return x;
}

// A token that the sample has not.
std::int64_t outside(std::int64_t tokens) {
    const auto all = sample_of(tokens);
    std::int64_t j = 0;
    for (const auto& [token, group] : all) {
        if (token != j) {
            return j;
        }
        j++;
    }
    return j;
}

// Canonical K and V of x as the text says, NaN and infinities included.
testing::AssertionResult is_right(const Data& x, const quatt_operand_recipe& r, int* doubtful) {
    const bool is_v = r.group_channels == 1;
    const QuantisedHead h(r, false, x.view());
    const oracle::SampledHead want = oracle::sampled_head(
        x.tokens, x.channels, is_v, static_cast<double>(r.amax_target),
        [&](std::int64_t j, std::int64_t d) { return x(j, d); },
        [&](std::int64_t d) { return h.mean(0, d) != 0; });
    if (!h.guards_are_whole()) {
        return testing::AssertionFailure() << "wrote outside its arrays";
    }
    for (std::int64_t d = 0; d < x.channels; d++) {
        const auto i = static_cast<std::size_t>(d);
        if (h.mean(0, d) != want.center[i]) {
            return testing::AssertionFailure() << "centre of channel " << d << " is "
                                               << h.mean(0, d) << ", not " << want.center[i];
        }
        const double s = h.scale(0, d), right = want.scale[i];
        *doubtful += want.doubtful[i];
        if (is_v &&
            !(std::isnan(right)
                  ? std::isnan(s)
                  : std::fabs(s - right) <= right * (want.doubtful[i] != 0 ? 2e-6 : kScaleError))) {
            return testing::AssertionFailure()
                   << "scale of channel " << d << " is " << s << ", not " << right
                   << (want.lied[i] != 0 ? " (the sample lied)" : "");
        }
    }
    for (std::int64_t j = 0; j < x.tokens; j++) {
        if (is_v && h.is_far(j) != (want.far[static_cast<std::size_t>(j)] != 0)) {
            return testing::AssertionFailure()
                   << "token " << j << " is " << (h.is_far(j) ? "" : "not ") << "far";
        }
        for (std::int64_t d = 0; is_v && d < x.channels; d++) {
            const double c = h.is_far(j) ? 0 : h.mean(0, d),
                         y = static_cast<double>(static_cast<float>(x(j, d)) -
                                                 static_cast<float>(c)),
                         s = h.scale(0, d), code = h.code(j, d);
            const bool ok = std::isnan(s) ? std::isnan(code)
                                          : std::fabs(code - y / s) <=
                                                    oracle::spacing(oracle::kE4m3, y / s) / 2 +
                                                        std::fabs(y / s) * 0x1p-21 &&
                                                std::fabs(y / s) <= 448 * (1 + 0x1p-21);
            if (!ok) {
                return testing::AssertionFailure() << "code of token " << j << ", channel " << d
                                                   << " is " << code << " for " << y / s;
            }
        }
    }
    return testing::AssertionSuccess();
}

// ------------------------------------------------------------------------------------- centres

// Sums that cancel: what is left of them is what their order rounds.
TEST(Sample, SumsAreFolded) {
    Random random(2);
    int tells = 0;
    for (const std::int64_t n : {1024, 700, 5000}) {
        Data x(n, 8);
        const oracle::SampleGroups groups = oracle::sample_groups(n);
        for (std::int64_t d = 0; d < x.channels; d++) {
            for (const auto& group : groups) {
                double sum = 0;
                std::int64_t last = -1;
                for (const std::int64_t j : group) {
                    if (j < 0) {
                        continue;
                    }
                    x.at(j, d) =
                        static_cast<float>(random.normal() * std::exp2(random.uniform(-4, 12)));
                    sum += x(j, d);
                    last = j;
                }
                x.at(last, d) = static_cast<float>(-(sum - x(last, d)));
            }
        }
        const QuantisedHead h(of_k(), false, x.view());
        for (std::int64_t d = 0; d < x.channels; d++) {
            const oracle::Channel channel = [&](std::int64_t j) { return x(j, d); };
            ASSERT_EQ(h.mean(0, d), oracle::sample_channel(groups, channel).center)
                << n << " tokens";
            std::vector<double> in_order;  // of another order, something else is left
            for (const auto& group : groups) {
                float sum = 0;
                for (const std::int64_t j : group) {
                    sum += j < 0 ? 0.0f : static_cast<float>(x(j, d)) / 256;
                }
                in_order.push_back(static_cast<double>(sum) * 4);
            }
            tells +=
                h.mean(0, d) != oracle::nearest(oracle::kBf16, oracle::median_of(in_order)) ? 1 : 0;
        }
    }
    EXPECT_GE(tells, 12) << "of 24 channels";
}

// Means of the groups that are what the test says.
Data with_group_means(std::int64_t tokens, const std::vector<double>& means) {
    Data x(tokens, 1);
    const oracle::SampleGroups groups = oracle::sample_groups(tokens);
    for (std::size_t g = 0; g < 16; g++) {
        for (const std::int64_t j : groups[g]) {
            if (j >= 0) {
                x.at(j, 0) = static_cast<float>(means[g]);
            }
        }
    }
    return x;
}

TEST(Sample, CentreIsTheMedianOfTheGroupsMeans) {
    // Two middle ones, 7 and 9; the heavy groups count once.
    const std::vector<double> means = {1e6, 1, 2, 3, 4, 5, 6, 7, 9, 1e6, 1e6, 1e6, 1e6, 11, 13, -8};
    for (const std::int64_t n : {1024, 1000, 20000}) {
        Data x = with_group_means(n, means);
        EXPECT_EQ(QuantisedHead(of_k(), false, x.view()).mean(0, 0), 8) << n << " tokens";
        // A group that is left out: of 15, the middle one.
        x.at(oracle::sample_groups(n)[15][3], 0) = kNaN;
        EXPECT_EQ(QuantisedHead(of_k(), false, x.view()).mean(0, 0), 9) << n << " tokens";
        x.at(oracle::sample_groups(n)[0][5], 0) = -kInf;
        EXPECT_EQ(QuantisedHead(of_k(), false, x.view()).mean(0, 0), 8) << n << " tokens";
    }
    // Three tokens are three groups.
    Data x(3, 1);
    x.x = {1, 100, 5};
    EXPECT_EQ(QuantisedHead(of_k(), false, x.view()).mean(0, 0), 5);
    x.x = {1, kInf, 5};
    EXPECT_EQ(QuantisedHead(of_k(), false, x.view()).mean(0, 0), 3);
    x.x = {kNaN, kInf, -kInf};
    EXPECT_EQ(QuantisedHead(of_k(), false, x.view()).mean(0, 0), 0);
    EXPECT_EQ(QuantisedHead(of_v(), false, x.view()).mean(0, 0), 0);
    EXPECT_TRUE(std::isnan(QuantisedHead(of_v(), false, x.view()).scale(0, 0)));
}

// One massive token moves one group, so the centre by less than a rank.
TEST(Sample, OneMassiveTokenHardlyMovesTheCentre) {
    Random random(3);
    for (const std::int64_t n : {1024, 8192}) {
        Data x = normal_data(random, n, 32, .5);
        const QuantisedHead plain(of_k(), false, x.view());
        const std::int64_t j = oracle::sample_groups(n)[4][17];
        for (std::int64_t d = 0; d < 32; d++) {
            x.at(j, d) = d % 2 == 0 ? 1e4f : -1e4f;
        }
        const QuantisedHead h(of_k(), false, x.view());
        for (std::int64_t d = 0; d < 32; d++) {
            // A group's mean has a standard deviation of 1/8; neighbours in rank are closer.
            EXPECT_NEAR(h.mean(0, d), plain.mean(0, d), .125) << n << " tokens";
        }
    }
}

// Only the group of a value that is not finite is left out, and in its channel alone.
TEST(Sample, GroupsThatAreNotFiniteAreLeftOut) {
    Random random(4);
    int doubtful = 0;
    for (int round = 0; round < support::cases(40); round++) {
        const std::int64_t n = random.of<std::int64_t>({1, 5, 17, 300, 1024, 1025, 3000});
        Data x = normal_data(random, n, 6, random.of<double>({0, 1}));
        const std::int64_t bad = random.integer(1, 40);
        for (std::int64_t i = 0; i < bad; i++) {
            x.at(random.integer(0, n - 1), random.integer(0, 5)) =
                random.of<float>({kNaN, kInf, -kInf});
        }
        ASSERT_TRUE(is_right(x, of_k(), &doubtful)) << n << " tokens";
        ASSERT_TRUE(is_right(x, of_v(), &doubtful)) << n << " tokens";
    }
}

// ------------------------------------------------------------------------------ centred or not

// Half of the tokens at c + s, half at c - s, in every group: its mean is c, h = s, a = s.
Data two_values(std::int64_t tokens, const std::vector<std::pair<double, double>>& channels) {
    Data x(tokens, static_cast<std::int64_t>(channels.size()));
    const oracle::SampleGroups groups = oracle::sample_groups(tokens);
    for (std::size_t d = 0; d < channels.size(); d++) {
        const auto [c, s] = channels[d];
        for (const auto& group : groups) {
            for (std::size_t t = 0; t < 64; t++) {
                if (group[t] >= 0) {
                    x.at(group[t], static_cast<std::int64_t>(d)) =
                        static_cast<float>(t % 2 == 0 ? c + s : c - s);
                }
            }
        }
    }
    return x;
}

TEST(Sample, MeansOfVThatAreLostOrUnknownStay) {
    // m = 1024: known from 2 h / 32 = h / 16 on, which is more than a / 64.
    const Data x = two_values(
        1024, {{.0615, 1}, {.0635, 1}, {-.0615, 1}, {-.0635, 1}, {.001, 1}, {4, 1}, {0, 1}});
    const QuantisedHead h(of_v(), false, x.view());
    EXPECT_EQ(h.mean(0, 0), 0);
    EXPECT_EQ(h.mean(0, 1), static_cast<double>(bf16(.0635)));
    EXPECT_EQ(h.mean(0, 2), 0);
    EXPECT_EQ(h.mean(0, 3), static_cast<double>(bf16(-.0635)));
    EXPECT_EQ(h.mean(0, 4), 0);
    EXPECT_EQ(h.mean(0, 5), 4);
    EXPECT_EQ(h.mean(0, 6), 0);
    // Head-room: 8 a, of what is coded.
    EXPECT_NEAR(h.scale(0, 0), 8 * 1.0615 / 448, 1e-6);
    EXPECT_NEAR(h.scale(0, 1), 8 * (1 + .0635 - static_cast<double>(bf16(.0635))) / 448, 1e-5);
    EXPECT_NEAR(h.scale(0, 5), 8.0 / 448, 1e-8);
    // K is always centred: there it costs nothing.
    const QuantisedHead k(of_k(), false, x.view());
    EXPECT_EQ(k.mean(0, 0), static_cast<double>(bf16(.0615)));
    EXPECT_NE(k.mean(0, 4), 0);
    // 64 tokens know less: 2 h / 8.
    const Data few = two_values(64, {{.249, 1}, {.251, 1}});
    const QuantisedHead f(of_v(), false, few.view());
    EXPECT_EQ(f.mean(0, 0), 0);
    EXPECT_NE(f.mean(0, 1), 0);
    // A value beside which the mean is below a / 64: known, but not worth it.
    for (const auto& [value, stays] : {std::pair{65.5f, true}, {62.5f, false}}) {
        Data heavy = two_values(1024, {{1, .125}});
        heavy.at(oracle::sample_groups(1024)[0][0], 0) = value;
        EXPECT_EQ(QuantisedHead(of_v(), false, heavy.view()).mean(0, 0) == 0, stays) << value;
    }
}

// m is the sample's size, not the segment's.
TEST(Sample, LongSegmentsKnowTheirMeanFrom1024Tokens) {
    const Data x = two_values(65536, {{.0615, 1}, {.0635, 1}});
    const QuantisedHead h(of_v(), false, x.view());
    EXPECT_EQ(h.mean(0, 0), 0);
    EXPECT_NE(h.mean(0, 1), 0);
}

// The rule has no scale of its own: 2^e in V is 2^e in centre and scale, and changes no far token.
TEST(Sample, PowersOfTwoChangeNothing) {
    Random random(5);
    Data x(2000, 24);
    for (std::int64_t j = 0; j < x.tokens; j++) {
        for (std::int64_t d = 0; d < x.channels; d++) {
            x.at(j, d) = j % 40 == 7 ? bf16(.01 * random.normal())
                                     : bf16(random.normal() + .05 * static_cast<double>(d % 12));
        }
    }
    const QuantisedHead plain(of_v(), false, x.view());
    EXPECT_TRUE(plain.is_far(47));
    for (const int e : {-40, -10, 1, 20, 40}) {
        Data y = x;
        for (float& z : y.x) {
            z = std::ldexp(z, e);
        }
        const QuantisedHead h(of_v(), false, y.view());
        for (std::int64_t d = 0; d < x.channels; d++) {
            ASSERT_EQ(h.mean(0, d), std::ldexp(plain.mean(0, d), e)) << e;
            ASSERT_EQ(h.scale(0, d), std::ldexp(plain.scale(0, d), e)) << e;
        }
        for (std::int64_t j = 0; j < x.tokens; j++) {
            ASSERT_EQ(h.is_far(j), plain.is_far(j)) << e;
        }
    }
}

// ------------------------------------------------------------------------------------ V's scale

TEST(Sample, HeadRoomOfVsScale) {
    // h = 1 and a mean of 4, c + s and c - s in each group; then one token of the sample stands
    // out.
    struct Case {
        double value, room;  // |x - c| of the token, and what 448 scales are
    };
    for (const Case& c :
         {Case{1, 8}, {1.5, 12}, {2, 16}, {3, 16}, {15, 16}, {16.5, 16.5}, {200, 200}}) {
        Data x = two_values(2048, {{4, 1}});
        x.at(oracle::sample_groups(2048)[3][10], 0) = static_cast<float>(4 + c.value);
        const QuantisedHead h(of_v(), false, x.view());
        EXPECT_EQ(h.mean(0, 0), 4) << c.value;
        EXPECT_NEAR(h.scale(0, 0), c.room / 448, 1e-6) << c.value;
    }
}

TEST(Sample, AChannelWhoseSampleLiedTakesItsExactAmax) {
    for (const std::int64_t n : {2048, 20000}) {
        const std::int64_t j = outside(n);
        for (const double value : {4 + 7.9, 4 + 8.1, 4 - 8.1, 1000.0}) {
            Data x = two_values(n, {{4, 1}, {4, 1}});
            for (std::int64_t i = 0; i < n; i++) {  // what the sample has not seen
                x.at(i, 0) = x.at(i, 0) == 0 ? 4 : x.at(i, 0);
                x.at(i, 1) = x.at(i, 1) == 0 ? 4 : x.at(i, 1);
            }
            x.at(j, 1) = static_cast<float>(value);
            const QuantisedHead h(of_v(), false, x.view());
            const double a = std::fabs(value - 4);
            EXPECT_NEAR(h.scale(0, 0), 8.0 / 448, 1e-8) << "the other channel stays";
            EXPECT_NEAR(h.scale(0, 1), (a > 8 ? a : 8.0) / 448, 1e-6 * a) << value;
            EXPECT_NEAR(h.value(j, 1), value, std::fabs(value) / 16) << value;
            EXPECT_EQ(h.mean(0, 1), 4) << value;
            for (const float poison : {kNaN, kInf, -kInf}) {
                x.at(j, 1) = poison;
                const QuantisedHead g(of_v(), false, x.view());
                EXPECT_NEAR(g.scale(0, 0), 8.0 / 448, 1e-8);
                EXPECT_TRUE(std::isnan(g.scale(0, 1)));
                EXPECT_EQ(g.mean(0, 1), 4);
                EXPECT_TRUE(g.is_far(j) == std::isnan(poison));
            }
        }
    }
}

TEST(Sample, ConstantChannels) {
    const std::int64_t n = 4096, j = outside(n);
    Data x(n, 3);
    for (std::int64_t i = 0; i < n; i++) {
        x.at(i, 0) = 3;
        x.at(i, 1) = 3;
    }
    x.at(j, 1) = 3.5f;
    x.at(j, 2) = 1e-3f;
    const QuantisedHead h(of_v(), false, x.view());
    EXPECT_EQ(h.mean(0, 0), 3);
    EXPECT_EQ(h.scale(0, 0), 0x1p-126);
    EXPECT_EQ(h.mean(0, 1), 3);
    EXPECT_NEAR(h.scale(0, 1), .5 / 448, 1e-8);
    EXPECT_EQ(h.code(j, 1), 448);
    EXPECT_EQ(h.code(0, 1), 0);
    EXPECT_NEAR(h.scale(0, 2), 1e-3 / 448, 1e-10);
    EXPECT_EQ(h.code(j, 2), 448);
}

// ------------------------------------------------------------------------------------ far tokens

TEST(FarTokens, AreThoseFartherThanTwiceTheirSize) {
    // |v - c|^2 > 2 |v|^2: of t c, from t < sqrt(2) - 1 on; across c, of size u |c|, 1 + u^2 > 2
    // u^2.
    constexpr std::int64_t kTokens = 2048;
    for (const std::int64_t channels : {2, 4, 36, 128, 130, 256}) {
        Data x(kTokens, channels);
        for (std::int64_t j = 0; j < kTokens; j++) {
            for (std::int64_t d = 0; d < channels; d++) {
                x.at(j, d) = d % 2 == 0 ? 2.0f : -1.0f;
            }
        }
        const std::int64_t first = outside(kTokens);
        struct Token {
            double along, across;
            bool far;
        };
        const std::vector<Token> tokens = {{0, 0, true},      {.41, 0, true}, {.42, 0, false},
                                           {1, 0, false},     {-1, 0, true},  {-2.41, 0, true},
                                           {-2.42, 0, false}, {0, .99, true}, {0, 1.01, false},
                                           {0, -.99, true},   {2, 0, false}};
        std::vector<std::int64_t> where;
        const auto sample = sample_of(kTokens);
        for (std::int64_t j = first; where.size() < tokens.size(); j++) {
            if (std::none_of(sample.begin(), sample.end(),
                             [&](const auto& s) { return s.first == j; })) {
                where.push_back(j);
            }
        }
        for (std::size_t i = 0; i < tokens.size(); i++) {
            for (std::int64_t d = 0; d < channels; d++) {
                // (2, -1) and across it (1, 2).
                x.at(where[i], d) =
                    static_cast<float>(d % 2 == 0 ? 2 * tokens[i].along + tokens[i].across
                                                  : -tokens[i].along + 2 * tokens[i].across);
            }
        }
        const QuantisedHead h(of_v(), false, x.view());
        ASSERT_EQ(h.mean(0, 0), 2);
        for (std::size_t i = 0; i < tokens.size(); i++) {
            EXPECT_EQ(h.is_far(where[i]), tokens[i].far)
                << tokens[i].along << " c and " << tokens[i].across << " across, " << channels
                << " channels";
            for (std::int64_t d = 0; d < channels; d++) {
                const double v = x(where[i], d);
                ASSERT_NEAR(h.value(where[i], d), v,
                            tokens[i].far ? std::fabs(v) / 16 + h.scale(0, d) * 0x1p-10
                                          : (std::fabs(v) + 2) / 16);
                if (tokens[i].far && v == 0) {
                    ASSERT_EQ(h.code(where[i], d), 0);
                }
            }
        }
        EXPECT_FALSE(h.is_far(first - 1));
    }
}

// Without a centre no token is far, not even NaN.
TEST(FarTokens, NeedACentre) {
    Random random(6);
    Data x = normal_data(random, 500, 16);
    for (std::int64_t d = 0; d < 16; d++) {
        x.at(7, d) = 0;
    }
    x.at(100, 3) = kNaN;
    x.at(200, 3) = kInf;
    for (std::int64_t j = 0; j < 500; j++) {  // of two halves that cancel
        for (std::int64_t d = 0; d < 16; d++) {
            if (j % 2 == 1) {
                x.at(j, d) = -x.at(j - 1, d);
            }
        }
    }
    x.at(101, 3) = 0;
    x.at(201, 3) = 0;
    const QuantisedHead h(of_v(), false, x.view());
    for (std::int64_t d = 0; d < 16; d++) {
        ASSERT_EQ(h.mean(0, d), 0) << "of halves that cancel";
    }
    for (std::int64_t j = 0; j < 500; j++) {
        EXPECT_FALSE(h.is_far(j)) << j;
    }
}

// In bits: of tokens so near to the border that the order of the sums decides. v = c/2 + u with |u|
// drawn around the border; fp64 agrees wherever rounding cannot decide.
TEST(FarTokens, BitsOfTheBorder) {
    Random random(7);
    int near = 0, other = 0;
    for (const std::int64_t channels : {1, 3, 16, 64, 100, 128, 129, 200, 256}) {
        const std::int64_t n = 3000;
        Data x(n, channels);
        std::vector<double> center(static_cast<std::size_t>(channels));
        for (double& c : center) {
            c = static_cast<double>(bf16(random.normal()));
        }
        std::vector<char> in_sample(static_cast<std::size_t>(n), 0);
        for (const auto& [j, g] : sample_of(n)) {
            in_sample[static_cast<std::size_t>(j)] = 1;
        }
        double size = 0;
        for (const double c : center) {
            size += c * c;
        }
        for (std::int64_t j = 0; j < n; j++) {
            double u = 0;
            std::vector<double> w(center.size());
            for (double& y : w) {
                y = random.normal();
                u += y * y;
            }
            for (std::size_t d = 0; d < center.size(); d++) {
                // |v + c| = sqrt(2) |c|
                const double v = w[d] * std::sqrt(2 * size / u) - center[d];
                x.at(j, static_cast<std::int64_t>(d)) =
                    static_cast<float>(in_sample[static_cast<std::size_t>(j)] != 0 ? center[d] : v);
            }
        }
        const QuantisedHead h(of_v(), false, x.view());
        const oracle::SampledHead want = oracle::sampled_head(
            n, channels, true, 448, [&](std::int64_t j, std::int64_t d) { return x(j, d); });
        for (std::int64_t d = 0; d < channels; d++) {
            ASSERT_EQ(h.mean(0, d), center[static_cast<std::size_t>(d)]);
        }
        for (std::int64_t j = 0; j < n; j++) {
            ASSERT_EQ(h.is_far(j), want.far[static_cast<std::size_t>(j)] != 0)
                << "token " << j << ", " << channels << " channels";
            double from = 0, own = 0;
            for (std::int64_t d = 0; d < channels; d++) {
                const double c = center[static_cast<std::size_t>(d)];
                from += (x(j, d) - c) * (x(j, d) - c);
                own += x(j, d) * x(j, d);
            }
            // |v + c|^2 and 2 |c|^2 have some 12 roundings each, of 2^-24.
            if (std::fabs(from - 2 * own) <= 0x1p-19 * (from + 2 * own)) {
                near++;
                other += h.is_far(j) != (from > 2 * own) ? 1 : 0;
            } else {
                ASSERT_EQ(h.is_far(j), from > 2 * own) << "token " << j;
            }
        }
    }
    EXPECT_GE(near, 10000);
    EXPECT_GE(other, 100) << "else the order tells nothing";
}

// --------------------------------------------------------------------------------- whole heads

// Means, tokens near 0, outliers in the sample and outside of it, constant channels, NaN, and all
// lengths.
Data any_data(Random& random) {
    const std::int64_t n = random.integer(0, 3) == 0   ? random.integer(1025, 6000)
                           : random.integer(0, 1) == 0 ? random.integer(1, 1024)
                                                       : random.integer(1, 80);
    Data x(n, random.integer(0, 9) == 0 ? random.integer(1, 256) : random.integer(1, 24));
    const double size = std::exp2(random.uniform(-20, 20));
    const auto zeros = random.of<std::int64_t>({0, 0, 40, 3, 1});
    const auto tail = random.of<double>({0, 0, 3});
    for (std::int64_t d = 0; d < x.channels; d++) {
        const double mean = random.of<double>({0, .03, .06, .07, .1, .5, 1, -3, 30}),
                     deviation = random.of<double>({1, 1, 1, .01, 20, 0});
        for (std::int64_t j = 0; j < n; j++) {
            const bool near_zero = zeros != 0 && j % zeros == zeros / 2;
            const double z = random.normal() * std::exp(tail * random.normal());
            x.at(j, d) = static_cast<float>(
                size * (near_zero ? .2 * random.normal() : mean + deviation * z));
        }
    }
    for (std::int64_t i = random.integer(0, 4); i > 0; i--) {
        x.at(random.integer(0, n - 1), random.integer(0, x.channels - 1)) =
            static_cast<float>(size * random.normal() * std::exp2(random.uniform(0, 12)));
    }
    for (std::int64_t i = random.integer(0, 4) == 0 ? 3 : 0; i > 0; i--) {
        x.at(random.integer(0, n - 1), random.integer(0, x.channels - 1)) =
            random.of<float>({kNaN, kInf, -kInf});
    }
    return x;
}

TEST(Sample, HeadsAsTheTextSays) {
    Random random(8);
    int doubtful = 0, far = 0, lied = 0, centred = 0, heads = 0;
    for (int i = 0; i < support::cases(300); i++) {
        const Data x = any_data(random);
        ASSERT_TRUE(is_right(x, of_k(), &doubtful)) << "K, " << x.tokens << " tokens, round " << i;
        ASSERT_TRUE(is_right(x, of_v(), &doubtful)) << "V, " << x.tokens << " tokens, round " << i;
        const oracle::SampledHead h =
            oracle::sampled_head(x.tokens, x.channels, true, 448,
                                 [&](std::int64_t j, std::int64_t d) { return x(j, d); });
        const auto any = [](const std::vector<char>& v) {
            return std::find(v.begin(), v.end(), 1) != v.end() ? 1 : 0;
        };
        far += any(h.far);
        lied += any(h.lied);
        centred += std::any_of(h.center.begin(), h.center.end(), [](double c) { return c != 0; });
        heads++;
    }
    // What the data is for.
    EXPECT_GE(far, heads / 5);
    EXPECT_GE(lied, heads / 10);
    EXPECT_GE(centred, heads / 2);
}

RC_GTEST_PROP(Sample, AnyHeadAsTheTextSays, ()) {
    Random random(*rc::gen::arbitrary<std::uint64_t>());
    const Data x = any_data(random);
    int doubtful = 0;
    for (const quatt_operand_recipe* r : {&of_k(), &of_v()}) {
        const testing::AssertionResult result = is_right(x, *r, &doubtful);
        if (!result) {
            RC_FAIL(std::string(result.message()));
        }
    }
}

}  // namespace
}  // namespace quatt::recipe
