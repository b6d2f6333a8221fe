// The fast engine on every instruction-set level of this machine, and with the instructions in
// software on those that few machines have: the same checks for each.
#include <gtest/gtest.h>

#include <array>

#include "cpu/software_levels.hpp"
#include "cpu/sums.hpp"
#include "support/attention.hpp"

namespace quatt::test {
namespace {

constexpr std::array kKernels = {
    "cpu_amx",    "cpu_avx512_fp16", "cpu_avx512_bf16",  "cpu_avx512_vnni",
    "cpu_avx512", "cpu_avx2",        "cpu_amx_software", "cpu_avx512_fp16_software"};
constexpr std::array kRecipes = {"bf16",     "f16",   "fp8",      "fp8_head",
                                 "int8_fp8", "nvfp4", "nvfp4_fp8"};

class Level : public testing::TestWithParam<std::tuple<const char*, const char*>> {
protected:
    [[nodiscard]] static const char* kernel() { return std::get<0>(GetParam()); }
    [[nodiscard]] static const char* recipe() { return std::get<1>(GetParam()); }
    [[nodiscard]] static Way way() { return {"cpu", recipe()}; }
    [[nodiscard]] static const cpu::Level* software() { return software_level(kernel()); }

    // All runs of the level go through these three.
    [[nodiscard]] static Status run_problem(Problem& p) {
        if (software() != nullptr) {
            return run_on(*software(), p);
        }
        p.kernel = kernel();
        return run(p, "cpu");
    }
    [[nodiscard]] static std::size_t workspace_of(Problem& p) {
        if (software() != nullptr) {
            return workspace_on(*software(), p);
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
        if (software() != nullptr) {
            if (!software()->supported()) {
                GTEST_SKIP() << "the rest of its instructions needs " << software()->needs
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

// Where the processor has the instructions: the bits of those in software.
class NativeLevel : public Level {};

INSTANTIATE_TEST_SUITE_P(Machine, NativeLevel,
                         testing::Combine(testing::Values("cpu_amx", "cpu_avx512_fp16"),
                                          testing::ValuesIn(kRecipes)),
                         [](const auto& tested) {
                             return std::string(std::get<0>(tested.param)) + "_" +
                                    std::get<1>(tested.param);
                         });

TEST_P(NativeLevel, HasTheBitsOfEmulatedInstructions) {
    const std::string name = std::string(kernel()) + "_software";
    Random random(37);
    for (int n = 0; n < scaled(15); n++) {
        Case c(random_spec(random));
        const Bits native = bits(c);
        c.reset_outputs();
        const Problem p = c.problem(way());
        const Status st = run_on(*software_level(name.c_str()), p);
        ASSERT_TRUE(st.ok()) << st.message();
        EXPECT_EQ((Bits{c.out.codes(), c.lse.codes()}), native) << c.spec;
    }
}

// Several intervals, splits, and rows whose running max falls and rises: scores with a standard
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

// ---- tokens of V far from its centre
// ---------------------------------------------------------------

enum class Far { kSink, kEvery40th, kTile, kAll, kNaN };
constexpr std::array kFar = {Far::kSink, Far::kEvery40th, Far::kTile, Far::kAll, Far::kNaN};

// V = N(0,1) +- mean, but for tokens at 0 or near it: a key that dominates, every 40th, all of a
// tile, all of the second half; or NaN in one token, which is far as well.
void set_far_tokens(Case& c, Far far, double mean) {
    Random random(77);
    const quatt_tensor v = c.v.view(), k = c.k.view();
    const int axis = v.rank - 3;
    const std::int64_t tokens = v.extent[axis], key = tokens / 3;
    for_each_index(extents_of(v), [&](const Extents& i) {
        const std::int64_t j = i[static_cast<std::size_t>(axis)], d = i.back();
        const bool is_small = far == Far::kSink        ? j == key
                              : far == Far::kEvery40th ? j % 40 == 39
                              : far == Far::kTile      ? j >= 64 && j < 128
                              : far == Far::kAll       ? j >= tokens / 2
                                                       : false;
        const double z = random.normal();
        c.v.set_one(i, static_cast<float>(is_small ? (far == Far::kEvery40th ? .1 * z : 0)
                                                   : z + (d % 2 == 0 ? mean : -mean)));
        if (far == Far::kNaN && j == key && d == 3) {
            c.v.set_one(i, std::nanf(""));
        }
    });
    if (far != Far::kSink) {
        return;
    }
    for_each_index(extents_of(k), [&](const Extents& i) {
        if (i[static_cast<std::size_t>(axis)] == key) {
            c.k.set_one(i, 5 * static_cast<float>(value_at(k, i)));
        }
    });
}

// NaN where the emulation has it, and like it elsewhere. c (l - l_far) / l is a difference of fp32
// sums: where all keys that a row sees are far, 2^-20 or so of c is left, whatever V is.
Difference difference_beside_nan(const Case& a, const Case& b, double mean, double bound) {
    Difference d;
    double error = 0, norm = 1e-30;
    for_each_index(extents_of(a.out.view()), [&](const Extents& i) {
        const double x = value_at(a.out.view(), i), y = value_at(b.out.view(), i);
        if (std::isnan(x) && std::isnan(y)) {
            return;
        }
        error += (x - y) * (x - y);  // NaN of one shows
        norm += y * y + std::pow(mean * 0x1p-20 / bound, 2);
    });
    d.l2 = std::sqrt(error / norm);
    d.lse = difference(a, b).lse;
    return d;
}

TEST_P(Level, FarTokensAreThoseOfTheEmulation) {
    Random random(41);
    int n = 0;
    for (const Far far : kFar) {
        for (const double mean : {.3, 3.0, 30.0}) {
            if (!thinned(n++)) {
                continue;
            }
            Spec s = random_spec(random);
            s.kv_lens.clear();
            s.dim = random.in(16, 128);
            s.dim_v = random.in(4, 256);
            s.q = s.k = s.v = random.pick({QUATT_BF16, QUATT_F16, QUATT_F32});
            s.descale_rank = -1;
            s.k_mean = 1;
            if (!s.packed) {
                s.tokens_k = random.in(130, 400);
            }
            Case fast(s), emulate(s);
            for (Case* c : {&fast, &emulate}) {
                set_far_tokens(*c, far, mean);
            }
            (void)bits(fast);
            (void)bits_of(emulate, {"emulate", recipe()}, [](Problem& p) { p.key_tile = 64; });
            const double allowed = bound(kernel(), way().value());
            const Difference d = difference_beside_nan(fast, emulate, mean, allowed);
            EXPECT_LE(d.l2, allowed) << s << ", far " << static_cast<int>(far) << ", mean " << mean;
            EXPECT_LE(d.lse, 2e-6) << s;
        }
    }
}

// Several intervals, so that the far sums are promoted and joined; splits, sinks, running maxima
// that rise and fall, rows that see none or only far keys.
TEST_P(Level, FarTokensOfLongRows) {
    int n = 0;
    for (const Far far : kFar) {
        for (const bool causal : {false, true}) {
            if (!thinned(n++)) {
                continue;
            }
            Spec s;
            s.tokens_q = 40;
            s.tokens_k = 5000;
            s.heads_q = 2;
            s.heads_kv = 1;
            s.dim = 32;
            s.scale = 3;
            s.causal = causal;
            s.left = causal ? -1 : 2300;
            s.sink = {4, -2};
            Case fast(s), emulate(s);
            for (Case* c : {&fast, &emulate}) {
                set_far_tokens(*c, far, 3);
            }
            for (const std::int32_t splits : {1, 3}) {
                (void)bits(fast, [&](Problem& p) { p.splits = splits; });
                (void)bits_of(emulate, {"emulate", recipe()}, [&](Problem& p) {
                    p.key_tile = 64;
                    p.splits = splits;
                });
                const double allowed = bound(kernel(), way().value());
                const Difference d = difference_beside_nan(fast, emulate, 3, allowed);
                EXPECT_LE(d.l2, allowed)
                    << "splits " << splits << ", far " << static_cast<int>(far);
                EXPECT_LE(d.lse, 2e-6) << "splits " << splits;
            }
        }
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

// A value of V that is not finite reaches the rows that see its key, as in the emulation; in a
// format with a scale of its own, those that see a key of its scale's group.
TEST_P(Level, ValuesThatAreNotFiniteReachRowsThatSeeThem) {
    for (const quatt_dtype dtype : {QUATT_BF16, QUATT_F16, QUATT_E4M3}) {
        Spec s;
        s.tokens_q = s.tokens_k = 300;
        s.heads_q = s.heads_kv = 1;
        s.dim = 40;
        s.causal = true;
        s.q = s.k = s.v = dtype;
        s.descale_rank = dtype == QUATT_E4M3 ? 0 : -1;
        Case fast(s), emulate(s);
        const Bits clean = bits(fast);
        const std::vector<std::uint32_t> poisons =
            dtype == QUATT_BF16  ? std::vector<std::uint32_t>{0x7FC0, 0x7F80, 0xFF80}
            : dtype == QUATT_F16 ? std::vector<std::uint32_t>{0x7E00, 0x7C00, 0xFC00}
                                 : std::vector<std::uint32_t>{0x7F};
        for (const std::int64_t key : {299, 280, 130, 5}) {
            for (const std::uint32_t poison : poisons) {
                const Extents at = {0, key, 0, 7};
                const float kept = static_cast<float>(value_at(fast.v.view(), at));
                for (Case* c : {&fast, &emulate}) {
                    c->v.set_code(at, poison);
                }
                const Bits dirty = bits(fast);
                (void)bits_of(emulate, {"emulate", recipe()}, [](Problem& p) { p.key_tile = 64; });
                for (Case* c : {&fast, &emulate}) {
                    c->v.set_one(at, kept);
                }
                // One channel of V by itself: the others keep their bits.
                const Recipe r = way().value();
                const bool alone = r.v.scale_format == QUATT_SCALE_NONE ||
                                   (dtype == QUATT_E4M3 && std::strcmp(recipe(), "fp8_head") == 0);
                std::size_t n = 0;
                for_each_index(extents_of(fast.out.view()), [&](const Extents& i) {
                    const double x = value_at(fast.out.view(), i),
                                 y = value_at(emulate.out.view(), i);
                    ASSERT_EQ(std::isnan(x), std::isnan(y)) << "row " << i[1] << ", key " << key;
                    ASSERT_TRUE(!std::isinf(y) || x == y) << x << " and " << y;
                    if (alone) {
                        const bool reached = i[1] >= key && i[3] == 7;
                        ASSERT_EQ(std::isfinite(x), !reached) << "row " << i[1] << ", key " << key;
                        ASSERT_TRUE(reached || dirty.out[n] == clean.out[n]) << "row " << i[1];
                    }
                    n++;
                });
                ASSERT_EQ(dirty.lse, clean.lse);
            }
        }
    }
}

// ---- numbers near the ends of what fp32 holds ---------------------------------------------------

// Both engines of the recipe and the exact one, on the same inputs.
struct Three {
    Case fast, emulate, exact;
    explicit Three(const Spec& s) : fast(s), emulate(s), exact(s) {}
    std::array<Case*, 3> all() { return {&fast, &emulate, &exact}; }
};

// Out and LSE of both engines are the exact ones, to within `out_error` relative L2.
void expect_exact(const Three& t, double out_error, double lse_error, const std::string& what) {
    for (const Case* c : {&t.fast, &t.emulate}) {
        const Difference d = difference(*c, t.exact);
        EXPECT_LE(d.l2, out_error) << what << (c == &t.fast ? ", fast" : ", emulate");
        EXPECT_LE(d.lse, lse_error) << what << (c == &t.fast ? ", fast" : ", emulate");
    }
    EXPECT_LE(difference(t.fast, t.emulate).l2, 1e-4 + out_error / 8) << what;
}

// Scores that are all the same number, however far from 0: out is the mean of V.
TEST_P(Level, EqualLogitsOfAnySize) {
    Spec s;
    s.tokens_q = 70;
    s.tokens_k = 200;
    s.heads_q = s.heads_kv = 1;
    s.dim = 64;
    s.v_mean = 1;
    for (const bool causal : {false, true}) {
        s.causal = causal;
        Three t(s);
        for (const double logit : {3e9, -3e9, 4e11, -7.1e29, -9e29, -2e38, 2e38, 2907270.3}) {
            for (Case* c : t.all()) {
                c->q.set(std::vector<float>(static_cast<std::size_t>(c->q.size()), 1024));
                c->k.set(std::vector<float>(static_cast<std::size_t>(c->k.size()),
                                            logit < 0 ? -512.0f : 512.0f));
            }
            const auto scaled = [&](Problem& p) {
                p.softmax_scale = static_cast<float>(std::fabs(logit) / (1024.0 * 512 * 64));
                p.key_tile = 64;
            };
            (void)bits(t.fast, scaled);
            (void)bits_of(t.emulate, {"emulate", recipe()}, scaled);
            (void)bits_of(t.exact, {"reference", recipe()}, [&](Problem& p) {
                scaled(p);
                p.key_tile = 0;
            });
            const double published = static_cast<double>(way().value().expected_rel_l2);
            expect_exact(t, 1.2 * published, 1e-2, "logits of " + std::to_string(logit));
        }
    }
}

// A key that lies below all others by as much again has no weight, and is not taken for the row's
// first.
TEST_P(Level, UnequalLogitsBelowMinus1e30) {
    if (std::strcmp(recipe(), "bf16") != 0 && std::strcmp(recipe(), "f16") != 0 &&
        std::strcmp(recipe(), "fp8_head") != 0) {
        return;  // the scales of its groups of keys differ by more than such scores may
    }
    Spec s;
    s.tokens_q = 70;
    s.tokens_k = 200;
    s.heads_q = s.heads_kv = 1;
    s.dim = 64;
    s.v_mean = 1;
    Three t(s);
    for (Case* c : t.all()) {
        c->q.set(std::vector<float>(static_cast<std::size_t>(c->q.size()), 1024));
        std::vector<float> k(static_cast<std::size_t>(c->k.size()), -512);
        for (const std::size_t key : {0, 63, 64, 130, 191, 199}) {
            std::fill_n(k.begin() + static_cast<std::ptrdiff_t>(key * 64), 64, -1024.0f);
        }
        c->k.set(k);
    }
    const auto scaled = [](Problem& p) {
        p.softmax_scale = 1e30f / (1024.0f * 512 * 64);
        p.key_tile = 64;
    };
    (void)bits(t.fast, scaled);
    (void)bits_of(t.emulate, {"emulate", recipe()}, scaled);
    (void)bits_of(t.exact, {"reference", recipe()}, [&](Problem& p) {
        scaled(p);
        p.key_tile = 0;
    });
    expect_exact(t, 1.2 * static_cast<double>(way().value().expected_rel_l2), 1e-2, "");
}

// A sink of any finite size: beyond all keys nothing is left of them, far below them it is as none.
TEST_P(Level, SinksOfAnyFiniteSize) {
    Spec s;
    s.tokens_q = 70;
    s.tokens_k = 130;
    s.heads_q = 2;
    s.causal = true;
    Case without(s);
    const Bits plain = bits(without);
    constexpr float kMost = std::numeric_limits<float>::max();
    for (const float sink : {3e38f, kMost, 2.3e38f, 1e30f, 5e9f, -5e9f, -1e30f, -3e38f, -kMost}) {
        s.sink = {sink, sink};
        Three t(s);
        (void)bits(t.fast);
        (void)bits_of(t.emulate, {"emulate", recipe()}, [](Problem& p) { p.key_tile = 64; });
        (void)bits_of(t.exact, {"reference", recipe()});
        for (const Case* c : t.all()) {
            for_each_index(extents_of(c->lse.view()), [&](const Extents& i) {
                const double lse = value_at(c->lse.view(), i);
                ASSERT_TRUE(sink < 0 || std::fabs(lse / static_cast<double>(sink) - 1) < 1e-6)
                    << lse << " with a sink of " << sink;
            });
            for_each_index(extents_of(c->out.view()), [&](const Extents& i) {
                const double x = value_at(c->out.view(), i);
                ASSERT_TRUE(sink > 0 ? x == 0 : std::isfinite(x)) << x << ", sink " << sink;
            });
        }
        if (sink < 0) {
            EXPECT_EQ(t.fast.out.codes(), plain.out) << sink;
            EXPECT_EQ(t.fast.lse.codes(), plain.lse) << sink;
        }
    }
}

// A finite number beyond 65504 counts as NaN in recipe f16, for the rows that see it, and the
// status word says so; other recipes hold it.
TEST_P(Level, NumbersBeyondF16) {
    const bool is_f16 = std::strcmp(recipe(), "f16") == 0;
    Spec s;
    s.tokens_q = s.tokens_k = 150;
    s.heads_q = s.heads_kv = 2;
    s.dim = 40;
    s.causal = true;
    for (const quatt_dtype dtype : {QUATT_F32, QUATT_BF16}) {
        s.q = s.k = s.v = dtype;
        Case c(s);
        const Bits clean = bits(c);
        for (Buffer* b : {&c.q, &c.k, &c.v}) {
            for (const float large : {70000.0f, -70000.0f, 1e30f, 65280.0f}) {
                const Extents at = {0, 100, 1, 3};
                const float kept = static_cast<float>(value_at(b->view(), at));
                b->set_one(at, large);
                const bool beyond = is_f16 && large != 65280.0f;
                for (const char* device : {"cpu", "emulate"}) {
                    Buffer word(QUATT_I32, {1});
                    Problem p = c.problem(way());
                    p.tensors.status_word = word;
                    p.key_tile = 64;
                    c.reset_outputs();
                    const Status st =
                        std::strcmp(device, "cpu") == 0 ? run_problem(p) : run(p, device);
                    ASSERT_TRUE(st.ok()) << st.message();
                    EXPECT_EQ(word.codes()[0], beyond ? std::uint32_t{QUATT_DATA_OVERFLOW} : 0U)
                        << device;
                    if (!is_f16) {
                        continue;
                    }
                    const Bits got = {c.out.codes(), c.lse.codes()};
                    const bool is_cpu = std::strcmp(device, "cpu") == 0;
                    std::size_t n = 0;
                    for_each_index(extents_of(c.out.view()), [&](const Extents& i) {
                        const bool row =
                            beyond && i[2] == 1 && (b == &c.q ? i[1] == 100 : i[1] >= 100);
                        const bool hit = row && (b != &c.v || i[3] == 3);
                        ASSERT_EQ(std::isnan(decode(QUATT_F32, got.out[n])), hit) << i[1];
                        ASSERT_TRUE(row || large == 65280.0f || !is_cpu ||
                                    got.out[n] == clean.out[n])
                            << i[1];
                        n++;
                    });
                    for_each_index(extents_of(c.lse.view()), [&](const Extents& i) {
                        const bool hit = beyond && i[1] == 1 && b != &c.v &&
                                         (b == &c.q ? i[2] == 100 : i[2] >= 100);
                        ASSERT_EQ(std::isnan(value_at(c.lse.view(), i)), hit) << i[2];
                    });
                }
                b->set_one(at, kept);
            }
        }
    }
}

// Values that one fp32 sum would lose: P V is some 2^23 after the first interval that a row meets,
// and each later tile adds less than half of what that resolves. Promotion sums them apart.
TEST_P(Level, SumsArePromotedOncePerInterval) {
    if (way().value().promotes == 0) {
        return;  // nothing is promoted
    }
    constexpr std::int64_t kHeavy = 704;
    Spec s;
    s.tokens_q = 5;
    s.tokens_k = 20 * 2304;
    s.heads_q = s.heads_kv = 1;
    s.dim = 16;
    Three t(s);
    for (Case* c : t.all()) {
        std::vector<float> q(static_cast<std::size_t>(c->q.size()), 0),
            k(static_cast<std::size_t>(c->k.size()), 0),
            v(static_cast<std::size_t>(c->v.size()), 0);
        for (std::size_t i = 0; i < q.size(); i += 16) {
            q[i] = 1;
        }
        for (std::size_t j = 0; j < v.size() / 16; j++) {
            const bool heavy = j >= v.size() / 16 - kHeavy;
            k[16 * j] = heavy ? 6.875f : 0;  // log2 units
            for (std::size_t d = 0; d < 16; d++) {
                // 32 times a code of P: 64 of them are exact in fp16 too. 448 in a token of the
                // sample: the scale is 1, and the mean of .5 is small beside it.
                v[16 * j + d] = heavy                            ? 32
                                : j == 117                       ? 448
                                : j / 64 != 1 && j % 64 == 3 * d ? .09375f
                                                                 : 0;
            }
        }
        c->q.set(q);
        c->k.set(k);
        c->v.set(v);
    }
    const auto scaled = [](Problem& p) {
        p.softmax_scale = static_cast<float>(std::log(2.0));
        p.key_tile = 64;
    };
    (void)bits(t.fast, scaled);
    (void)bits_of(t.emulate, {"emulate", recipe()}, scaled);
    // The order of fp32 sums moves this by some 1e-7; sums that are not promoted by 2e-5.
    EXPECT_LE(difference(t.fast, t.emulate).l2, 2e-6);
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
