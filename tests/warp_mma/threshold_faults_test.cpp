// Faults of arithmetic that a case of attention/thresholds.hpp finds, planted in a part of either
// schedule: the comparison of the case passes with the right part and fails with the faulty one.
#include "attention/thresholds.hpp"
#include "warp_mma/instances.hpp"

namespace quatt::test {
namespace {

void expect_found(ThresholdCase t, schedule::Attend faulty) {
    const Wanted want = emulated(t);
    EXPECT_TRUE(is_right(t, run_stages(t.data, t.recipe).results, want));
    const Outcome mutant = run_stages(t.data, t.recipe, {}, faulty);
    EXPECT_TRUE(mutant.report.ok()) << mutant.report.summary();  // numbers alone are wrong
    EXPECT_FALSE(is_right(t, mutant.results, want)) << t.recipe << ", " << t.what;
}

// Parts with another state of the rows.
template <class Recipe, template <recipe::SoftmaxPolicy, std::uint32_t> class State,
          recipe::SoftmaxPolicy Policy = Recipe::kPolicy>
struct WithRows : Whole<Recipe> {
#if defined(QUATT_TEST_WGMMA)
    using Rows = State<Policy, 2>;
#else
    template <std::uint32_t Rows>
    using RowState = State<Policy, Rows>;
#endif
};

// Those in which m may drop, and the tile after a rise is refreshed: bf16 has no refresh.
std::vector<const char*> recipes_that_refresh() {
    std::vector<const char*> some;
    std::copy_if(recipes().begin(), recipes().end(), std::back_inserter(some),
                 [](const char* recipe) { return !is(recipe, "bf16"); });
    return some;
}

// ---------------------------------------------------------------- when a tile is refreshed

constexpr recipe::SoftmaxPolicy with_rise(recipe::SoftmaxPolicy policy, int rise) {
    policy.refresh_rise = rise;
    return policy;
}
template <class Recipe>
using RefreshAfterSeven = WithRows<Recipe, softmax::RowState, with_rise(Recipe::kPolicy, 7)>;
template <class Recipe>
using RefreshAfterNine = WithRows<Recipe, softmax::RowState, with_rise(Recipe::kPolicy, 9)>;

TEST(ThresholdFaults, ARefreshAfterARiseOfSeven) {
    for (const char* recipe : recipes_that_refresh()) {
        expect_found(a_rise_before_light_keys(recipe, 7, 1), instance<RefreshAfterSeven>(recipe));
        if (!is(recipe, "f16")) {  // an overflow raises its m by more
            expect_found(a_rise_before_light_keys(recipe, 7, 2),
                         instance<RefreshAfterSeven>(recipe));
        }
    }
}

TEST(ThresholdFaults, NoRefreshAfterARiseOfEight) {
    for (const char* recipe : recipes_that_refresh()) {
        for (const std::int64_t at : {1, 2}) {
            expect_found(a_rise_before_light_keys(recipe, 8, at),
                         instance<RefreshAfterNine>(recipe));
        }
    }
}

// ---------------------------------------------------------------- how far m drops

// `highest` is what m was set to last.
template <recipe::SoftmaxPolicy Policy, std::uint32_t N>
struct LastAsHighest : softmax::RowState<Policy, N> {
    using Base = softmax::RowState<Policy, N>;
    using Base::Base;
    float update(std::uint32_t r, float largest, bool is_refresh, bool overflows,
                 std::uint32_t& risen) {
        const float factor = Base::update(r, largest, is_refresh, overflows, risen);
        this->highest[r] = this->running_max(r);
        return factor;
    }
};
template <class Recipe>
using WithLastAsHighest = WithRows<Recipe, LastAsHighest>;

TEST(ThresholdFaults, HighestIsNoMaximum) {
    for (const char* recipe : recipes_that_refresh()) {
        expect_found(two_drops(recipe), instance<WithLastAsHighest>(recipe));
    }
}

#if defined(QUATT_TEST_WGMMA)

// ---------------------------------------------------------------- what was promoted

// Rows g + 8 keep it as it is at the end.
template <class C>
struct UnscaledAtTheEnd : wgmma::PromotedAccumulator<C> {
    using Base = wgmma::PromotedAccumulator<C>;
    [[nodiscard]] float factor(std::uint32_t r, float offset) const {
        return r == 1 ? Base::factor(r, this->exponent_offset[r]) : Base::factor(r, offset);
    }
};
template <class Recipe>
struct WithUnscaledRows : Whole<Recipe> {
    template <class C>
    using Promoted = UnscaledAtTheEnd<C>;
};

TEST(ThresholdFaults, PromotedRowsAreNotScaledAtTheEnd) {
    expect_found(a_small_rise_after_a_promotion("fp8", 64), instance<WithUnscaledRows>("fp8"));
}

// ---------------------------------------------------------------- when P overflows
// NOTE: warp_mma asks codes of P, which have nothing between 432 and 480: from 432 on all are 448.

// Equal p's of a lane alarm by their sum, and each is then too small.
template <class P>
struct OverflowFrom480 : P {
    static bool exponent_overflows(float exponent) { return !(exponent < 8.9068906f); }
};
template <class Recipe>
struct WithOverflowFrom480 : Whole<Recipe> {
    using Probabilities = OverflowFrom480<typename Recipe::Probabilities>;
};

TEST(ThresholdFaults, OverflowFrom480) {
    expect_found(equal_p_near_the_end_of_e4m3("fp8"), instance<WithOverflowFrom480>("fp8"));
}

// A sum of p's is below it, although one of them overflows.
template <class P>
struct AlarmFrom480 : P {
    static bool may_overflow(float sum) { return !(sum < 480); }
};
template <class Recipe>
struct WithAlarmFrom480 : Whole<Recipe> {
    using Probabilities = AlarmFrom480<typename Recipe::Probabilities>;
};

TEST(ThresholdFaults, AlarmFrom480) {
    expect_found(a_lone_p_near_the_end_of_e4m3("fp8"), instance<WithAlarmFrom480>("fp8"));
}

#else

// ---------------------------------------------------------------- when a sum overflows

// A lane asks for the row's sum from four times its own threshold on.
template <class P>
struct LaneFromTheRowsThreshold : P {
    static bool overflows(std::uint32_t, float lane_sum) { return !(lane_sum < 0x1p64f); }
};
template <class Recipe>
struct WithLaneFromTheRowsThreshold : Whole<Recipe> {
    using Probabilities = LaneFromTheRowsThreshold<typename Recipe::Probabilities>;
};

TEST(ThresholdFaults, LaneFromTheRowsThreshold) {
    expect_found(a_sum_spread_over_lanes(64),
                 kInstance<softmax::Bf16, WithLaneFromTheRowsThreshold<softmax::Bf16>>);
}

#endif

}  // namespace
}  // namespace quatt::test
