// Every shape, layout and head size through the public interface: equal to the recipe's emulation.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "attention/harness.hpp"

namespace quatt::test {
namespace {

QUATT_SUBJECTS(Shapes, gpu_subjects());

// One of `n`, the first the simplest.
std::int64_t choose(std::int64_t n) {
    return *rc::gen::inRange<std::int64_t>(0, n);
}
// With a chance of one in `n`.
bool once_in(std::int64_t n) {
    return choose(n) == n - 1;
}

void any_problem_equals_the_emulation() {
    const char* recipe = recipe_at(choose(static_cast<std::int64_t>(recipes().size())));
    Spec s = spec_of(recipe, once_in(2) ? QUATT_F16 : QUATT_BF16);
    const std::int64_t dims[] = {64, 128, 1 + choose(128)};
    s.dim = dims[choose(3)];
    s.packed = once_in(2);
    s.causal = once_in(2);
    s.lse = !once_in(5);
    s.heads_kv = once_in(4) ? 2 : 1;
    s.heads_q = s.heads_kv * (1 + choose(6) / 3 + choose(6) / 5);
    s.seed = static_cast<std::uint64_t>(choose(10000));
    const auto length = [](std::int64_t from, std::int64_t most) {
        return from + choose(most - from + 1);
    };
    if (s.packed) {
        const auto segments = static_cast<std::size_t>(1 + choose(4));
        const bool own_keys = once_in(2);
        for (std::size_t i = 0; i < segments; i++) {
            s.q_lens.push_back(
                static_cast<std::int32_t>(length(0, 300 / static_cast<std::int64_t>(segments))));
            if (own_keys) {
                s.k_lens.push_back(static_cast<std::int32_t>(
                    length(0, 300 / static_cast<std::int64_t>(segments))));
            }
        }
        const auto spare = length(0, 70);  // capacity past the last segment
        s.tokens_q = std::accumulate(s.q_lens.begin(), s.q_lens.end(), spare);
        const auto& keys = own_keys ? s.k_lens : s.q_lens;
        s.tokens_k = std::accumulate(keys.begin(), keys.end(), spare);
        s.zero_tail = once_in(2);
        if (once_in(4)) {
            for (const std::int32_t n : keys) {
                s.kv_lens.push_back(static_cast<std::int32_t>(length(0, n)));
            }
        }
    } else {
        s.batch = once_in(4) ? 2 : 1;
        s.tokens_q = length(1, 300 / s.batch);
        s.tokens_k = length(1, 300);
        if (once_in(3)) {
            for (std::int64_t i = 0; i < s.batch; i++) {
                s.kv_lens.push_back(static_cast<std::int32_t>(length(0, s.tokens_k)));
            }
        }
    }
    Case c = make_case(s);
    const testing::AssertionResult result =
        equals_emulation(c, recipe, {.rare = kRareInRandomData});
    if (!result) {
        RC_FAIL(std::string(result.message()));
    }
}

TEST_P(Shapes, AnyProblemEqualsTheEmulation) {
    EXPECT_TRUE(rc::check(any_problem_equals_the_emulation));
}

// Shared memory starts as NaN in the executor.
TEST_P(Shapes, TailsOfRowsAndKeys) {
    int n = 0;
    for (const std::int64_t sk :
         {1, 2, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 127, 128, 129, 191, 193, 257}) {
        for (const std::int64_t sq : {std::int64_t{1}, sk, std::int64_t{131}}) {
            Spec s = spec_of(recipe_at(n));
            s.dim = n / 3 % 2 == 0 ? 128 : 64;
            s.heads_q = 1;
            s.tokens_q = sq;
            s.tokens_k = sk;
            s.causal = n % 4 == 3;
            s.seed = static_cast<std::uint64_t>(n);
            if (taken(n)) {
                Case c = make_case(s);
                EXPECT_TRUE(equals_emulation(c, recipe_at(n)));
            }
            n++;
        }
    }
}

TEST_P(Shapes, Empty) {
    Thinner thin;
    for (const char* recipe : recipes()) {
        for (const bool zero_tail : {false, true}) {
            std::vector<Spec> specs(11, spec_of(recipe));
            specs[0].tokens_q = 70;  // no keys
            specs[1].tokens_k = 70;  // no queries
            specs[2].batch = 0;
            specs[2].tokens_q = specs[2].tokens_k = 5;
            for (std::size_t i = 3; i < specs.size(); i++) {
                specs[i].packed = true;
                specs[i].zero_tail = zero_tail;
            }
            specs[3].q_lens = {0};
            specs[4].q_lens = {0, 0, 0, 0, 0};
            specs[5].q_lens = {0, 2, 0, 0, 1, 0, 0, 0};  // fewer tokens than segments
            specs[6].q_lens = {0, 128};
            specs[7].q_lens = {0, 0, 129, 0, 60};
            specs[8].q_lens = {0, 0};  // capacity and no tokens
            specs[8].tokens_q = specs[8].tokens_k = 20;
            specs[9].q_lens = {3, 0, 64};
            specs[9].k_lens = {0, 70, 0};
            specs[10].q_lens = {0, 133, 0};
            specs[10].tokens_q = 200;
            for (const Spec& s : specs) {
                if (thin.skip()) {
                    continue;
                }
                Case c = make_case(s);
                EXPECT_TRUE(equals_emulation(c, recipe));
                c.spec.causal = true;
                EXPECT_TRUE(equals_emulation(c, recipe));
            }
        }
    }
}

// A stream cut nowhere, and one of no segments at all.
TEST_P(Shapes, PackedWithoutSegments) {
    for (const char* recipe : recipes()) {
        Spec s = spec_of(recipe);
        s.packed = true;
        s.tokens_q = 70;
        s.tokens_k = 90;
        Case c = make_case(s);
        EXPECT_TRUE(equals_emulation(c, recipe));
        s.zero_tail = true;  // means nothing here
        c = make_case(s);
        EXPECT_TRUE(equals_emulation(c, recipe));
        Buffer nothing(QUATT_I32, {1});
        nothing.set_integers({0});
        std::int32_t status = 7;
        const std::int64_t one = 1;
        for (const int zero_tail : {0, 1}) {
            EXPECT_TRUE(equals_emulation(c, recipe, {.change = [&](Problem& p) {
                                             p.tensors.cu_seqlens_q = nothing.view();
                                             p.tensors.status_word = quatt_tensor_contiguous(
                                                 &status, QUATT_I32, 1, &one);
                                             p.zero_tail = zero_tail;
                                             status = 7;
                                         }}));
            EXPECT_EQ(status, 0);
        }
    }
}

// Without one in the problem nothing of prep needs to run, but the status word is set all the same.
TEST_P(Shapes, StatusWordIsSetWithoutRows) {
    for (const char* recipe : recipes()) {
        Spec s = spec_of(recipe);
        s.tokens_k = 70;
        Case c = make_case(s);
        std::int32_t status = 7;
        const std::int64_t one = 1;
        (void)compute(c, device(), recipe, [&](Problem& p) {
            p.tensors.status_word = quatt_tensor_contiguous(&status, QUATT_I32, 1, &one);
        });
        EXPECT_EQ(status, 0);
    }
}

// Segments of a packed stream with something past the last: [0, used, total] needs no special case.
TEST_P(Shapes, TrailingPaddingAsASegment) {
    for (const char* recipe : recipes()) {
        Spec s = spec_of(recipe);
        s.packed = true;
        s.q_lens = {133, 67};
        Case c = make_case(s);
        const Results whole = compute(c, device(), recipe);
        s.q_lens = {133};
        s.tokens_q = s.tokens_k = 200;
        Case used(s);
        used.q = c.q, used.k = c.k, used.v = c.v;
        const Results first = compute(used, device(), recipe);
        const auto n = static_cast<std::size_t>(133 * s.heads_q * s.dim);
        EXPECT_TRUE(std::equal(whole.bits.out.begin(),
                               whole.bits.out.begin() + static_cast<std::ptrdiff_t>(n),
                               first.bits.out.begin()));
        EXPECT_TRUE(std::all_of(first.bits.out.begin() + static_cast<std::ptrdiff_t>(n),
                                first.bits.out.end(),
                                [](std::uint32_t code) { return code == 0xFFFFFFFFu; }));
    }
}

// More segments than are sorted by length, most of them empty.
TEST_P(Shapes, ManySegments) {
    for (const std::size_t count : {33u, 300u, 1030u}) {
        Spec s = spec_of("fp8");
        s.packed = true;
        s.heads_q = 1;
        s.q_lens.resize(count);
        s.k_lens.resize(count);
        for (const std::size_t i : {std::size_t{1}, std::size_t{5}, count / 2, count - 1}) {
            s.q_lens[i] = 3;
            s.k_lens[i] = static_cast<std::int32_t>(i % 50 + 20);
        }
        Case c = make_case(s);
        EXPECT_TRUE(equals_emulation(c, "fp8")) << count;
    }
}

TEST_P(Shapes, EveryHeadSize) {
    Thinner thin;
    for (std::int64_t dim = 1; dim <= 128; dim += dim < 16 ? 1 : 7) {
        if (thin.skip()) {
            continue;
        }
        const auto n = static_cast<int>(dim);
        Spec s = spec_of(recipe_at(n), n % 2 == 0 ? QUATT_F16 : QUATT_BF16);
        s.dim = dim;
        s.tokens_q = 20;
        s.tokens_k = 70;
        s.seed = static_cast<std::uint64_t>(dim);
        Case c = make_case(s);
        EXPECT_TRUE(equals_emulation(c, recipe_at(n)));
    }
}

// head_dim_v apart from head_dim: each up to 128.
TEST_P(Shapes, HeadDimOfV) {
    int n = 0;
    for (const auto& [dim, dim_v] :
         {std::pair{40, 100}, {100, 40}, {64, 128}, {128, 64}, {64, 8}, {1, 128}, {33, 63}}) {
        for (const char* recipe : recipes()) {
            Spec s = spec_of(recipe);
            s.dim = dim;
            s.dim_v = dim_v;
            s.tokens_q = 33;
            s.tokens_k = 90;
            s.causal = n++ % 2 == 1;
            Case c = make_case(s);
            EXPECT_TRUE(equals_emulation(c, recipe));
        }
    }
}

TEST_P(Shapes, RefusedWithTheReason) {
    const auto refused = [](Spec s, const char* recipe, const char* device,
                            const std::function<void(Problem&)>& change, const std::string& says) {
        Case c(std::move(s));
        Problem p = c.problem({device, recipe});
        change(p);
        const Result<PlanInfo> answer = query(p, device);
        EXPECT_FALSE(answer.ok()) << says;
        EXPECT_EQ(answer.status().code(), QUATT_UNSUPPORTED);
        EXPECT_NE(answer.status().message().find(says), std::string::npos)
            << answer.status().message();
        EXPECT_EQ(Plan::create(p, device).status().message(), answer.status().message());
    };
    const auto as_it_is = [](Problem&) {};
    for (const char* recipe : recipes()) {
        Spec s = spec_of(recipe);
        s.tokens_q = s.tokens_k = 8;
        Spec wide = s;
        wide.dim = 129;
        wide.dim_v = 64;
        refused(wide, recipe, device(), as_it_is, "head dims are 129 and 64; at most 128");
        wide.dim = 64;
        wide.dim_v = 200;
        refused(wide, recipe, device(), as_it_is, "head dims are 64 and 200; at most 128");
        Spec other = s;
        other.v = s.v == QUATT_BF16 ? QUATT_F16 : QUATT_BF16;
        refused(other, recipe, device(), as_it_is, "they must all be bf16 or all f16");
        other = s;
        other.q = other.k = other.v = QUATT_F32;
        refused(other, recipe, device(), as_it_is, "they must all be bf16 or all f16");
        if (!is(recipe, "fp8")) {
            other.q = other.k = other.v = s.v == QUATT_BF16 ? QUATT_F16 : QUATT_BF16;
            refused(other, recipe, device(), as_it_is, "reads its own dtype here");
        }
        Spec sink = s;
        sink.sink = {0, 1};
        refused(sink, recipe, device(), as_it_is, "sink is given");
        refused(
            s, recipe, device(), [](Problem& p) { p.window_left = 3; }, "window is (3, -1)");
        refused(
            s, recipe, device(), [](Problem& p) { p.window_right = 0; }, "window is (-1, 0)");
        refused(
            s, recipe, device(), [](Problem& p) { p.splits = 2; }, "splits is 2");
        refused(
            s, recipe, device(), [](Problem& p) { p.key_tile = 128; }, "key_tile is 128");
        refused(s, recipe, "simt:sm_80", as_it_is, "compute capability is 8.0");
        // A grid has 2^31 - 1 blocks at most; K and V have one of 64 keys each.
        Spec many = s;
        many.heads_q = many.heads_kv = 128;
        refused(
            many, recipe, device(),
            [](Problem& p) {
                for (quatt_tensor* x :
                     {&p.tensors.q, &p.tensors.k, &p.tensors.v, &p.tensors.out, &p.tensors.lse}) {
                    x->data = nullptr;
                }
                p.tensors.k.extent[1] = p.tensors.v.extent[1] = 1 << 29;
            },
            "536870912 keys and 2147483904 blocks of work");
        refused(
            s, recipe, device(), [](Problem& p) { p.recipe.exponent_bias++; }, "as named");
    }
    for (const char* recipe : {"fp8_head", "int8_fp8", "nvfp4", "nvfp4_fp8"}) {
        Spec s = spec_of("fp8");
        s.tokens_q = s.tokens_k = 8;
        refused(s, recipe, device(), as_it_is, "this kernel has bf16, f16, fp8");
    }
}

// Constants, a channel and a block of zeros.
TEST_P(Shapes, Constants) {
    Thinner thin;
    for (const char* recipe : recipes()) {
        for (const double value : {0.0, 1e-8, 1e-3, 1.0, 448.0, 6e4}) {
            for (const int which : {0, 1, 2, 3}) {
                if (thin.skip()) {
                    continue;
                }
                Spec s = spec_of(recipe);
                s.heads_q = 1;
                s.tokens_q = 20;
                s.tokens_k = 150;
                s.scale = which == 0 ? 1 / std::max(1.0, value) : 1;
                Case c = make_case(s);
                if (which == 0) fill(c.k, [&](const Extents&) { return value; });
                if (which == 1) fill(c.v, [&](const Extents&) { return value; });
                Random random(5);
                if (which == 2)
                    fill(c.v, [&](const Extents& i) {
                        return i[3] == 5 ? 0 : on_grid(random.normal());
                    });
                if (which == 3)
                    fill(c.k, [&](const Extents& i) {
                        return i[1] >= 64 && i[1] < 128 ? 0 : on_grid(random.normal());
                    });
                // K = c: all scores of a row are q . c, up to some 8 sqrt(64) 1.44.
                EXPECT_TRUE(equals_emulation(c, recipe, {.largest_t = which == 0 ? 16. : 8.}))
                    << value << " " << which;
            }
        }
    }
}

// Large and small numbers, and means: no worse than 1.05 x the emulation.
TEST_P(Shapes, Ranges) {
    struct Range {
        double q_mean, q_size, k_mean, k_size, v_size;
        bool channels;  // K's are up to 300 times as large
    };
    const Range ranges[] = {{0, 1, 0, 1, 3e4, false},
                            {0, 1, 0, 1, 1e-3, false},
                            {0, 1, 0, 1, 1, true},
                            {10, 1, 10, 1, 1, false},
                            {0, 10, 0, 10, 1, false},
                            {1, 1, 100, 1, 1, false},
                            {0, 100, 0, 1, 1, false},
                            {100, 10, 1, .1, 1, false},
                            // The factor of a score underflows.
                            {0, 1e-20, 0, 1e-20, 1, false}};
    for (const char* recipe : recipes()) {
        for (const Range& r : ranges) {
            Spec s = spec_of(recipe);
            s.heads_q = 1;
            s.tokens_q = 40;
            s.tokens_k = 200;
            s.dim = 128;
            Case c(s);
            Random random(3);
            fill(c.q, [&](const Extents&) { return r.q_mean + r.q_size * random.normal(); });
            fill(c.k, [&](const Extents& i) {
                return (r.k_mean + r.k_size * random.normal()) *
                       (r.channels && i[3] % 16 == 0 ? 300 : 1);
            });
            fill(c.v,
                 [&](const Extents&) { return std::clamp(r.v_size * random.normal(), -6e4, 6e4); });
            const Results exact = compute(c, "reference", recipe);
            const Distance emulated =
                distance(compute(c, "emulate", recipe, [](Problem& p) { p.key_tile = 64; }), exact);
            const Distance got = distance(compute(c, device(), recipe), exact);
            EXPECT_TRUE(got.same_kind && emulated.same_kind) << recipe << ' ' << (&r - ranges);
            EXPECT_LE(got.relative(), 1.05 * emulated.relative() + 1e-6)
                << recipe << ' ' << (&r - ranges);
            EXPECT_LE(got.lse, 1.05 * emulated.lse + 1e-4) << recipe << ' ' << (&r - ranges);
        }
    }
}

}  // namespace
}  // namespace quatt::test
