// All kernels on scores just beside a threshold of the softmax rule. The emulation is compared with
// the text in fp64, all others with the emulation.
#include "attention/thresholds.hpp"

#include "support/by_text.hpp"

namespace quatt::test {
namespace {

// All host devices; `reference` knows no rule.
std::vector<Subject> all_but_the_reference() {
    std::vector<Subject> some;
    std::copy_if(subjects().begin(), subjects().end(), std::back_inserter(some),
                 [](const Subject& s) { return s.device != "reference"; });
    return some;
}

QUATT_SUBJECTS(Thresholds, all_but_the_reference());

Wanted by_text(ThresholdCase& t) {
    const Problem p = t.data.problem(way(t.recipe));
    const support::Head head(p.recipe, head_of(t.data, p, 0, 0));
    Wanted w;
    for (std::int64_t row = 0; row < t.data.spec.tokens_q; row++) {
        const support::Expected e = head.by_the_law(row);
        EXPECT_FALSE(e.doubtful) << t.recipe << ", " << t.what;
        w.out.insert(w.out.end(), e.out.begin(), e.out.end());
        w.slack.insert(w.slack.end(), e.out_slack.begin(), e.out_slack.end());
    }
    return w;
}

void expect_right(ThresholdCase t) {
    const Results got = compute(t.data, device(), t.recipe);
    EXPECT_TRUE(is_right(t, got, is(kernel(), "emulate") ? by_text(t) : emulated(t)));
}

TEST_P(Thresholds, ASmallRiseAfterAPromotion) {
    for (const char* recipe : recipes()) {
        for (const std::int64_t dim : {64, 128}) {
            expect_right(a_small_rise_after_a_promotion(recipe, dim));
        }
    }
}

TEST_P(Thresholds, ARiseOfSevenAndOneOfEight) {
    for (const char* recipe : recipes()) {
        for (const int rise : {7, 8}) {
            for (const std::int64_t at : {1, 2}) {
                expect_right(a_rise_before_light_keys(recipe, rise, at));
            }
        }
    }
}

TEST_P(Thresholds, TwoDropsHaveOneLimit) {
    for (const char* recipe : recipes()) {
        expect_right(two_drops(recipe));
    }
}

TEST_P(Thresholds, EqualPJustBelowTheEndOfE4M3) {
    for (const char* recipe : recipes()) {
        expect_right(equal_p_near_the_end_of_e4m3(recipe));
    }
}

TEST_P(Thresholds, ALonePJustBelowTheEndOfE4M3) {
    for (const char* recipe : recipes()) {
        expect_right(a_lone_p_near_the_end_of_e4m3(recipe));
    }
}

TEST_P(Thresholds, ASumSpreadOverLanes) {
    if (!takes("bf16")) {
        return;
    }
    for (const std::int64_t dim : {64, 128}) {
        expect_right(a_sum_spread_over_lanes(dim));
    }
}

}  // namespace
}  // namespace quatt::test
