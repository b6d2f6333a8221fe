// The CPU kernel beside the emulation, whose arithmetic it has, and its row of the support table.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <map>

#include "cpu/sums.hpp"
#include "support/attention.hpp"

namespace quatt::test {
namespace {

class Cpu : public testing::TestWithParam<const char*> {};

std::vector<const char*> recipe_names() {
    std::vector<const char*> names;
    for (std::int32_t i = 0; i < quatt_recipe_count(); i++) {
        names.push_back(quatt_recipe_name(i));
    }
    return names;
}
INSTANTIATE_TEST_SUITE_P(Recipes, Cpu, testing::ValuesIn(recipe_names()),
                         [](const auto& tested) { return std::string(tested.param); });

double difference(const Buffer& a, const Buffer& b) {
    double error = 0, norm = 1e-30;
    for_each_index(extents_of(a.view()), [&](const Extents& i) {
        const double x = value_at(a.view(), i), y = value_at(b.view(), i);
        error += (x - y) * (x - y);
        norm += y * y;
    });
    return std::sqrt(error / norm);
}

// Only the order of fp32 sums may differ: 2^-24 a step, and a code that flips at a rounding border
// once in some 2^20 codes of P, each by at most a 16th of itself. sqrt(2^-20) / 16 = 6e-5.
constexpr double kOrderOfSums = 1e-4;

TEST_P(Cpu, IsTheEmulationAtTheSameKeyTile) {
    Random random(21);
    for (int n = 0; n < scaled(40); n++) {
        Spec s;
        s.packed = random.chance(.5);
        s.tokens_q = random.in(1, 80);
        s.tokens_k = random.in(1, 300);
        if (s.packed) {
            s.zero_tail = true;
            s.q_lens = {20, 0, 33};
            s.k_lens = {100, 5, static_cast<std::int32_t>(random.in(0, 150))};
        }
        s.heads_q = 4;
        s.heads_kv = random.pick({1, 2, 4});
        s.dim = random.in(1, 130);
        s.causal = random.chance(.5);
        s.left = random.pick<std::int64_t>({-1, 40});
        s.q = random.pick({QUATT_BF16, QUATT_F16, QUATT_F32, QUATT_E4M3});
        s.k = s.v = s.q;
        s.descale_rank = 1;
        s.seed = random.bits();
        Case cpu(s), emulate(s);
        (void)bits_of(cpu, {"cpu", GetParam()});
        (void)bits_of(emulate, {"emulate", GetParam()}, [](Problem& p) { p.key_tile = 64; });
        const Problem p = cpu.problem({"cpu", GetParam()});
        EXPECT_LE(difference(cpu.out, emulate.out),
                  std::max(kOrderOfSums, short_sums(query(p, "cpu").value().kernel, p.recipe)))
            << s;
        for_each_index(extents_of(cpu.lse.view()), [&](const Extents& i) {
            const double x = value_at(cpu.lse.view(), i), y = value_at(emulate.lse.view(), i);
            ASSERT_TRUE(x == y || std::fabs(x - y) <= 1e-5 * (1 + std::fabs(y)))
                << x << " and " << y;
        });
    }
}

// Long enough for several intervals and thousands of tasks, on every core.
TEST_P(Cpu, LongRowsOnAllCores) {
    Spec s;
    s.tokens_q = 700;
    s.tokens_k = 5000;
    s.dim = 40;
    Case c(s);
    Problem p = c.problem({"cpu", GetParam()});
    p.threads = 0;
    const Status st = run(p, "cpu");
    ASSERT_TRUE(st.ok()) << st.message();
    EXPECT_TRUE(
        close_to(p, expect(p, {0, 1, 350, 698, 699}), tolerance_of({"cpu", GetParam()}), false));
}

TEST_P(Cpu, TakesItsRowOfTheSupportTable) {
    for (std::int32_t i = 0; i < quatt_kernel_count(); i++) {
        quatt_kernel_info k{};
        k.struct_size = sizeof k;
        ASSERT_EQ(quatt_kernel_get_info(i, &k), QUATT_OK);
        if (std::strcmp(k.name, "cpu") != 0) {
            continue;
        }
        EXPECT_NE((" " + std::string(k.recipes) + " ").find(std::string(" ") + GetParam() + " "),
                  std::string::npos);
        EXPECT_STREQ(k.device, "cpu");
        EXPECT_STREQ(k.head_dims, "1..256");
        for (const char* feature : {"dense", "packed", "causal", "window", "gqa", "lse", "sink",
                                    "descale", "kv_lens", "splits", "zero_tail"}) {
            EXPECT_NE(std::string(k.features).find(feature), std::string::npos) << feature;
        }
        for (const char* feature : {"rows", "light_mass", "counters"}) {
            EXPECT_EQ(std::string(k.features).find(feature), std::string::npos) << feature;
        }
        return;
    }
    FAIL() << "no kernel cpu";
}

// Any change of arithmetic is refused by name, field by field.
TEST_P(Cpu, RefusesChangedArithmetic) {
    Spec s;
    s.tokens_q = s.tokens_k = 4;
    Case c(s);
    const std::vector<std::function<void(quatt_recipe&)>> changes = {
        [](quatt_recipe& r) { r.exponent_bias++; },
        [](quatt_recipe& r) { r.overflow_code = 0x70; },
        [](quatt_recipe& r) { r.promotion_interval *= 2; },
        [](quatt_recipe& r) { r.refresh_rise++; },
        [](quatt_recipe& r) { r.max_drop--; },
        [](quatt_recipe& r) { r.refreshes = 1 - r.refreshes; },
        [](quatt_recipe& r) { r.accumulator = QUATT_ACCUMULATOR_HOPPER; },
        [](quatt_recipe& r) { r.promotes = 1 - r.promotes; },
        [](quatt_recipe& r) { r.p_format = QUATT_FORMAT_F32; },
        [](quatt_recipe& r) { r.q.amax_target *= .5f; },
        [](quatt_recipe& r) { r.k.amax_target *= .5f; },
        [](quatt_recipe& r) { r.v.amax_target *= .5f; }};
    for (std::size_t i = 0; i < changes.size(); i++) {
        Problem p = c.problem({"cpu", GetParam()});
        ASSERT_TRUE(query(p, "cpu").ok());
        changes[i](p.recipe);
        const auto refused = query(p, "cpu");
        ASSERT_FALSE(refused.ok()) << "change " << i;
        EXPECT_EQ(refused.status().code(), QUATT_UNSUPPORTED) << refused.status().message();
        EXPECT_NE(refused.status().message().find("not one of the named recipes"),
                  std::string::npos);
        EXPECT_TRUE(query(p, "emulate").ok()) << query(p, "emulate").status().message();
    }
}

TEST(CpuAttention, IsTheDefaultOfTheConvenienceCall) {
    Spec s;
    s.tokens_q = s.tokens_k = 30;
    Case c(s);
    const Bits want = bits_of(c, {"cpu", "fp8"});
    c.reset_outputs();
    const Problem p = c.problem({"cpu", "fp8"});
    attention(p);
    EXPECT_EQ((Bits{c.out.codes(), c.lse.codes()}), want);
    Problem wrong = p;
    wrong.softmax_scale = -1;
    try {
        attention(wrong);
        FAIL() << "no exception";
    } catch (const Error& e) {
        EXPECT_EQ(e.code(), QUATT_INVALID_ARGUMENT);
        EXPECT_NE(std::string(e.what()).find("softmax_scale is -1"), std::string::npos);
    }
}

}  // namespace
}  // namespace quatt::test
