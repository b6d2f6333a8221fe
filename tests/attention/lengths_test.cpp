// Segments and lengths: padding that must not matter, tails, bad lengths on the device, NaN that
// stays where it belongs, and the same bits alone as in company.
#include <gtest/gtest.h>

#include "attention/harness.hpp"

namespace quatt::test {
namespace {

QUATT_SUBJECTS(Lengths, gpu_subjects());

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kFloatInf = std::numeric_limits<float>::infinity();

// Rows past kv_lens, the capacity behind the last segment, gaps between rows and
// heads, all of NaN, infinity or 1e30.
TEST_P(Lengths, PaddingDoesNotMatter) {
    Thinner thin;
    for (const char* recipe : recipes()) {
        for (const std::int64_t dim : {64, 100}) {
            for (const int layout : {0, 1, 2}) {
                // 16 bit: wide heads read in place, others copied; each kind of padding once.
                if (thin.skip() || (!is(recipe, "fp8") && dim != 64 && layout == 0)) {
                    continue;
                }
                Spec s = spec_of(recipe);
                s.dim = dim;
                s.heads_q = 2;
                s.heads_kv = 2;
                s.packed = layout == 1;
                s.tokens_q = 90;
                s.tokens_k = 150;
                if (s.packed) {
                    s.q_lens = {33, 0, 20};
                    s.k_lens = {70, 1, 40};
                    s.kv_lens = {65, 1, 0};
                } else {
                    s.batch = 2;
                    s.tokens_q = 20;
                    s.kv_lens = {100, 129};
                }
                if (layout == 2) {  // rows of heads that are not next to each other
                    s.input_strides = [](const Extents& e) {
                        return Extents{e[1] * e[2] * (e[3] + 24), e[2] * (e[3] + 24), e[3] + 24, 1};
                    };
                }
                Case c = make_case(s);
                const Results want = compute(c, device(), recipe);
                for (const float poison : {kNaN, dim == 64 ? 1e30f : -1e30f, kFloatInf}) {
                    if (std::isinf(poison) && layout != 1) {
                        continue;
                    }
                    for (Buffer* b : {&c.k, &c.v}) {
                        const std::int64_t ends[] = {s.kv_lens[0], s.packed ? 71 : s.kv_lens[1]};
                        for_each_index(extents_of(b->view()), [&](const Extents& i) {
                            // Packed: segment 0 ends at 65 of 70, 1 is key 70, 2 has none.
                            const bool real =
                                s.packed ? i[0] < 65 || i[0] == 70 : i[1] < ends[i[0]];
                            if (!real) {
                                b->set_one(i, poison);
                            }
                        });
                    }
                    for (std::int64_t row = 53; s.packed && row < 90; row++) {
                        for (std::int64_t h = 0; h < 2; h++) {
                            for (std::int64_t d = 0; d < dim; d++) {
                                c.q.set_one({row, h, d}, poison);
                            }
                        }
                    }
                    for (Buffer* b : {&c.q, &c.k, &c.v}) {
                        b->surround(poison);
                    }
                    EXPECT_EQ(compute(c, device(), recipe).bits, want.bits)
                        << recipe << ", D = " << dim << ", layout " << layout << ", " << poison;
                }
            }
        }
    }
}

// Rows past the last segment: untouched, or zeroed on request; in every layout of out.
TEST_P(Lengths, TailsAreUntouchedOrZeroed) {
    for (const char* recipe : recipes()) {
        for (const bool zero : {false, true}) {
            for (const quatt_dtype out : {QUATT_F32, QUATT_BF16}) {
                for (const bool backwards : {false, true}) {
                    Spec s = spec_of(recipe);
                    s.packed = true;
                    s.q_lens = {33, 0, 20};
                    s.tokens_q = s.tokens_k = 70;
                    s.zero_tail = zero;
                    s.out = out;
                    if (backwards) {
                        s.output_strides = [](const Extents& e) {
                            return Extents{-e[1] * e[2] * 2, 2 * e[2], 2};
                        };
                    }
                    Case c = make_case(s);
                    const Results r = compute(c, device(), recipe);
                    const std::uint32_t untouched = out == QUATT_F32 ? 0xFFFFFFFFu : 0xFFFFu;
                    for_each_index(extents_of(c.out.view()), [&](const Extents& i) {
                        const std::uint32_t code = code_at(c.out.view(), offset(c.out.view(), i));
                        if (i[0] >= 53) {
                            ASSERT_EQ(code, zero ? 0 : untouched) << i[0];
                        } else {
                            ASSERT_NE(code, untouched);
                        }
                    });
                    for_each_index(extents_of(c.lse.view()), [&](const Extents& i) {
                        if (i[1] >= 53) {
                            ASSERT_EQ(
                                code_at(c.lse.view(), offset(c.lse.view(), i)),
                                zero ? std::bit_cast<std::uint32_t>(-kFloatInf) : 0xFFFFFFFFu);
                        }
                    });
                }
            }
        }
    }
}

// Lengths that nobody could check before the launch: from the first bad segment on all are empty,
// the status word says so, and the executor sees no access outside the tensors.
struct BadLengths {
    const char* name;
    std::vector<std::int32_t> cu_q, cu_k, kv_lens;  // empty: as sound
    std::int32_t status;
    std::int64_t good;  // segments before the first bad one; kv_lens: which segment is bad
};

TEST_P(Lengths, BadOnesAreEmptySegments) {
    Thinner thin;
    constexpr std::int32_t kMax = std::numeric_limits<std::int32_t>::max(),
                           kMin = std::numeric_limits<std::int32_t>::min();
    const std::vector<std::int32_t> q = {0, 10, 30, 50}, k = {0, 70, 75, 140};
    const BadLengths all[] = {
        {"sound", {}, {}, {}, 0, 3},
        {"negative", {0, -10, 30, 50}, {}, {}, 1, 0},
        {"from 5", {5, 10, 30, 50}, {}, {}, 1, 0},
        {"from -1", {-1, 10, 30, 50}, {}, {}, 1, 0},
        {"falling", {0, 10, 5, 50}, {}, {}, 1, 1},
        {"above the capacity", {0, 10, 30, 81}, {}, {}, 1, 2},
        {"far above the capacity", {0, 10, kMax, kMax}, {}, {}, 1, 1},
        {"from the least to the largest", {kMin, kMax, kMin, kMax}, {}, {}, 1, 0},
        {"the last lower than the rest", {0, 40, 20, 30}, {}, {}, 1, 1},
        {"keys negative", {}, {0, 70, -75, 140}, {}, 1, 1},
        {"keys from 64", {}, {64, 70, 75, 140}, {}, 1, 0},
        {"keys falling", {}, {0, 70, 75, 74}, {}, 1, 2},
        {"keys above the capacity", {}, {0, 161, 161, 161}, {}, 1, 0},
        {"keys far above the capacity", {}, {0, 70, kMax, kMin}, {}, 1, 1},
        {"kv_lens negative", {}, {}, {70, -1, 65}, 2, 1},
        {"kv_lens too large", {}, {}, {71, 5, 65}, 2, 0},
        {"kv_lens far too large", {}, {}, {70, 5, kMax}, 2, 2},
        {"both", {0, 10, 30, 81}, {}, {-5, 5, 65}, 3, -1},
        {"bad kv_lens of a bad segment", {0, 10, 5, 50}, {}, {70, -5, kMin}, 1, 1},
    };
    for (const char* recipe : recipes()) {
        for (const bool zero_tail : {false, true}) {
            Spec s = spec_of(recipe);
            s.packed = true;
            s.heads_q = 1;
            s.tokens_q = 80;
            s.tokens_k = 160;
            s.q_lens = {10, 20, 20};
            s.k_lens = {70, 5, 65};
            s.zero_tail = zero_tail;
            for (const BadLengths& bad : all) {
                if (thin.skip()) {
                    continue;
                }
                // 16 bit: each with or without.
                if (!is(recipe, "fp8") && ((&bad - all) % 2 == 1) != zero_tail) {
                    continue;
                }
                SCOPED_TRACE(std::string(recipe) + ", " + bad.name);
                Case c = make_case(s);
                // The sound segments of the same data, each alone.
                const std::vector<std::int32_t>& cu_q = bad.cu_q.empty() ? q : bad.cu_q;
                const std::vector<std::int32_t>& cu_k = bad.cu_k.empty() ? k : bad.cu_k;
                c.cu_q.set_integers(cu_q);
                c.cu_k.set_integers(cu_k);
                if (!bad.kv_lens.empty()) {
                    c.kv_lens = Buffer(QUATT_I32, {3}, {2});
                    c.kv_lens.set_integers(bad.kv_lens);
                }
                std::int32_t status = 77;
                const std::int64_t one = 1;
                (void)compute(c, device(), recipe, [&](Problem& p) {
                    p.tensors.status_word = quatt_tensor_contiguous(&status, QUATT_I32, 1, &one);
                });
                EXPECT_EQ(status, bad.status);
                std::vector<bool> owned(80, false);
                for (std::int64_t i = 0; i < 3; i++) {
                    const auto u = static_cast<std::size_t>(i);
                    const bool is_sound =
                        bad.good >= 0 ? (bad.status == 2 ? i != bad.good : i < bad.good) : i == 1;
                    if (!is_sound) {
                        continue;
                    }
                    Spec alone = s;
                    alone.q_lens = alone.k_lens = {};
                    alone.zero_tail = false;
                    alone.tokens_q = cu_q[u + 1] - cu_q[u];
                    alone.tokens_k = bad.kv_lens.empty() || bad.status == 1 ? cu_k[u + 1] - cu_k[u]
                                                                            : bad.kv_lens[u];
                    Case a(alone);
                    const auto copy = [&](Buffer& to, const Buffer& from, std::int64_t first) {
                        const quatt_tensor t = narrowed(from.view(), 0, first, to.view().extent[0]);
                        for_each_index(extents_of(t), [&](const Extents& x) {
                            to.set_code(x, code_at(t, offset(t, x)));
                        });
                    };
                    copy(a.q, c.q, cu_q[u]);
                    copy(a.k, c.k, cu_k[u]);
                    copy(a.v, c.v, cu_k[u]);
                    const Results want = compute(a, device(), recipe);
                    EXPECT_EQ(codes_of(narrowed(c.out.view(), 0, cu_q[u], alone.tokens_q)),
                              want.bits.out)
                        << "segment " << i;
                    EXPECT_EQ(codes_of(narrowed(c.lse.view(), 1, cu_q[u], alone.tokens_q)),
                              want.bits.lse)
                        << "segment " << i;
                    std::fill_n(owned.begin() + cu_q[u], alone.tokens_q, true);
                }
                // Nobody else's row is written; with bad cu_seqlens no row is known to be past
                // them.
                const bool zeroed = zero_tail && (bad.status & 1) == 0;
                for (std::int64_t row = 0; row < 80; row++) {
                    const auto codes = codes_of(narrowed(c.out.view(), 0, row, 1));
                    const bool is_tail = zeroed && row >= 50;
                    if (!owned[static_cast<std::size_t>(row)]) {
                        EXPECT_TRUE(std::all_of(codes.begin(), codes.end(), [&](std::uint32_t x) {
                            return x == (is_tail ? 0 : 0xFFFFFFFFu);
                        })) << row;
                    }
                }
            }
        }
    }
}

// Lengths in memory backwards, and a stride between them (Case has 2).
TEST_P(Lengths, BackwardsInMemory) {
    for (const char* recipe : recipes()) {
        Spec s = spec_of(recipe);
        s.packed = true;
        s.q_lens = {10, 20};
        s.k_lens = {70, 5};
        s.kv_lens = {66, 5};
        Case c = make_case(s);
        const Results want = compute(c, device(), recipe);
        const auto turn = [](Buffer& b, const std::vector<std::int32_t>& values) {
            b = Buffer(QUATT_I32, extents_of(b.view()), {-3});
            b.set_integers(values);
        };
        turn(c.cu_q, {0, 10, 30});
        turn(c.cu_k, {0, 70, 75});
        turn(c.kv_lens, {66, 5});
        EXPECT_EQ(compute(c, device(), recipe).bits, want.bits);
    }
}

// An item of a batch and a segment of a stream give the bits that they give alone
// and so does a query head.
TEST_P(Lengths, AloneAsInABatch) {
    Thinner thin;
    for (const char* recipe : recipes()) {
        for (const std::int64_t dim : {64, 90}) {
            for (const bool packed : {true, false}) {
                // 16 bit: one of both layouts at each head size.
                if (thin.skip() || (!is(recipe, "fp8") && (dim == 64) == packed)) {
                    continue;
                }
                Spec s = spec_of(recipe);
                s.dim = dim;
                s.packed = packed;
                s.heads_kv = 2;
                s.heads_q = 4;
                s.causal = true;
                s.batch = 3;
                s.tokens_q = 35;
                s.tokens_k = 100;
                if (packed) {
                    s.q_lens = {35, 1, 35};
                    s.k_lens = {100, 0, 130};
                }
                Case c = make_case(s);
                const Bits all = bits_of(c, way(recipe));
                const Buffer whole_out = c.out, whole_lse = c.lse;
                const std::int64_t first_q = packed ? 36 : 0, first_k = packed ? 100 : 0,
                                   last_k = packed ? 130 : 100;
                const int axis = packed ? 0 : 1;
                const auto cut = [&](quatt_tensor t, std::int64_t first, std::int64_t tokens,
                                     std::int64_t head) {
                    t = packed ? t : narrowed(t, 0, 2, 1);
                    return narrowed(narrowed(t, axis, first, tokens), axis + 1, head,
                                    head == 3 ? 1 : 2);
                };
                // Item 2; its query heads 2 and 3, and then head 3, with their KV head 1.
                for (const std::int64_t head : {2, 3}) {
                    quatt_tensor out{}, lse{};
                    c.reset_outputs();
                    (void)bits_of(c, way(recipe), [&](Problem& p) {
                        p.tensors.q = cut(p.tensors.q, first_q, 35, head);
                        p.tensors.out = out = cut(p.tensors.out, first_q, 35, head);
                        p.tensors.k =
                            narrowed(cut(p.tensors.k, first_k, last_k, 1), axis + 1, 0, 1);
                        p.tensors.v =
                            narrowed(cut(p.tensors.v, first_k, last_k, 1), axis + 1, 0, 1);
                        lse = packed ? p.tensors.lse : narrowed(p.tensors.lse, 0, 2, 1);
                        lse = narrowed(narrowed(lse, packed ? 1 : 2, first_q, 35), packed ? 0 : 1,
                                       head, head == 3 ? 1 : 2);
                        p.tensors.lse = lse;
                        p.tensors.cu_seqlens_q = p.tensors.cu_seqlens_k = {};
                    });
                    // The same part of the whole.
                    const auto same_place = [](quatt_tensor part, Buffer& of, const Buffer& whole) {
                        part.data = static_cast<std::byte*>(whole.view().data) +
                                    (static_cast<std::byte*>(part.data) -
                                     static_cast<std::byte*>(of.view().data));
                        return codes_of(part);
                    };
                    EXPECT_EQ(codes_of(out), same_place(out, c.out, whole_out))
                        << recipe << ' ' << dim << ' ' << packed << ' ' << head;
                    EXPECT_EQ(codes_of(lse), same_place(lse, c.lse, whole_lse))
                        << recipe << ' ' << dim << ' ' << packed << ' ' << head;
                }
                EXPECT_EQ(bits_of(c, way(recipe)), all);  // and again, the same
            }
        }
    }
}

// A Q value that is not finite spoils its row at most; a K or V value,
// rows of its head (with its group of query heads) and segment.
TEST_P(Lengths, NaNStaysWhereItBelongs) {
    Thinner thin;
    for (const char* recipe : recipes()) {
        for (const std::int64_t dim : {64, 40}) {
            Spec s = spec_of(recipe);
            s.packed = true;
            s.dim = dim;
            s.heads_kv = 2;
            s.heads_q = 4;
            s.q_lens = {20, 17, 20};
            s.k_lens = {70, 66, 65};
            Case c = make_case(s);
            const Results clean = compute(c, device(), recipe);
            const auto row_bits = [&](const Bits& b, std::int64_t row, std::int64_t head) {
                const auto at = static_cast<std::size_t>((row * 4 + head) * dim);
                std::vector<std::uint32_t> codes(
                    b.out.begin() + static_cast<std::ptrdiff_t>(at),
                    b.out.begin() + static_cast<std::ptrdiff_t>(at) + dim);
                codes.push_back(b.lse[static_cast<std::size_t>(head * 57 + row)]);
                return codes;
            };
            for (const float value : {kNaN, dim == 64 ? kFloatInf : -kFloatInf}) {
                for (const int which : {0, 1, 2}) {
                    if (thin.skip()) {
                        continue;
                    }
                    Buffer& b = which == 0 ? c.q : which == 1 ? c.k : c.v;
                    const Buffer before = b;
                    // Row 3 or key 65 of segment 1.
                    b.set_one({which == 0 ? 23 : 70 + 65, 1, 5}, value);
                    const Results got = compute(c, device(), recipe);
                    bool any = false;
                    for (std::int64_t row = 0; row < 57; row++) {
                        for (std::int64_t head = 0; head < 4; head++) {
                            const bool may = which == 0 ? row == 23 && head == 1
                                                        : row >= 20 && row < 37 && head >= 2;
                            const bool same =
                                row_bits(got.bits, row, head) == row_bits(clean.bits, row, head);
                            EXPECT_TRUE(may || same)
                                << recipe << ", operand " << which << ", " << value << ", row "
                                << row << ", head " << head;
                            any = any || !same;
                        }
                    }
                    EXPECT_TRUE(any);
                    b = before;
                }
            }
        }
    }
}

// More queries than keys under a causal mask: the first rows see none, whatever the mean and scale
// of V are. (V itself of 16 bits is multiplied with P = 0, and makes NaN of rows of its head.)
TEST_P(Lengths, RowsWithoutKeysAreZeroBesideNaN) {
    for (const char* recipe : recipes()) {
        if (!is(recipe, "fp8")) {
            continue;
        }
        Spec s = spec_of(recipe);
        s.heads_q = 2;
        s.tokens_q = 40;
        s.tokens_k = 10;
        s.causal = true;
        Case c = make_case(s);
        c.v.set_one({0, 3, 1, 5}, kNaN);
        const Results got = compute(c, device(), recipe);
        for (std::size_t row = 0; row < 30; row++) {
            for (std::size_t head = 0; head < 2; head++) {
                for (std::size_t d = 0; d < 64; d++) {
                    EXPECT_EQ(got.bits.out[(row * 2 + head) * 64 + d], 0u)
                        << recipe << ", row " << row << ", head " << head << ", channel " << d;
                }
            }
        }
    }
}

}  // namespace
}  // namespace quatt::test
