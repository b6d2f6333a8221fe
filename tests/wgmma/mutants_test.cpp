// Planted faults of the wgmma kernel: each is reported, or changes the result.
#include "warp_mma/chain.hpp"

namespace quatt::test {
namespace {

using wgmma::Mutant;

template <Mutant M>
constexpr cuda::Start kMutant = {.wgmma = wgmma::launch_attention<wgmma::Config<64, M>>};

TEST(Mutants, NoneIsTheKernel) {
    Case c = usual_case("fp8");
    EXPECT_EQ(run_chain(c, "fp8", {}, kMutant<Mutant::kNone>).bits, run_chain(c, "fp8").bits);
}

TEST(Mutants, NoItemWait) {
    expect_reported(kMutant<Mutant::kNoItemWait>, "fp8",
                    {Fault::kInFlight, Fault::kReadRace, Fault::kUninitialised});
}

TEST(Mutants, NoItemFree) {
    expect_reported(kMutant<Mutant::kNoItemFree>, "fp8", {Fault::kWriteRace, Fault::kDeadlock});
}

TEST(Mutants, NoFullWait) {
    expect_reported(kMutant<Mutant::kNoFullWait>, "fp8",
                    {Fault::kInFlight, Fault::kReadRace, Fault::kUninitialised});
}

TEST(Mutants, NoFreeWait) {
    expect_reported(kMutant<Mutant::kNoFreeWait>, "fp8", {Fault::kWriteRace, Fault::kDeadlock});
}

// Accumulators of a running wgmma are NaN.
TEST(Mutants, NoScoreWait) {
    Case c = usual_case("fp8");
    expect_wrong(kMutant<Mutant::kNoScoreWait>, "fp8", c);
}

TEST(Mutants, NoValueWait) {
    expect_reported(kMutant<Mutant::kNoValueWait>, "fp8", {Fault::kInFlight, Fault::kWriteRace});
}

TEST(Mutants, NoFence) {
    expect_reported(kMutant<Mutant::kNoFence>, "fp8", {Fault::kWgmmaFence});
}

// Without the master O grows over three intervals, and its short accumulator cuts ever more.
TEST(Mutants, NoFlush) {
    Spec s = spec_of("fp8");
    s.heads_q = 1;
    s.tokens_q = 20;
    s.tokens_k = 3 * 2304;
    Case c = make_case(s);
    fill(c.v, [&](const Extents& i) { return i[1] < 3456 ? 1.0 : -1.0; });
    expect_wrong(kMutant<Mutant::kNoFlush>, "fp8", c);
}

// Several items a block, whose rows of out go to memory through the place of the master.
Case bf16_case(std::int64_t keys = 70) {
    Spec s = spec_of("fp8");
    s.out = QUATT_BF16;
    s.heads_q = 5;
    s.tokens_q = 20;
    s.tokens_k = keys;
    return make_case(s);
}

// They are overwritten by the next item's.
TEST(Mutants, NoRowsRead) {
    Case c = bf16_case();
    expect_reported(kMutant<Mutant::kNoRowsRead>, "fp8", c, {Fault::kWriteRace, Fault::kInFlight});
}

// They are read before they are there.
TEST(Mutants, NoRowsFence) {
    Case c = bf16_case();
    expect_reported(kMutant<Mutant::kNoRowsFence>, "fp8", c,
                    {Fault::kProxyFence, Fault::kReadRace});
}

TEST(Mutants, NoRowsEnd) {
    Case c = bf16_case();
    expect_reported(kMutant<Mutant::kNoRowsEnd>, "fp8", c, {Fault::kInFlight});
}

// A lane's rows of out over another's master.
TEST(Mutants, NoMasterRead) {
    Case c = bf16_case(2400);
    EXPECT_TRUE(run_chain(c, "fp8").report.ok());
    expect_reported(kMutant<Mutant::kNoMasterRead>, "fp8", c, {Fault::kWriteRace});
}

// Only the strict reading of the memory model asks for the loader's fences.
TEST(Mutants, NoReadFence) {
    expect_reported(kMutant<Mutant::kNoReadFence>, "fp8", {Fault::kProxyFence}, true);
}

TEST(Mutants, NoGridWait) {
    expect_reported(kMutant<Mutant::kNoGridWait>, "fp8", {Fault::kEarlyStart});
}

TEST(Mutants, NoMask) {
    for (const bool causal : {false, true}) {
        Spec s = spec_of("fp8");
        s.heads_q = 1;
        s.tokens_q = causal ? 64 : 20;
        s.tokens_k = causal ? 64 : 100;
        s.causal = causal;
        Case c = make_case(s);
        expect_wrong(kMutant<Mutant::kNoMask>, "fp8", c);
    }
}

TEST(Mutants, NoRedo) {
    Spec s = spec_of("fp8");
    s.heads_q = 1;
    s.tokens_q = 20;
    s.tokens_k = 200;
    Case c = make_case(s);
    // Key 10, in the tile met last, lies 180 above the rest.
    Random random(8);
    fill(c.k, [&](const Extents& i) {
        return i[1] == 10 ? (i[3] == 0 ? 128 : 0) : on_grid(.25 * random.normal());
    });
    fill(c.q, [&](const Extents& i) { return i[3] == 0 ? 8 : on_grid(random.normal()); });
    expect_wrong(kMutant<Mutant::kNoRedo>, "fp8", c, 200);
}

}  // namespace
}  // namespace quatt::test
