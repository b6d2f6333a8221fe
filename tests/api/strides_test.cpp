// Views: the same numbers at other addresses give the same bits.
#include <gtest/gtest.h>

#include "support/attention.hpp"
#include "support/layouts.hpp"

namespace quatt::test {
namespace {

class Strides : public testing::TestWithParam<Way> {};
INSTANTIATE_TEST_SUITE_P(Ways, Strides, testing::ValuesIn(all_ways()), name_of);

// Few tokens, but offsets far beyond 32 bits.
TEST_P(Strides, TokensFarApart) {
    constexpr std::int64_t kStride = std::int64_t{1} << 20;
    const Way way = GetParam();
    if (way.is("emulate") && !thinned(1)) {
        GTEST_SKIP() << "the cpu device reads likewise";
    }
    for (const std::int64_t n : {2050, 4100}) {
        if (n == 4100 && !thinned(1)) {
            continue;
        }
        Spec s;
        s.tokens_q = s.tokens_k = n;
        s.heads_q = 1;
        s.dim = 64;
        s.out = QUATT_BF16;
        s.left = 70;  // a band: every token is read, in little time
        s.right = 10;
        Case c(s);
        expect_tokens_apart_change_nothing(c, way, kStride);
    }
}

TEST_P(Strides, OfExtentOneAreIgnored) {
    const Way way = GetParam();
    Spec s;
    s.heads_q = s.heads_kv = 1;
    s.tokens_q = 1;
    s.tokens_k = 1;
    s.dim = 1;
    s.descale_rank = 2;
    s.q = s.k = s.v = QUATT_E4M3;
    s.kv_lens = {1};
    s.sink = {.5f};
    Case c(s);
    const Bits plain = bits_of(c, way);
    for (const std::int64_t odd :
         {std::int64_t{0}, std::int64_t{-1}, std::int64_t{3}, std::int64_t{123456789},
          std::numeric_limits<std::int64_t>::max(), std::numeric_limits<std::int64_t>::min()}) {
        EXPECT_EQ(bits_of(c, way,
                          [&](Problem& p) {
                              for (quatt_tensor* t :
                                   {&p.tensors.q, &p.tensors.k, &p.tensors.v, &p.tensors.out,
                                    &p.tensors.lse, &p.tensors.kv_lens, &p.tensors.q_descale,
                                    &p.tensors.k_descale, &p.tensors.v_descale, &p.tensors.sink}) {
                                  std::fill(t->stride, t->stride + 4, odd);
                              }
                          }),
                  plain)
            << odd;
    }
    // One batch item, many of the rest.
    s = {};
    s.tokens_q = 5;
    s.tokens_k = 9;
    s.heads_kv = 1;
    Case d(s);
    const Bits many = bits_of(d, way);
    EXPECT_EQ(bits_of(d, way,
                      [](Problem& p) {
                          p.tensors.q.stride[0] = -77;
                          p.tensors.k.stride[0] = p.tensors.k.stride[2] = 1;
                          p.tensors.v.stride[2] = 0;
                          p.tensors.out.stride[0] = 0;
                          p.tensors.lse.stride[0] = 0;
                      }),
              many);
}

// A plan made for one stride of such an axis runs with another.
TEST(PlanLayouts, OfExtentOneAreIgnored) {
    Spec s;
    s.tokens_q = s.tokens_k = 3;
    Case c(s);
    Problem p = c.problem();
    const auto plan = Plan::create(p, "cpu");
    ASSERT_TRUE(plan.ok());
    Workspace w(plan->workspace_bytes());
    p.tensors.q.stride[0] = 99;
    p.tensors.k.stride[2] = -1;
    EXPECT_TRUE(plan->run(p.tensors, w.span()).ok());
    p.tensors.q.stride[2] = 99;
    EXPECT_FALSE(plan->run(p.tensors, w.span()).ok());
}

TEST_P(Strides, ZeroSharesInputsAmongHeadsItemsAndTokens) {
    const Way way = GetParam();
    for (const int axis : {0, 1, 2, 3}) {
        Spec s;
        s.batch = 3;
        s.tokens_q = 6;
        s.tokens_k = 11;
        s.heads_q = 4;
        s.heads_kv = 4;
        s.input_strides = [&](const Extents& e) {
            Extents strides = contiguous_strides(e);
            strides[static_cast<std::size_t>(axis)] = 0;
            return strides;
        };
        Case shared(s);
        s.input_strides = {};
        Case copied(s);
        for (const auto& [from, to] :
             {std::pair{&shared.q, &copied.q}, {&shared.k, &copied.k}, {&shared.v, &copied.v}}) {
            copy_codes(*to, from->view());
        }
        EXPECT_EQ(bits_of(shared, way), bits_of(copied, way)) << "axis " << axis;
    }
}

TEST_P(Strides, AnyOrderGapsAndDirection) {
    const Way way = GetParam();
    for (const bool packed : {false, true}) {
        Spec s;
        s.packed = packed;
        s.batch = 2;
        s.tokens_q = 6;
        s.tokens_k = 70;
        s.heads_q = 4;
        s.heads_kv = 2;
        s.dim = 12;
        s.dim_v = 10;
        if (packed) {
            s.q_lens = {2, 4};
            s.k_lens = {30, 40};
        }
        Case plain(s);
        const Bits bits = bits_of(plain, way);
        for (int way_of_strides = 0; way_of_strides < 4; way_of_strides++) {
            const Strider strider = [&](const Extents& e) {
                Extents strides(e.size());
                std::int64_t step = way_of_strides == 0 ? 3 : 1;
                for (std::size_t n = 0; n < e.size(); n++) {
                    const std::size_t i =
                        way_of_strides == 2 ? n : e.size() - 1 - n;  // 2: channels are outermost
                    strides[i] = way_of_strides == 3 && i % 2 == 1 ? -step : step;
                    step = step * e[i] + (way_of_strides == 1 ? 5 : 0);
                }
                return strides;
            };
            s.input_strides = strider;
            s.output_strides = {};
            Case in(s);
            EXPECT_EQ(bits_of(in, way), bits) << "inputs, " << way_of_strides;
            s.input_strides = {};
            s.output_strides = strider;
            Case out(s);
            EXPECT_EQ(bits_of(out, way), bits) << "out, " << way_of_strides;
            EXPECT_TRUE(out.out.surroundings_intact());
        }
    }
}

// Bases aligned to no more than their elements, and to 2, 4, 8 and 16 bytes.
TEST_P(Strides, Alignments) {
    const Way way = GetParam();
    for (const quatt_dtype dtype : {QUATT_F32, QUATT_BF16, QUATT_F16, QUATT_E4M3}) {
        Spec s;
        s.tokens_q = 5;
        s.tokens_k = 40;
        s.dim = 13;
        s.q = s.k = s.v = dtype;
        s.out = dtype == QUATT_E4M3 ? QUATT_BF16 : dtype;
        Case aligned(s);
        const Bits bits = bits_of(aligned, way);
        for (const std::size_t misalign : {1, 2, 3, 4, 8, 16, 20, 63}) {
            if (misalign % quatt_dtype_bytes(dtype) == 0 &&
                misalign % quatt_dtype_bytes(s.out) == 0) {
                s.misalign_bytes = misalign;
                Case c(s);
                EXPECT_EQ(bits_of(c, way), bits) << quatt_dtype_name(dtype) << " at " << misalign;
            }
        }
    }
}

// ---- views of one buffer ----------------------------------------------------------------------

// q, k and v (and out) as slots of one tensor; `slot_axis` is where the slots are in it.
struct Fused {
    Buffer buffer;
    int slot_axis;

    [[nodiscard]] quatt_tensor slot(std::int64_t i) {
        return without_axis(narrowed4(i), slot_axis);
    }

private:
    // NOTE: a Buffer has at most four axes, so the batch is made of fused tokens: [B*N, slots, H,
    // D] read as [B,N,H,D].
    [[nodiscard]] quatt_tensor narrowed4(std::int64_t i) {
        return narrowed(buffer.view(), slot_axis, i, 1);
    }
};

quatt_tensor with_batch(const quatt_tensor& t, std::int64_t batch) {  // [B*N,H,D] -> [B,N,H,D]
    quatt_tensor x = t;
    x.rank = 4;
    for (int i = 3; i > 0; i--) {
        x.extent[i] = t.extent[i - 1];
        x.stride[i] = t.stride[i - 1];
    }
    x.extent[0] = batch;
    x.extent[1] /= batch;
    x.stride[0] = x.extent[1] * x.stride[1];
    return x;
}

TEST_P(Strides, FusedBuffers) {
    constexpr std::int64_t kBatch = 2, kTokens = 9, kHeads = 3, kDim = 10, kSlots = 4;
    const Way way = GetParam();
    for (const int slot_axis : {1, 2}) {  // [B,N,slots,H,D] and [B,N,H,slots,D]
        const Extents e = slot_axis == 1 ? Extents{kBatch * kTokens, kSlots, kHeads, kDim}
                                         : Extents{kBatch * kTokens, kHeads, kSlots, kDim};
        Fused fused{Buffer(QUATT_BF16, e), slot_axis};
        Random random(5);
        fused.buffer.set_normal(random);
        const auto slot = [&](std::int64_t i) { return with_batch(fused.slot(i), kBatch); };

        // The contiguous copy.
        Spec s;
        s.batch = kBatch;
        s.tokens_q = s.tokens_k = kTokens;
        s.heads_q = s.heads_kv = kHeads;
        s.dim = kDim;
        s.out = QUATT_BF16;
        Case c(s);
        for (const auto& [i, to] : {std::pair{0, &c.q}, {1, &c.k}, {2, &c.v}}) {
            copy_codes(*to, slot(i));
        }
        const Bits bits = bits_of(c, way);

        Problem p = c.problem(way);
        p.tensors.q = slot(0);
        p.tensors.k = slot(1);
        p.tensors.v = slot(2);
        Status st = run(p, way.device);
        ASSERT_TRUE(st.ok()) << st.message();
        EXPECT_EQ(c.out.codes(), bits.out);

        // Out beside its inputs: no byte in common, although the ranges interleave.
        p.tensors.out = slot(3);
        const Buffer before = fused.buffer;
        st = run(p, way.device);
        ASSERT_TRUE(st.ok()) << st.message();
        EXPECT_EQ(codes_of(p.tensors.out), bits.out);
        Fused old{before, slot_axis};
        for (const std::int64_t i : {0, 1, 2}) {
            EXPECT_EQ(codes_of(slot(i)), codes_of(with_batch(old.slot(i), kBatch)))
                << "slot " << i << " was written";
        }
        EXPECT_TRUE(fused.buffer.surroundings_intact());

        // The fourth slot of only some heads; a slot of q; one element too far.
        for (const std::int64_t i : {0, 1, 2}) {
            p.tensors.out = slot(i);
            const auto refused = query(p, way.device);
            ASSERT_FALSE(refused.ok());
            EXPECT_NE(refused.status().message().find("out overlaps"), std::string::npos)
                << refused.status().message();
        }
        p.tensors.out = slot(3);
        p.tensors.out.data = static_cast<std::byte*>(p.tensors.out.data) - 2;
        EXPECT_FALSE(query(p, way.device).ok()) << "the last channel of v";
    }
}

// Two calls may write different heads of one buffer; a call's own lse may lie behind its out.
TEST(SharedBuffers, OutAndLseOfOneBlock) {
    Spec s;
    s.tokens_q = s.tokens_k = 4;
    Case c(s);
    Problem p = c.problem();
    std::vector<float> block(4 * 2 * 32 + 8);
    p.tensors.out = Tensor(block.data(), DType::f32, {1, 4, 2, 32});
    p.tensors.lse = Tensor(block.data() + 4 * 2 * 32, DType::f32, {1, 2, 4});
    const Status st = run(p, "cpu");
    EXPECT_TRUE(st.ok()) << st.message();
    p.tensors.lse.data = block.data() + 4 * 2 * 32 - 1;
    EXPECT_FALSE(query(p, "cpu").ok());
}

// Inputs may be the same memory.
TEST_P(Strides, InputsMayBeShared) {
    const Way way = GetParam();
    Spec s;
    s.tokens_q = s.tokens_k = 20;
    s.heads_kv = 2;
    Case c(s);
    const auto share = [](Problem& p) { p.tensors.k = p.tensors.v = p.tensors.q; };
    const Bits shared = bits_of(c, way, share);
    Case copies(s);
    copies.k = copies.q;
    copies.v = copies.q;
    EXPECT_EQ(bits_of(copies, way), shared);
}

}  // namespace
}  // namespace quatt::test
