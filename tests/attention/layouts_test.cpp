// The same numbers at other addresses give the same bits: views, strides, alignments, dtypes of
// out.
#include <gtest/gtest.h>

#include "attention/harness.hpp"
#include "support/layouts.hpp"

namespace quatt::test {
namespace {

QUATT_SUBJECTS(Layouts, gpu_subjects());

// What a layout of the inputs may be.
struct Placing {
    const char* name;
    Strider strides;
    std::size_t misalign_bytes = 0;
};

// Contiguous but for one axis from the end that is `gap` elements wider.
Strider with_gap(std::size_t axis, std::int64_t gap) {
    return [=](const Extents& e) {
        Extents s(e.size());
        std::int64_t step = 1;
        for (std::size_t i = e.size(); i-- > 0;) {
            s[i] = step;
            step = step * std::max<std::int64_t>(e[i], 1) + (i + axis == e.size() ? gap : 0);
        }
        return s;
    };
}
// All strides times n.
Strider spread(std::int64_t n) {
    return [=](const Extents& e) {
        Extents s = contiguous_strides(e);
        std::for_each(s.begin(), s.end(), [=](std::int64_t& x) { x *= n; });
        return s;
    };
}
// One axis backwards.
Strider backwards(std::size_t axis) {
    return [=](const Extents& e) {
        Extents s = contiguous_strides(e);
        s[e.size() - axis] = -s[e.size() - axis];
        return s;
    };
}
// Axes in another order in memory.
Strider heads_out(const Extents& e) {
    Extents s = contiguous_strides(e);
    const std::size_t n = e.size();
    s[n - 3] = e[n - 1];
    s[n - 2] = e[n - 1] * e[n - 3];
    return [=](const Extents&) { return s; };
}

std::vector<Placing> placings() {
    return {
        {"bases aligned to 8", {}, 8},
        {"bases aligned to 4", {}, 4},
        {"bases aligned to 2", {}, 2},
        {"a gap of 1 behind each row", with_gap(1, 1)},
        {"a gap of 4 behind each row", with_gap(1, 4)},
        {"a gap of 8 behind each row", with_gap(1, 8)},
        {"a gap of 1 behind each token", with_gap(2, 1)},
        {"a gap of 3 behind each item", with_gap(3, 3)},
        {"channels 2 apart", spread(2)},
        {"channels 3 apart, bases aligned to 2", spread(3), 6},
        {"heads first", [](const Extents& e) { return heads_out(e)(e); }},
        {"channels backwards", backwards(1)},
        {"heads backwards", backwards(2)},
        {"tokens backwards", backwards(3)},
    };
}

Case placed(const Spec& spec, const Case& plain, const Placing& in, const Placing& out) {
    Spec s = spec;
    s.input_strides = in.strides;
    s.output_strides = out.strides;
    s.misalign_bytes = in.misalign_bytes;
    Case c(s);
    copy_codes(c.q, plain.q.view());
    copy_codes(c.k, plain.k.view());
    copy_codes(c.v, plain.v.view());
    if (out.misalign_bytes != in.misalign_bytes) {
        const quatt_tensor o = c.out.view();
        c.out = Buffer(o.dtype, extents_of(o), out.strides ? out.strides(extents_of(o)) : Extents{},
                       out.misalign_bytes);
    }
    return c;
}

TEST_P(Layouts, InputsOfEveryStrideAndAlignment) {
    int n = 0, combination = 0;
    for (const char* recipe : recipes()) {
        for (const std::int64_t dim : {64, 128, 40, 33}) {
            Spec s = spec_of(recipe);
            s.packed = combination % 2 == 1;
            s.batch = 2;
            s.dim = dim;
            s.heads_kv = 2;
            s.heads_q = 2;
            s.tokens_q = 10;
            s.tokens_k = 20;
            if (s.packed) {
                s.q_lens = {3, 7};
                s.k_lens = {1, 66};
            }
            Case plain = make_case(s);
            const Results want = compute(plain, device(), recipe);
            ASSERT_TRUE(equals_emulation(plain, recipe));
            n = combination++ / 2;
            for (const Placing& p : placings()) {
                if (n++ % 2 == 0 && taken(n / 2)) {  // half of them
                    Case c = placed(s, plain, p, {});
                    EXPECT_EQ(compute(c, device(), recipe).bits, want.bits)
                        << recipe << ", D = " << dim << ", " << p.name;
                }
            }
        }
    }
}

// out is the same with and without an LSE, for which Q is packed elsewhere, and where one of the
// inputs alone cannot be read 16 bytes at a time.
TEST_P(Layouts, OutWithoutAnLse) {
    for (const char* recipe : recipes()) {
        for (const std::int64_t dim : {64, 128}) {
            Spec s = spec_of(recipe);
            s.packed = true;
            s.dim = dim;
            s.heads_q = 4;
            s.heads_kv = 2;
            s.q_lens = {3, 0, 140};
            s.k_lens = {130, 5, 66};
            Case plain = make_case(s);
            const Results want = compute(plain, device(), recipe);
            for (const int narrow : {-1, 0, 1, 2}) {
                Case c = placed(s, plain, {"bases aligned to 2", {}, 2}, {});
                c.q = narrow == 0 ? c.q : plain.q;
                c.k = narrow == 1 ? c.k : plain.k;
                c.v = narrow == 2 ? c.v : plain.v;
                const Results got =
                    compute(c, device(), recipe, [](Problem& p) { p.tensors.lse = {}; });
                EXPECT_EQ(got.bits.out, want.bits.out)
                    << recipe << ", D = " << dim << ", " << narrow;
            }
        }
    }
}

// The 16-bit kernels read aligned inputs of 64 and 128 channels where they are; the plan needs no
// workspace for copies then.
TEST_P(Layouts, CopiesOnlyWhereTheyAreNeeded) {
    for (const char* recipe : {"bf16", "f16"}) {
        if (!takes(recipe)) {
            continue;
        }
        const auto bytes = [&](std::int64_t dim, const Placing& p) {
            Spec s = spec_of(recipe);
            s.dim = dim;
            s.tokens_q = s.tokens_k = 70;
            s.out = s.q;
            s.input_strides = p.strides;
            s.misalign_bytes = p.misalign_bytes;
            Case c(s);
            Result<Plan> plan = Plan::create(c.problem(way(recipe)), device());
            return plan.value().workspace_bytes();
        };
        const std::size_t none = bytes(64, {});
        EXPECT_LT(none, 1024u);
        EXPECT_EQ(bytes(128, {}), none);
        EXPECT_EQ(bytes(64, {"", with_gap(1, 8)}), none);
        EXPECT_EQ(bytes(128, {"", [](const Extents& e) { return heads_out(e)(e); }}), none);
        for (const Placing& p : {Placing{"", {}, 8},
                                 {"", {}, 4},
                                 {"", {}, 2},
                                 {"", with_gap(1, 4)},
                                 {"", spread(2)}}) {
            EXPECT_GT(bytes(64, p), none + 2 * 70 * 64 * 2);
        }
        EXPECT_GT(bytes(72, {}), none);
        EXPECT_GT(bytes(32, {}), none);
    }
}

// A plan without pointers is for aligned ones; it says so when it gets others.
TEST_P(Layouts, LessAlignedThanThePlan) {
    for (const char* recipe : recipes()) {
        Spec s = spec_of(recipe);
        s.tokens_q = s.tokens_k = 9;
        Case plain = make_case(s);
        const Results want = compute(plain, device(), recipe);
        for (const std::size_t misalign : {std::size_t{0}, std::size_t{2}, std::size_t{8}}) {
            Case c = placed(s, plain, {"", {}, misalign}, {});
            Problem p = c.problem(way(recipe));
            const quatt_tensors tensors = p.tensors;
            for (quatt_tensor* t :
                 {&p.tensors.q, &p.tensors.k, &p.tensors.v, &p.tensors.out, &p.tensors.lse}) {
                t->data = nullptr;
            }
            const Result<Plan> plan = Plan::create(p, device());
            ASSERT_TRUE(plan.ok()) << plan.status().message();
            Workspace workspace(plan->workspace_bytes());
            const Status status = plan->run(tensors, workspace.span());
            EXPECT_TRUE(workspace.guards_intact());
            if (misalign == 0 || is(recipe, "fp8")) {  // prep reads narrower
                EXPECT_TRUE(status.ok()) << status.message();
                EXPECT_EQ(results_of(c).bits, want.bits);
            } else {
                EXPECT_EQ(status.code(), QUATT_INVALID_ARGUMENT);
                EXPECT_NE(status.message().find("less aligned than the plan"), std::string::npos)
                    << status.message();
            }
            // The other way round: made for these pointers, run with aligned ones.
            const Result<Plan> cautious = Plan::create(c.problem(way(recipe)), device());
            ASSERT_TRUE(cautious.ok());
            Workspace more(cautious->workspace_bytes());
            plain.reset_outputs();
            EXPECT_TRUE(cautious->run(plain.problem(way(recipe)).tensors, more.span()).ok());
            EXPECT_TRUE(more.guards_intact());
            EXPECT_EQ(results_of(plain).bits, want.bits);
        }
    }
}

// out is the fp32 result rounded once, whatever its dtype and layout; nothing beside it is written.
TEST_P(Layouts, OutOfEveryKind) {
    int n = 0;
    for (const std::int64_t dim : {1, 2, 7, 63, 64, 90, 101, 127, 128}) {
        const char* recipe = recipe_at(dim);
        Spec s = spec_of(recipe);
        s.dim = dim;
        s.batch = 2;
        s.heads_q = 2;
        s.tokens_q = 17;
        s.tokens_k = 20;
        Case plain = make_case(s);
        const Results want = compute(plain, device(), recipe);
        for (const quatt_dtype out : {QUATT_BF16, QUATT_F16, QUATT_F32}) {
            std::vector<float> values(want.out.begin(), want.out.end());
            std::vector<std::uint32_t> codes(values.size());
            const std::size_t size = quatt_dtype_bytes(out);
            for (std::size_t i = 0; i < values.size(); i++) {
                ASSERT_EQ(quatt_convert(&codes[i], out, &values[i], QUATT_F32, 1), QUATT_OK);
            }
            std::vector<Placing> to = placings();
            to.push_back({"contiguous", {}});
            for (const Placing& p : to) {
                // A fifth of them at each head size.
                if (p.misalign_bytes % size != 0 || n++ % 5 != 0 || !taken(n / 5)) {
                    continue;
                }
                Spec other = s;
                other.out = out;
                Case c = placed(other, plain, {}, p);
                const Results got = compute(c, device(), recipe);
                EXPECT_EQ(got.bits.out, codes)
                    << recipe << ", D = " << dim << ", " << quatt_dtype_name(out) << ", " << p.name;
                EXPECT_EQ(got.bits.lse, want.bits.lse);
            }
        }
    }
}

// [B,N,3,H,D] and [B,N,H,3,D] without a copy, out in a fourth place beside them.
TEST_P(Layouts, FusedQkv) {
    Thinner thin;
    constexpr std::int64_t kBatch = 2, kTokens = 67, kHeads = 2;
    for (const char* recipe : recipes()) {
        for (const std::int64_t dim : {64, 128, 36}) {
            for (const bool by_head : {false, true}) {
                if (thin.skip()) {
                    continue;
                }
                Spec s = spec_of(recipe);
                s.batch = kBatch;
                s.heads_q = s.heads_kv = kHeads;
                s.dim = dim;
                s.tokens_q = s.tokens_k = kTokens;
                s.out = s.q;
                Case c = make_case(s);
                const Results want = compute(c, device(), recipe);
                const Extents fused = by_head ? Extents{kBatch, kTokens, kHeads, 4 * dim}
                                              : Extents{kBatch, kTokens, 4 * kHeads, dim};
                Buffer all(s.q, fused);
                const auto view = [&](std::int64_t which) {
                    quatt_tensor t = all.view();
                    t = by_head ? narrowed(t, 3, which * dim, dim)
                                : narrowed(t, 2, which * kHeads, kHeads);
                    return t;
                };
                const std::pair<const Buffer*, std::int64_t> parts[] = {
                    {&c.q, 0}, {&c.k, 1}, {&c.v, 2}};
                for (const auto& [from, which] : parts) {
                    const quatt_tensor t = view(which), f = from->view();
                    for_each_index(extents_of(f), [&](const Extents& i) {
                        const std::uint32_t code = code_at(f, offset(f, i));
                        std::memcpy(static_cast<std::byte*>(t.data) + 2 * offset(t, i), &code, 2);
                    });
                }
                const Bytes before = all.bytes();
                const Bits bits = bits_of(c, way(recipe), [&](Problem& p) {
                    p.tensors.q = view(0);
                    p.tensors.k = view(1);
                    p.tensors.v = view(2);
                    p.tensors.out = view(3);
                });
                EXPECT_EQ(codes_of(view(3)), want.bits.out)
                    << recipe << ' ' << dim << ' ' << by_head;
                EXPECT_EQ(bits.lse, want.bits.lse);
                for (std::int64_t i = 0; i < 3; i++) {  // the inputs beside out are as they were
                    Buffer old = all;
                    old.bytes() = before;
                    quatt_tensor t = old.view();
                    t = by_head ? narrowed(t, 3, i * dim, dim) : narrowed(t, 2, i * kHeads, kHeads);
                    EXPECT_EQ(codes_of(view(i)), codes_of(t));
                }
            }
        }
    }
}

// Stride 0 over heads and batch; strides of extents of 1 are never used.
TEST_P(Layouts, SharedAndUnusedAxes) {
    for (const char* recipe : recipes()) {
        Spec s = spec_of(recipe);
        s.batch = 2;
        s.heads_q = s.heads_kv = 2;
        s.tokens_q = 5;
        s.tokens_k = 70;
        s.input_strides = [](const Extents& e) { return Extents{0, e[3], 0, 1}; };
        Case shared = make_case(s);
        Spec plain = s;
        plain.input_strides = nullptr;
        Case copied = placed(plain, shared, {}, {});
        EXPECT_EQ(compute(shared, device(), recipe).bits, compute(copied, device(), recipe).bits);

        for (const std::int64_t dim : {1, 64}) {
            Spec one = spec_of(recipe);
            one.heads_q = 1;
            one.dim = dim;
            one.tokens_q = one.tokens_k = 1;
            Case c = make_case(one);
            const Bits want = bits_of(c, way(recipe));
            for (const std::int64_t odd : {std::int64_t{0}, std::int64_t{-1}, std::int64_t{3},
                                           std::numeric_limits<std::int64_t>::max(),
                                           std::numeric_limits<std::int64_t>::min()}) {
                EXPECT_EQ(
                    bits_of(c, way(recipe),
                            [&](Problem& p) {
                                for (quatt_tensor* t : {&p.tensors.q, &p.tensors.k, &p.tensors.v,
                                                        &p.tensors.out, &p.tensors.lse}) {
                                    for (int i = 0; i < t->rank; i++) {
                                        t->stride[i] = t->extent[i] > 1 ? t->stride[i] : odd;
                                    }
                                }
                            }),
                    want)
                    << odd;
            }
        }
    }
}

// Tokens so far apart that offsets exceed 32 bits: 70 x 2^26 elements.
TEST_P(Layouts, TokensFarApart) {
    constexpr std::int64_t kStride = std::int64_t{1} << 26, kTokens = 70;
    for (const char* recipe : recipes()) {
        for (const bool packed : {false, true}) {
            Spec s = spec_of(recipe);
            s.packed = packed;
            s.heads_q = 1;
            s.tokens_q = s.tokens_k = kTokens;
            s.out = s.q;
            Case c = make_case(s);
            expect_tokens_apart_change_nothing(c, way(recipe), kStride);
        }
    }
}

}  // namespace
}  // namespace quatt::test
