// The fast engine on every instruction-set level of this machine, and with emulated instructions on
// those that few machines have: the same checks for each.
#include <gtest/gtest.h>

#include <array>

#include "cpu/emulated_levels.hpp"
#include "cpu/sums.hpp"
#include "support/attention.hpp"

namespace quatt::test {
namespace {

constexpr std::array kKernels = {
    "cpu_amx",    "cpu_avx512_fp16", "cpu_avx512_bf16",  "cpu_avx512_vnni",
    "cpu_avx512", "cpu_avx2",        "cpu_amx_emulated", "cpu_avx512_fp16_emulated"};
constexpr std::array kRecipes = {"bf16",     "f16",   "fp8",      "fp8_head",
                                 "int8_fp8", "nvfp4", "nvfp4_fp8"};

class Level : public testing::TestWithParam<std::tuple<const char*, const char*>> {
protected:
    [[nodiscard]] static const char* kernel() { return std::get<0>(GetParam()); }
    [[nodiscard]] static const char* recipe() { return std::get<1>(GetParam()); }
    [[nodiscard]] static Way way() { return {"cpu", recipe()}; }
    [[nodiscard]] static const cpu::Level* emulated() { return emulated_level(kernel()); }

    // All runs of the level go through these three.
    [[nodiscard]] static Status run_problem(Problem& p) {
        if (emulated() != nullptr) {
            return run_on(*emulated(), p);
        }
        p.kernel = kernel();
        return run(p, "cpu");
    }
    [[nodiscard]] static std::size_t workspace_of(Problem& p) {
        if (emulated() != nullptr) {
            return workspace_on(*emulated(), p);
        }
        p.kernel = kernel();
        return query(p, "cpu").value().workspace_bytes;
    }
    static Bits bits(Case& c, const std::function<void(Problem&)>& change = {}) {
        Problem p = c.problem(way());
        if (change) {
            change(p);
        }
        c.reset_outputs();
        const Status s = run_problem(p);
        EXPECT_TRUE(s.ok()) << s.message() << "\n  on " << kernel() << ": " << c.spec;
        return {c.out.codes(), c.lse.codes()};
    }

    void SetUp() override {
        if (emulated() != nullptr) {
            if (!emulated()->supported()) {
                GTEST_SKIP() << "the rest of its instructions needs " << emulated()->needs
                             << "; this CPU has " << quatt_cpu_features();
            }
            return;
        }
        Spec s;
        s.tokens_q = s.tokens_k = 1;
        Case c(s);
        Problem p = c.problem(way());
        p.kernel = kernel();
        const auto info = query(p, "cpu");
        if (!info.ok()) {
            ASSERT_TRUE(info.status().message().find("needs ") != std::string::npos ||
                        info.status().message().find("the system refuses") != std::string::npos)
                << "refused for another reason: " << info.status().message();
            GTEST_SKIP() << info.status().message();
        }
        EXPECT_STREQ(info->kernel, kernel());
    }
};

INSTANTIATE_TEST_SUITE_P(Machine, Level,
                         testing::Combine(testing::ValuesIn(kKernels), testing::ValuesIn(kRecipes)),
                         [](const auto& tested) {
                             return std::string(std::get<0>(tested.param)) + "_" +
                                    std::get<1>(tested.param);
                         });

struct Difference {
    double l2 = 0, lse = 0;
};

Difference difference(const Case& a, const Case& b) {
    Difference d;
    double error = 0, norm = 1e-30;
    for_each_index(extents_of(a.out.view()), [&](const Extents& i) {
        const double x = value_at(a.out.view(), i), y = value_at(b.out.view(), i);
        if (x != y) {
            error += (x - y) * (x - y);
        }
        norm += y * y;
    });
    d.l2 = std::sqrt(error / norm);
    for_each_index(extents_of(a.lse.view()), [&](const Extents& i) {
        const double x = value_at(a.lse.view(), i), y = value_at(b.lse.view(), i);
        if (x != y) {
            d.lse = std::max(d.lse, std::fabs(x - y) / (1 + std::fabs(y)));
        }
    });
    return d;
}

// How far the order of fp32 sums may move a result. P has the same bits where the sums of scores
// are exact, as they are of INT8 codes: then only the sums of PV differ, by some 2^-24 a step and
// tens of steps. Elsewhere a code of P may also flip at a rounding border, once in some 2^20, by at
// most a 16th of itself: sqrt(2^-20) / 16 = 6e-5.
// Sums of a tile in fp16 are the larger part by far.
double bound(const std::string& kernel, const Recipe& recipe) {
    return std::max(std::strcmp(recipe.name, "int8_fp8") == 0 ? 2e-6 : 1e-4,
                    short_sums(kernel, recipe));
}

Spec random_spec(Random& random) {
    Spec s;
    s.packed = random.chance(.5);
    s.tokens_q = random.in(1, 200);
    s.tokens_k = random.in(1, 400);
    if (s.packed) {
        s.zero_tail = true;
        s.q_lens = {20, 0, 67};
        s.k_lens = {100, 5, static_cast<std::int32_t>(random.in(0, 300))};
        s.tokens_q = s.tokens_k = 0;
    } else {
        s.batch = random.in(1, 2);
        if (random.chance(.3)) {
            s.kv_lens = std::vector<std::int32_t>(static_cast<std::size_t>(s.batch),
                                                  static_cast<std::int32_t>(s.tokens_k / 2));
        }
    }
    s.heads_q = 4;
    s.heads_kv = random.pick({1, 2, 4});
    s.dim = random.in(1, 256);
    s.dim_v = random.in(1, 256);
    s.causal = random.chance(.5);
    s.left = random.pick<std::int64_t>({-1, 40, 100});
    s.right = random.pick<std::int64_t>({-1, 0, 70});
    s.q = random.pick({QUATT_BF16, QUATT_F16, QUATT_F32, QUATT_E4M3});
    s.k = s.v = s.q;
    s.descale_rank = s.q == QUATT_E4M3 ? 1 : -1;
    if (random.chance(.5)) {
        s.sink = {.5f, -1, 3, 0};
    }
    s.k_mean = s.v_mean = random.pick({0.0, 2.0});
    s.seed = random.bits();
    return s;
}

TEST_P(Level, IsTheEmulation) {
    Random random(31);
    for (int n = 0; n < scaled(15); n++) {
        const Spec s = random_spec(random);
        Case fast(s), emulate(s);
        (void)bits(fast);
        (void)bits_of(emulate, {"emulate", recipe()}, [](Problem& p) { p.key_tile = 64; });
        const Difference d = difference(fast, emulate);
        EXPECT_LE(d.l2, bound(kernel(), way().value())) << s;
        EXPECT_LE(d.lse, 2e-6) << s;
    }
}

// Where the processor has the instructions: the bits of the emulated ones.
class NativeLevel : public Level {};

INSTANTIATE_TEST_SUITE_P(Machine, NativeLevel,
                         testing::Combine(testing::Values("cpu_amx", "cpu_avx512_fp16"),
                                          testing::ValuesIn(kRecipes)),
                         [](const auto& tested) {
                             return std::string(std::get<0>(tested.param)) + "_" +
                                    std::get<1>(tested.param);
                         });

TEST_P(NativeLevel, HasTheBitsOfEmulatedInstructions) {
    const std::string name = std::string(kernel()) + "_emulated";
    Random random(37);
    for (int n = 0; n < scaled(15); n++) {
        Case c(random_spec(random));
        const Bits native = bits(c);
        c.reset_outputs();
        const Problem p = c.problem(way());
        const Status st = run_on(*emulated_level(name.c_str()), p);
        ASSERT_TRUE(st.ok()) << st.message();
        EXPECT_EQ((Bits{c.out.codes(), c.lse.codes()}), native) << c.spec;
    }
}

// Several intervals, splits, and rows whose reference falls and rises: scores with a standard
// deviation of 3.
TEST_P(Level, IsTheEmulationOnLongRows) {
    Spec s;
    s.tokens_q = 40;
    s.tokens_k = 7000;
    s.heads_q = s.heads_kv = 1;
    s.dim = 64;
    s.scale = 3;
    Case fast(s), emulate(s);
    for (const std::int32_t splits : {1, 3}) {
        (void)bits(fast, [&](Problem& p) { p.splits = splits; });
        (void)bits_of(emulate, {"emulate", recipe()}, [&](Problem& p) {
            p.key_tile = 64;
            p.splits = splits;
        });
        const Difference d = difference(fast, emulate);
        EXPECT_LE(d.l2, bound(kernel(), way().value())) << "splits " << splits;
        EXPECT_LE(d.lse, 2e-6) << "splits " << splits;
    }
}

// N(0,1), D = 128, the published error, against fp64 of the test's own.
TEST_P(Level, MeetsThePublishedError) {
    Spec s;
    s.tokens_q = 256;
    s.tokens_k = 1024;
    s.heads_q = s.heads_kv = 4;
    s.dim = 128;
    s.q = s.k = s.v = s.out = std::strcmp(recipe(), "f16") == 0 ? QUATT_F16 : QUATT_BF16;
    Case fast(s);
    s.out = QUATT_F32;
    Case exact(s);
    (void)bits(fast);
    (void)bits_of(exact, {"reference", recipe()});
    const auto published = static_cast<double>(way().value().expected_rel_l2);
    // 4 heads and not 16: a standard error of some 1 %.
    EXPECT_LE(difference(fast, exact).l2, 1.03 * published);
    EXPECT_GE(difference(fast, exact).l2, .9 * published) << "then the published number is stale";
}

TEST_P(Level, ThreadsDoNotChangeBits) {
    Spec s;
    s.batch = 2;
    s.tokens_q = 300;
    s.tokens_k = 700;
    s.heads_q = 6;
    s.heads_kv = 3;
    s.dim = 72;
    s.causal = true;
    Case c(s);
    const auto with = [&](std::int32_t threads) {
        return bits(c, [&](Problem& p) { p.threads = threads; });
    };
    const Bits one = with(1);
    for (const std::int32_t threads : {2, 3, 8}) {
        EXPECT_EQ(with(threads), one) << threads;
    }
}

// A batch item, and a segment, give the bits that they give alone.
TEST_P(Level, PartsAreAsAlone) {
    Spec s;
    s.packed = true;
    s.q_lens = {33, 100, 1};
    s.k_lens = {90, 65, 200};
    s.heads_q = 4;
    s.heads_kv = 2;
    s.dim = 48;
    Case all(s);
    Problem p = all.problem(way());
    ASSERT_TRUE(run_problem(p).ok());
    const Buffer out = all.out, lse = all.lse;
    all.reset_outputs();  // so that what a segment alone does not write shows
    std::int64_t q = 0, k = 0;
    for (std::size_t i = 0; i < s.q_lens.size(); i++) {
        Problem one = p;
        for (quatt_tensor* t : {&one.tensors.q, &one.tensors.out}) {
            *t = narrowed(*t, 0, q, s.q_lens[i]);
        }
        for (quatt_tensor* t : {&one.tensors.k, &one.tensors.v}) {
            *t = narrowed(*t, 0, k, s.k_lens[i]);
        }
        one.tensors.lse = narrowed(one.tensors.lse, 1, q, s.q_lens[i]);
        one.tensors.cu_seqlens_q = one.tensors.cu_seqlens_k = quatt_tensor{};
        const Status st = run_problem(one);
        ASSERT_TRUE(st.ok()) << st.message();
        EXPECT_EQ(codes_of(one.tensors.out), codes_of(narrowed(out.view(), 0, q, s.q_lens[i])))
            << "segment " << i;
        EXPECT_EQ(codes_of(one.tensors.lse), codes_of(narrowed(lse.view(), 1, q, s.q_lens[i])))
            << "segment " << i;
        q += s.q_lens[i];
        k += s.k_lens[i];
    }
    EXPECT_EQ(all.out.codes(), out.codes());
}

// Keys past kv_lens and unused capacity may hold anything.
TEST_P(Level, GarbageInPaddingNeverLeaks) {
    Spec s;
    s.tokens_q = 70;
    s.tokens_k = 150;
    s.kv_lens = {77};
    s.dim = 40;
    Case c(s);
    const Bits clean = bits(c);
    for (const Buffer* b : {&c.k, &c.v}) {
        const quatt_tensor past = narrowed(b->view(), 1, 77, 150 - 77);
        for_each_index(extents_of(past), [&](const Extents& i) {
            const std::uint16_t nan = i[1] % 2 == 0 ? 0x7FC0 : 0xFF80;
            std::memcpy(static_cast<std::byte*>(past.data) + 2 * offset(past, i), &nan, sizeof nan);
        });
    }
    EXPECT_EQ(bits(c), clean);
}

// A non-finite query, key or value reaches rows of its head only, and does reach some: by a scale,
// or, where codes are given, as the code of NaN.
TEST_P(Level, NaNStaysInItsHead) {
    for (const quatt_dtype dtype : {QUATT_BF16, QUATT_E4M3}) {
        Spec s;
        s.tokens_q = 70;
        s.tokens_k = 150;
        s.heads_q = s.heads_kv = 2;
        s.dim = 40;
        s.q = s.k = s.v = dtype;
        s.descale_rank = dtype == QUATT_E4M3 ? 1 : -1;
        Case c(s);
        const Bits clean = bits(c);
        const std::uint16_t nan = dtype == QUATT_E4M3 ? 0x7F : 0x7FC0;
        const auto bytes = static_cast<std::int64_t>(quatt_dtype_bytes(dtype));
        for (const Buffer* b : {&c.q, &c.k, &c.v}) {
            const quatt_tensor t = b->view();
            std::byte* at = static_cast<std::byte*>(t.data) + bytes * offset(t, {0, 69, 1, 3});
            std::uint16_t kept = 0;
            std::memcpy(&kept, at, static_cast<std::size_t>(bytes));
            std::memcpy(at, &nan, static_cast<std::size_t>(bytes));
            const Bits dirty = bits(c);
            std::memcpy(at, &kept, static_cast<std::size_t>(bytes));
            std::size_t n = 0;
            bool reached = false;
            for_each_index(extents_of(c.out.view()), [&](const Extents& i) {
                if (i[2] == 0) {
                    ASSERT_EQ(dirty.out[n], clean.out[n]);
                } else {
                    reached |= std::isnan(decode(QUATT_F32, dirty.out[n]));
                }
                n++;
            });
            EXPECT_TRUE(reached);
        }
    }
}

// ---- lengths and memory -----------------------------------------------------------------------

// 98304 keys, 32 rows: scores are never all in memory, and the error stays what it was.
TEST_P(Level, NinetyEightThousandKeys) {
    if (kSanitized) {
        GTEST_SKIP() << "instrumented code is slower";
    }
    Spec s;
    s.tokens_q = 32;
    s.tokens_k = 98304;
    s.heads_q = s.heads_kv = 1;
    s.dim = 32;
    Case fast(s);
    static const Case exact = [&] {  // of the same inputs for all
        Case c(s);
        (void)bits_of(c, {"reference", "bf16"});
        return c;
    }();
    (void)bits(fast);
    const auto published = static_cast<double>(way().value().expected_rel_l2);
    EXPECT_LE(difference(fast, exact).l2, 1.2 * published);
}

// What the engine keeps beside inputs and output, at 262144 tokens: a few KV heads, 8 bytes an
// element of each at most, and a scratch a thread that no length changes.
TEST_P(Level, WorkspaceGrowsWithHeadsInFlightOnly) {
    constexpr std::int64_t kTokens = 262144, kDim = 128, kThreads = 2;
    const auto bytes = [&](std::int64_t tokens, std::int64_t heads) {
        const Tensor x(nullptr, DType::bf16, {1, tokens, heads, kDim});
        Problem p(Recipe(recipe()), x, x, x, x);
        p.threads = kThreads;
        return static_cast<std::int64_t>(workspace_of(p));
    };
    const std::int64_t scratch = bytes(64, 2);
    EXPECT_LE(scratch, 1 << 20);
    EXPECT_LE(bytes(kTokens, 56), kThreads * kTokens * kDim * (2 + 4 + 4) * 21 / 20 + scratch);
    EXPECT_EQ(bytes(kTokens, 56), bytes(kTokens, 8));
    EXPECT_LE(bytes(kTokens, 56), 2 * bytes(kTokens / 2, 56));
}

// A long head takes 100 MB and more: many threads do not take as many of them at a time as there
// are.
TEST_P(Level, WorkspaceKeepsToItsTarget) {
    constexpr std::int64_t kTokens = 131072, kDim = 128, kHeads = 32;
    const auto bytes = [&](std::int32_t threads, std::int64_t target) {
        const Tensor q(nullptr, DType::bf16, {1, 1, kHeads, kDim}),
            k(nullptr, DType::bf16, {1, kTokens, kHeads, kDim});
        Problem p(Recipe(recipe()), q, k, k, q);
        p.threads = threads;
        p.workspace_target_bytes = target;
        return static_cast<std::int64_t>(workspace_of(p));
    };
    const std::int64_t one = bytes(1, 0), two = bytes(2, 0);
    EXPECT_GT(two, one * 3 / 2) << "a head a thread, where there are two";
    for (const std::int32_t threads : {4, 64, 256}) {
        const std::int64_t scratch = INT64_C(1) << 20;  // of a thread, at most
        EXPECT_LE(bytes(threads, 0), 512 << 20) << threads;
        EXPECT_GE(bytes(threads, 0), two) << threads;
        EXPECT_LE(bytes(threads, 1), one + threads * scratch) << "one head";
        EXPECT_LE(bytes(threads, INT64_C(1) << 30), 1 << 30) << threads;
        EXPECT_GT(bytes(threads, INT64_C(1) << 40),
                  (std::min<std::int64_t>(threads, kHeads) - 1) * two / 2);
    }
    EXPECT_GT(bytes(64, INT64_C(1) << 40), bytes(64, 0));
}

// However many heads are in flight, the results are the same bits.
TEST_P(Level, WorkspaceTargetChangesNoBit) {
    Spec s;
    s.batch = 2;
    s.tokens_q = 40;
    s.tokens_k = 400;
    s.heads_q = 6;
    s.heads_kv = 3;
    s.dim = 64;
    Case c(s);
    const Bits expected = bits(c);
    for (const std::int64_t target : {1, 200 << 10, 400 << 10, 1 << 30}) {
        EXPECT_EQ(bits(c, [&](Problem& p) { p.workspace_target_bytes = target; }), expected)
            << target;
    }
}

}  // namespace
}  // namespace quatt::test
