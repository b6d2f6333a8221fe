// Kernels with a faulty part, of either schedule: each changes the result. (Lost waits, fences and
// barriers: tests/simt.)
#include "warp_mma/instances.hpp"

namespace quatt::test {
namespace {

// ---------------------------------------------------------------- faulty parts

// P that is never made again.
template <class P>
struct NoRedo : P {
    static bool overflows(std::uint32_t, float) { return false; }
    static bool may_overflow(float) { return false; }
    static bool exponent_overflows(float) { return false; }
};

struct NoMask {
    template <std::uint32_t Tiles, class Score>
    static void apply(std::int32_t, Score&&) {}
};

template <class Recipe>
struct WithoutRedo : Whole<Recipe> {
    using Probabilities = NoRedo<typename Recipe::Probabilities>;
};
template <class Recipe>
struct WithoutMask : Whole<Recipe> {
    using Mask = NoMask;
};

// ---------------------------------------------------------------- what shows them

TEST(FaultyParts, WholeOnesAreTheKernel) {
    for (const char* recipe : recipes()) {
        Case c = usual_case(recipe);
        EXPECT_EQ(run_stages(c, recipe, {}, instance<Whole>(recipe)).bits,
                  run_stages(c, recipe).bits)
            << recipe;
    }
}

TEST(FaultyParts, NoMask) {
    for (const bool causal : {false, true}) {
        for (const char* recipe : recipes()) {
            Spec s = spec_of(recipe);
            s.heads_q = 1;
            s.tokens_q = causal ? 64 : 20;
            s.tokens_k = causal ? 64 : 100;
            s.causal = causal;
            Case c = make_case(s);
            expect_wrong(instance<WithoutMask>(recipe), recipe, c);
        }
    }
}

TEST(FaultyParts, NoRedo) {
    for (const char* recipe : recipes()) {
        Spec s = spec_of(recipe);
        s.heads_q = 1;
        s.tokens_q = 20;
        s.tokens_k = 200;
        Case c = make_case(s);
        // Key 10, in the tile met last, lies 180 above the rest: p would be infinite in bf16 too.
        Random random(8);
        fill(c.k, [&](const Extents& i) {
            return i[1] == 10 ? (i[3] == 0 ? 128 : 0) : on_grid(.25 * random.normal());
        });
        fill(c.q, [&](const Extents& i) { return i[3] == 0 ? 8 : on_grid(random.normal()); });
        expect_wrong(instance<WithoutRedo>(recipe), recipe, c, 200);
    }
}

#if defined(QUATT_TEST_WGMMA)

// O is rescaled and not promoted.
template <class C>
struct NoPromotion : wgmma::PromotedAccumulator<C> {
    void promote(float (&o)[C::kOutRegisters], const float (&pending)[2], const float (&)[2]) {
        for (std::uint32_t i = 0; i < C::kOutRegisters; i++) {
            o[i] *= pending[i / 2 % 2];
        }
    }
};
template <class Recipe>
struct WithoutPromotion : Whole<Recipe> {
    template <class C>
    using Promoted = NoPromotion<C>;
};

// O grows over three intervals, and its short accumulator cuts ever more.
TEST(FaultyParts, NoPromotion) {
    Spec s = spec_of("fp8");
    s.heads_q = 1;
    s.tokens_q = 20;
    s.tokens_k = 3 * 2304;
    Case c = make_case(s);
    fill(c.v, [&](const Extents& i) { return i[1] < 3456 ? 1.0 : -1.0; });
    expect_wrong(instance<WithoutPromotion>("fp8"), "fp8", c);
}

#else

template <class Recipe>
struct WithoutZeroFill : Whole<Recipe> {
    template <class C>
    using Tiles = warp_mma::RowTiles<C, false>;
};

// Rows past the last key are read and not zeroed: out of the tensor, or NaN that 0 does not stop.
TEST(FaultyParts, NoZeroFill) {
    for (const bool is_bf16 : {true, false}) {
        for (const bool poisoned : {false, true}) {
            const char* recipe = is_bf16 ? "bf16" : "f16";
            Spec s = spec_of(recipe);
            s.heads_q = 1;
            s.tokens_q = 20;
            s.tokens_k = poisoned ? 128 : 100;
            if (poisoned) {
                s.kv_lens = {100};
            }
            Case c = make_case(s);
            for (std::int64_t j = 100; j < s.tokens_k; j++) {
                for (std::int64_t d = 0; d < 64; d++) {
                    c.v.set_one({0, j, 0, d}, std::numeric_limits<float>::quiet_NaN());
                }
            }
            expect_wrong(is_bf16 ? kInstance<softmax::Bf16, WithoutZeroFill<softmax::Bf16>>
                                 : kInstance<softmax::F16, WithoutZeroFill<softmax::F16>>,
                         recipe, c);
        }
    }
}

#endif

}  // namespace
}  // namespace quatt::test
