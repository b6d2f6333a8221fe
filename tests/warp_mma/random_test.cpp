// spec/tests.md 17: random problems, sound and unsound. Where query says yes, the run is accurate
// and writes what it should; where it says no, plan and run refuse with the same words.
#include <gtest/gtest.h>

#include "support/faults.hpp"
#include "warp_mma/harness.hpp"

namespace quatt::test {
namespace {

// Axes in any order in memory, with gaps, and some of them backwards.
Strider random_strides(Random& random, bool input) {
    const std::uint64_t seed = random.bits();
    return [seed, input](const Extents& extents) {
        Random r(seed);
        std::vector<std::size_t> order(extents.size());
        std::iota(order.begin(), order.end(), std::size_t{0});
        for (std::size_t i = order.size(); i > 1; i--) {
            std::swap(order[i - 1],
                      order[static_cast<std::size_t>(r.in(0, static_cast<std::int64_t>(i) - 1))]);
        }
        Extents strides(extents.size());
        std::int64_t step = r.in(1, 3);
        for (const std::size_t axis : order) {
            const bool shared = input && axis != extents.size() - 1 && axis + 3 != extents.size();
            strides[axis] = shared && r.chance(.15) ? 0 : r.chance(.1) ? -step : step;
            step =
                step * std::max<std::int64_t>(extents[axis], 1) + (r.chance(.5) ? r.in(0, 5) : 0);
            if (extents[axis] == 1 && r.chance(.5)) {
                strides[axis] = r.in(-7, 7);  // never used
            }
        }
        return strides;
    };
}

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
    std::vector<std::int32_t> keys(static_cast<std::size_t>(s.batch),
                                   static_cast<std::int32_t>(s.tokens_k));
    if (s.packed && random.chance(.8)) {
        s.q_lens.resize(static_cast<std::size_t>(random.in(1, 4)));
        std::generate(s.q_lens.begin(), s.q_lens.end(), length);
        if (random.chance(.5)) {
            s.k_lens.resize(s.q_lens.size());
            std::generate(s.k_lens.begin(), s.k_lens.end(), length);
        }
        keys = s.k_lens.empty() ? s.q_lens : s.k_lens;
    } else if (s.packed) {
        s.batch = 1;
        keys.resize(1);
    }
    s.zero_tail = s.packed && random.chance(.3);
    if (random.chance(.3)) {
        for (const std::int32_t n : keys) {
            s.kv_lens.push_back(static_cast<std::int32_t>(random.in(0, n)));
        }
    }
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

struct Tally {
    int accepted = 0, refused = 0, invalid = 0;
};

void one_problem(std::uint64_t seed, const std::vector<Fault>& faults, Tally& tally) {
    Random random(seed);
    const char* recipe = random.chance(.95) ? recipe_at(random.in(0, 2)) : "nvfp4";
    const Way way{device_at(random.in(0, 1)), recipe};
    Case c(random_spec(random, recipe));
    Problem p = c.problem(way);
    p.kernel = kSchedule;
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
        ASSERT_STREQ(info.kernel, kSchedule);
        ASSERT_EQ(info.key_tile, 64);
        ASSERT_EQ(info.splits, 1);
        ASSERT_TRUE(runs_well(c, way, p, expect(p)));
        return;
    }
    (answer == QUATT_INVALID_ARGUMENT ? tally.invalid : tally.refused)++;
    const std::string message = quatt_last_error();
    ASSERT_FALSE(message.empty());
    c.reset_outputs();
    const Buffer out = c.out, lse = c.lse;
    quatt_plan* plan = nullptr;
    ASSERT_EQ(quatt_plan_create(&p, &device, &plan), answer);
    ASSERT_EQ(message, quatt_last_error());
    ASSERT_EQ(plan, nullptr);
    ASSERT_EQ(quatt_attention(&p, &device), answer);
    ASSERT_EQ(message, quatt_last_error());
    ASSERT_TRUE(out.bytes() == c.out.bytes() && lse.bytes() == c.lse.bytes())
        << "a refused problem wrote";
}

TEST(RandomProblems, RunAsQuerySays) {
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
    RecordProperty("accepted", tally.accepted);
    RecordProperty("invalid", tally.invalid);
    RecordProperty("unsupported", tally.refused);
}

}  // namespace
}  // namespace quatt::test
