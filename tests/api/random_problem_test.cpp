// Random problems, sound and unsound: where query says yes, the run is as accurate as the recipe
// says and writes what it should; where it says no, plan and run refuse with the same words. Drift
// between what is checked and what is run shows here.
#include <gtest/gtest.h>

#include "support/attention.hpp"
#include "support/faults.hpp"
#include "support/layouts.hpp"
#include "support/random_problem.hpp"

namespace quatt::test {
namespace {

Spec random_spec(Random& random) {
    constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
    Spec s;
    s.seed = random.bits();
    s.packed = random.chance(.5);
    s.heads_kv = random.in(1, 3);
    s.heads_q = s.heads_kv * random.in(1, 3);
    s.dim = random.chance(.9) ? random.in(1, 40) : random.pick({64, 96, 128, 255, 256});
    s.dim_v = random.chance(.7) ? s.dim : random.in(1, 48);
    const auto tokens = [&] { return random.chance(.1) ? random.in(60, 200) : random.in(0, 40); };
    const auto length = [&] {
        return static_cast<std::int32_t>(random.chance(.2) ? 0 : random.in(0, 30));
    };
    s.tokens_q = tokens();
    s.tokens_k = tokens();
    s.batch = random.in(1, 3);
    set_random_lengths(s, random, 5, length);
    const auto dtype = [&] { return random.pick({QUATT_F32, QUATT_BF16, QUATT_F16, QUATT_E4M3}); };
    s.q = dtype();
    s.k = random.chance(.6) ? s.q : dtype();
    s.v = random.chance(.6) ? s.k : dtype();
    s.out = random.pick({QUATT_F32, QUATT_BF16, QUATT_F16});
    s.causal = random.chance(.4);
    const auto window = [&]() -> std::int64_t {
        return random.pick<std::int64_t>({-1, -1, 0, 1, 5, 20, 200, kMax});
    };
    s.left = window();
    s.right = window();
    s.scale = random.uniform(.2, 1.5);
    s.lse = random.chance(.7);
    if (random.chance(.3)) {
        for (std::int64_t h = 0; h < s.heads_q; h++) {
            s.sink.push_back(random.chance(.1) ? -std::numeric_limits<float>::infinity()
                                               : static_cast<float>(random.uniform(-4, 4)));
        }
    }
    s.descale_rank = static_cast<int>(random.in(-1, 2));
    s.v_mean = random.chance(.3) ? random.uniform(-2, 2) : 0;
    if (random.chance(.6)) {
        s.input_strides = random_strides(random, true);
    }
    if (random.chance(.6)) {
        s.output_strides = random_strides(random, false);
    }
    s.misalign_bytes = static_cast<std::size_t>(random.pick({0, 0, 4, 8, 16, 20}));
    return s;
}

// Rows of the problem, ascending; empty where there is none.
std::vector<std::int64_t> random_rows(Random& random, const Case& c) {
    std::vector<std::int64_t> rows;
    for (std::int64_t i = 0; i < c.spec.tokens_q; i++) {
        if (random.chance(.3)) {
            rows.push_back(i);
        }
    }
    return rows;
}

void one_problem(std::uint64_t seed, const std::vector<Fault>& faults, const std::vector<Way>& ways,
                 Tally& tally) {
    Random random(seed);
    const Way way =
        ways[static_cast<std::size_t>(random.in(0, static_cast<std::int64_t>(ways.size()) - 1))];
    Case c(random_spec(random));
    Problem p = c.problem(way);
    p.threads = random.chance(.05) ? 2 : 1;
    p.splits = random.pick({0, 0, 1, 3});
    p.key_tile = random.pick({0, 0, 0, 64, 96, 128, 192, 256});
    const std::vector<std::int64_t> rows = random_rows(random, c);
    if (random.chance(.15)) {
        p.rows = rows.data();
        p.row_count = static_cast<std::int64_t>(rows.size());
    }
    quatt_counters counters{};
    Buffer light;
    if (random.chance(.05)) {
        p.tensors.counters = &counters;
    }
    if (random.chance(.05)) {
        light = c.row_buffer();
        p.tensors.light_mass = light;
    }
    std::string trace;
    const int wrong = random.chance(.4) ? static_cast<int>(random.in(1, 2)) : 0;
    for (int i = 0; i < wrong; i++) {
        const Fault& f = faults[static_cast<std::size_t>(
            random.in(0, static_cast<std::int64_t>(faults.size()) - 1))];
        Problem changed = p;
        // A second fault may need tensors that the first broke.
        if (i == 0 && f.apply(changed)) {
            p = changed;
            trace += std::string(" fault: ") + f.name;
        }
    }
    std::ostringstream what;
    what << "seed " << seed << trace << " on " << way << ": " << c.spec;
    SCOPED_TRACE(what.str());

    const Device device(way.device);
    PlanInfo info;
    const quatt_status answer = quatt_query(&p, &device, &info);
    if (answer == QUATT_OK) {
        ASSERT_TRUE(trace.empty()) << "a fault was accepted";
        tally.accepted++;
        ASSERT_STREQ(info.device, way.device);
        ASSERT_TRUE(is_kernel_of(info.kernel, way.device)) << info.kernel;
        ASSERT_TRUE(runs_well(c, way, p, expect(p)));
        if (random.chance(.2)) {  // the convenience call gives the same bits
            const Bits bits = {c.out.codes(),
                               c.lse.present() ? c.lse.codes() : std::vector<std::uint32_t>()};
            c.reset_outputs();
            ASSERT_EQ(quatt_attention(&p, &device), QUATT_OK) << quatt_last_error();
            ASSERT_EQ(bits.out, c.out.codes());
        }
        return;
    }
    (answer == QUATT_INVALID_ARGUMENT ? tally.invalid : tally.refused)++;
    expect_refused_alike(c, p, device, answer);
}

// The cases are cut in parts, so that ctest can run them side by side.
class RandomProblems : public testing::TestWithParam<int> {};

TEST_P(RandomProblems, RunAsQuerySays) {
    const std::vector<Fault> faults = problem_faults();
    const std::vector<Way> ways = all_ways();
    Tally tally;
    const int count = scaled(2500);
    for (int i = 0; i < count; i++) {
        one_problem(
            static_cast<std::uint64_t>(GetParam()) * 1000003u + static_cast<std::uint64_t>(i),
            faults, ways, tally);
        if (HasFatalFailure()) {
            return;
        }
    }
    if (count >= 200) {  // all three answers are common
        EXPECT_GT(tally.accepted, count / 3);
        EXPECT_GT(tally.invalid, count / 10);
        EXPECT_GT(tally.refused, count / 50);
    }
    record(tally);
}

INSTANTIATE_TEST_SUITE_P(Part, RandomProblems, testing::Range(0, 4));

}  // namespace
}  // namespace quatt::test
