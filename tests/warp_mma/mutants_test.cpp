// Planted faults of the warp_mma kernels: each is reported, or changes the result.
#include "warp_mma/chain.hpp"

namespace quatt::test {
namespace {

using warp_mma::Arithmetic;
using warp_mma::Atom;
using warp_mma::Config;
using warp_mma::Mutant;

template <class C>
constexpr cuda::Start kMutant = {.warp_mma = warp_mma::launch_attention<C>};

template <Arithmetic A, Mutant M>
using Narrow = Config<A, 64, Atom::kNative, M>;

TEST(Mutants, NoneIsTheKernel) {
    Case c = usual_case("fp8");
    const Outcome whole = run_chain(c, "fp8");
    EXPECT_EQ(
        run_chain(c, "fp8", {}, kMutant<Config<Arithmetic::kFp8, 64, Atom::kBlockScaled>>).bits,
        whole.bits);
    // Unit scales: the plain instruction gives the same bits.
    EXPECT_EQ(run_chain(c, "fp8", {}, kMutant<Config<Arithmetic::kFp8, 64>>).bits, whole.bits);
}

TEST(Mutants, NoFullWait) {
    expect_reported(kMutant<Narrow<Arithmetic::kFp8, Mutant::kNoFullWait>>, "fp8",
                    {Fault::kInFlight, Fault::kReadRace, Fault::kUninitialised});
    expect_reported(kMutant<Narrow<Arithmetic::kBf16, Mutant::kNoFullWait>>, "bf16",
                    {Fault::kInFlight, Fault::kReadRace});
    expect_reported(kMutant<Narrow<Arithmetic::kF16, Mutant::kNoFullWait>>, "f16",
                    {Fault::kInFlight, Fault::kReadRace});
}

TEST(Mutants, NoFreeWait) {
    expect_reported(kMutant<Narrow<Arithmetic::kFp8, Mutant::kNoFreeWait>>, "fp8",
                    {Fault::kWriteRace, Fault::kDeadlock});  // a phase that was overtaken
    expect_reported(kMutant<Narrow<Arithmetic::kBf16, Mutant::kNoFreeWait>>, "bf16",
                    {Fault::kWriteRace, Fault::kReadRace, Fault::kInFlight});
    expect_reported(kMutant<Narrow<Arithmetic::kF16, Mutant::kNoFreeWait>>, "f16",
                    {Fault::kWriteRace, Fault::kReadRace, Fault::kInFlight});
}

// Only the strict reading of the memory model asks for this fence.
TEST(Mutants, NoProxyFence) {
    expect_reported(kMutant<Narrow<Arithmetic::kFp8, Mutant::kNoProxyFence>>, "fp8",
                    {Fault::kProxyFence}, true);
}

TEST(Mutants, NoMask) {
    for (const bool causal : {false, true}) {
        for (const char* recipe : kRecipes) {
            Spec s = spec_of(recipe);
            s.heads_q = 1;
            s.tokens_q = causal ? 64 : 20;
            s.tokens_k = causal ? 64 : 100;
            s.causal = causal;
            Case c = make_case(s);
            is(recipe, "fp8")
                ? expect_wrong(kMutant<Narrow<Arithmetic::kFp8, Mutant::kNoMask>>, recipe, c)
            : is(recipe, "bf16")
                ? expect_wrong(kMutant<Narrow<Arithmetic::kBf16, Mutant::kNoMask>>, recipe, c)
                : expect_wrong(kMutant<Narrow<Arithmetic::kF16, Mutant::kNoMask>>, recipe, c);
        }
    }
}

TEST(Mutants, NoRedo) {
    for (const char* recipe : kRecipes) {
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
        is(recipe, "fp8")
            ? expect_wrong(kMutant<Narrow<Arithmetic::kFp8, Mutant::kNoRedo>>, recipe, c, 200)
        : is(recipe, "bf16")
            ? expect_wrong(kMutant<Narrow<Arithmetic::kBf16, Mutant::kNoRedo>>, recipe, c, 200)
            : expect_wrong(kMutant<Narrow<Arithmetic::kF16, Mutant::kNoRedo>>, recipe, c, 200);
    }
}

// Rows past the last key are read and not zeroed: out of the tensor, or NaN that 0 does not stop.
TEST(Mutants, NoZeroFill) {
    for (const char* recipe : {"bf16", "f16"}) {
        for (const bool poisoned : {false, true}) {
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
            is(recipe, "bf16")
                ? expect_wrong(kMutant<Narrow<Arithmetic::kBf16, Mutant::kNoZeroFill>>, recipe, c)
                : expect_wrong(kMutant<Narrow<Arithmetic::kF16, Mutant::kNoZeroFill>>, recipe, c);
        }
    }
}

}  // namespace
}  // namespace quatt::test
