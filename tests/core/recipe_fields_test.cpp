// Changed recipes on the emulation: whatever the check accepts is computed as its fields say.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <numeric>

#include "support/by_text.hpp"

namespace quatt::test {
namespace {

// out and LSE of a head against the text of recipes.md in fp64 on the same codes: its first and
// last row and one between.
void expect_as_the_text_says(const Case& c, const Problem& p, std::size_t segment,
                             std::int64_t head) {
    const support::HeadInputs x = head_of(c, p, segment, head);
    const Spec& s = c.spec;
    const auto end = s.q_lens.begin() + static_cast<std::ptrdiff_t>(s.packed ? segment : 0);
    const std::int64_t first = std::accumulate(s.q_lens.begin(), end, std::int64_t{0});
    const support::Head by_text(p.recipe, x);
    for (const std::int64_t i : {std::int64_t{0}, x.q_len / 2, x.q_len - 1}) {
        if (i < 0 || i >= x.q_len) {
            continue;
        }
        const support::Expected want = by_text.by_the_law(i);
        const std::int64_t row = first + i;
        const double lse =
            value_at(c.lse.view(), s.packed ? Extents{head, row} : Extents{0, head, row});
        RC_ASSERT(lse == want.lse || std::fabs(lse - want.lse) <= want.lse_slack);
        for (std::int64_t d = 0; d < s.dim_v && !want.doubtful; d++) {
            const double got =
                value_at(c.out.view(), s.packed ? Extents{row, head, d} : Extents{0, row, head, d});
            const auto n = static_cast<std::size_t>(d);
            RC_ASSERT(std::fabs(got - want.out[n]) <= want.out_slack[n]);
        }
    }
}

quatt_operand_recipe any_operand() {
    quatt_operand_recipe o{};
    o.format = *rc::gen::inRange(0, 8);
    o.scale_format = *rc::gen::inRange(0, 4);
    o.group_tokens = *rc::gen::element(-1, 0, 1, 3, 16, 32, 64, 1 << 30);
    o.group_channels = *rc::gen::element(-1, 0, 1, 16, 32);
    o.key_groups = *rc::gen::inRange(0, 3);
    o.center = *rc::gen::inRange(0, 4);
    o.normalize = *rc::gen::inRange(0, 4);
    o.block_tokens = *rc::gen::element(-1, 0, 1, 7, 128, 1 << 30);
    o.amax_target = *rc::gen::element(0.0f, 1.0f, 6.0f, 127.0f, 448.0f, -1.0f, std::nanf(""));
    return o;
}

// Changes a named recipe in a few fields: most random ones would fail at the first.
RC_GTEST_PROP(ChangedRecipes, AreRefusedOrComputedAsTheTextSays, ()) {
    Recipe r(quatt_recipe_name(*rc::gen::inRange<std::int32_t>(0, quatt_recipe_count())));
    for (quatt_operand_recipe* o : {&r.q, &r.k, &r.v}) {
        const quatt_operand_recipe any = any_operand();
        const int field = *rc::gen::inRange(0, 24);
        const auto change = [&](int n, auto member) {
            if (field == n) {
                o->*member = any.*member;
            }
        };
        change(0, &quatt_operand_recipe::format);
        change(1, &quatt_operand_recipe::scale_format);
        change(2, &quatt_operand_recipe::group_tokens);
        change(3, &quatt_operand_recipe::group_channels);
        change(4, &quatt_operand_recipe::key_groups);
        change(5, &quatt_operand_recipe::center);
        change(6, &quatt_operand_recipe::normalize);
        change(7, &quatt_operand_recipe::block_tokens);
        change(8, &quatt_operand_recipe::amax_target);
        if (field == 9) {
            *o = any;
        }
    }
    switch (*rc::gen::inRange(0, 12)) {
        case 0:
            r.p_format = *rc::gen::inRange(0, 8);
            break;
        case 1:
            r.overflow_format = *rc::gen::inRange(0, 8);
            break;
        case 2:
            r.exponent_bias = *rc::gen::inRange(-2, 20);
            break;
        case 3:
            r.overflow_code = *rc::gen::element(0, 1, 0x40, 0x7E, 0x7F);
            break;
        case 4:
            r.promotion_interval = *rc::gen::element(0, 2304, 4608, 1000, -2304);
            break;
        case 5:
            r.refresh_rise = *rc::gen::element(-1, 0, 1, 8, 1 << 30);
            break;
        case 6:
            r.max_drop = *rc::gen::element(-1, 0, 40, 100, 101);
            break;
        case 7:
            r.refreshes = *rc::gen::inRange(-1, 3);
            break;
        case 8:
            r.accumulator = *rc::gen::inRange(-1, 3);
            break;
        case 9:
            r.promotes = *rc::gen::inRange(-1, 3);
            break;
        case 10:
            r.q_mean_term = *rc::gen::inRange(-1, 3);
            break;
        default:
            break;
    }
    Spec s;
    s.packed = *rc::gen::arbitrary<bool>();
    s.q_lens = {*rc::gen::inRange(0, 150), *rc::gen::inRange(0, 20)};
    s.k_lens = {*rc::gen::inRange(0, 150), *rc::gen::inRange(0, 20)};
    s.tokens_q = s.packed ? 0 : 20;
    s.tokens_k = s.packed ? 0 : 70;
    s.dim = *rc::gen::inRange<std::int64_t>(1, 40);
    if (!s.packed) {
        s.q_lens = s.k_lens = {};
    }
    Case c(s);
    Problem p = c.problem();
    p.recipe = r;
    const auto answer = query(p, "emulate");
    RC_TAG(answer.ok());
    if (!answer.ok()) {
        RC_ASSERT(answer.status().code() == QUATT_INVALID_ARGUMENT);
        RC_ASSERT(answer.status().message().find("recipe.") != std::string::npos);
        return;
    }
    c.reset_outputs();
    const Status status = run(p, "emulate");
    RC_ASSERT(status.ok());
    RC_ASSERT(c.out.surroundings_intact());
    for (std::size_t segment = 0; segment < static_cast<std::size_t>(s.packed ? 2 : 1); segment++) {
        for (std::int64_t head = 0; head < s.heads_q; head++) {
            expect_as_the_text_says(c, p, segment, head);
        }
    }
}

}  // namespace
}  // namespace quatt::test
