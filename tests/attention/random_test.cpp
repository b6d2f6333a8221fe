// Random problems, sound and unsound. Where query says yes, the run is accurate
// and writes what it should; where it says no, plan and run refuse with the same words.
#include <gtest/gtest.h>

#include "attention/harness.hpp"
#include "support/faults.hpp"
#include "support/layouts.hpp"
#include "support/random_problem.hpp"

namespace quatt::test {
namespace {

QUATT_SUBJECTS(RandomProblems, gpu_subjects());

Spec random_spec(Random& random, const char* recipe) {
    Spec s = spec_of(recipe, random.pick<quatt_dtype>({QUATT_BF16, QUATT_F16}));
    s.seed = random.bits();
    s.packed = random.chance(.5);
    s.heads_kv = random.in(1, 2);
    s.heads_q = s.heads_kv * random.in(1, 2);
    s.dim = random.pick<std::int64_t>({64, 128, random.in(1, 128), random.in(1, 128)});
    s.dim_v = random.chance(.8) ? s.dim : random.in(1, 128);
    const auto length = [&] {
        return static_cast<std::int32_t>(random.chance(.2) ? 0 : random.in(0, 60));
    };
    s.tokens_q = random.in(0, 70);
    s.tokens_k = random.in(0, 140);
    s.batch = random.in(1, 2);
    set_random_lengths(s, random, 4, length);
    s.out = random.pick<quatt_dtype>({QUATT_F32, QUATT_BF16, QUATT_F16});
    s.causal = random.chance(.4);
    s.scale = random.uniform(.2, 1.5);
    s.lse = random.chance(.7);
    s.v_mean = random.chance(.3) ? random.uniform(-2, 2) : 0;
    if (random.chance(.5)) {
        s.input_strides = random_strides(random, true);
    }
    if (random.chance(.5)) {
        s.output_strides = random_strides(random, false);
    }
    s.misalign_bytes = static_cast<std::size_t>(random.pick({0, 0, 4, 8, 16, 20}));
    // What these kernels do not take, now and then.
    if (random.chance(.1)) {
        switch (random.in(0, 4)) {
            case 0:
                s.q = random.pick<quatt_dtype>({QUATT_F32, QUATT_E4M3});
                break;
            case 1:
                s.k = s.v = s.k == QUATT_BF16 ? QUATT_F16 : QUATT_BF16;
                break;
            case 2:
                s.dim = s.dim_v = random.in(129, 256);
                break;
            case 3:
                s.left = random.in(0, 30);
                break;
            default:
                s.sink.assign(static_cast<std::size_t>(s.heads_q), .5f);
        }
    }
    return s;
}

void one_problem(std::uint64_t seed, const std::vector<Fault>& faults, Tally& tally) {
    Random random(seed);
    const char* recipe = random.chance(.95) ? recipe_at(random.in(0, 5)) : "nvfp4";
    const Way way = test::way(recipe);
    Case c(random_spec(random, recipe));
    Problem p = c.problem(way);
    p.splits = random.pick({0, 0, 0, 1, 3});
    p.key_tile = random.pick({0, 0, 0, 64, 64, 128});
    std::string fault;
    if (random.chance(.3)) {
        const Fault& f = faults[static_cast<std::size_t>(
            random.in(0, static_cast<std::int64_t>(faults.size()) - 1))];
        Problem changed = p;
        if (f.apply(changed)) {
            p = changed;
            fault = f.name;
        }
    }
    std::ostringstream what;
    what << "seed " << seed << ' ' << fault << " on " << way << ": " << c.spec;
    SCOPED_TRACE(what.str());

    const Device device(way.device);
    PlanInfo info;
    const quatt_status answer = quatt_query(&p, &device, &info);
    if (answer == QUATT_OK) {
        ASSERT_TRUE(fault.empty()) << "a fault was accepted";
        tally.accepted++;
        ASSERT_STREQ(info.device, way.device);
        ASSERT_STREQ(info.kernel, kernel());
        ASSERT_EQ(info.key_tile, 64);
        ASSERT_EQ(info.splits, 1);
        ASSERT_TRUE(runs_well(c, way, p, expect(p)));
        return;
    }
    (answer == QUATT_INVALID_ARGUMENT ? tally.invalid : tally.refused)++;
    expect_refused_alike(c, p, device, answer);
}

TEST_P(RandomProblems, RunAsQuerySays) {
    const std::vector<Fault> faults = problem_faults();
    Tally tally;
    const int count = scaled(150);
    for (int i = 0; i < count; i++) {
        one_problem(static_cast<std::uint64_t>(i) + 5000, faults, tally);
        if (HasFatalFailure()) {
            return;
        }
    }
    if (count >= 100) {  // all three answers are common
        EXPECT_GT(tally.accepted, count / 4);
        EXPECT_GT(tally.invalid, count / 15);
        EXPECT_GT(tally.refused, count / 15);
    }
    record(tally);
}

}  // namespace
}  // namespace quatt::test
