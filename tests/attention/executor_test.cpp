// The kernels of a call one by one in the executor: every order of asynchronous effects and warps
// gives the same bits and no report.
#include "attention/stages.hpp"

namespace quatt::test {
namespace {

QUATT_SUBJECTS(Executor, gpu_subjects());

TEST_P(Executor, SameBitsAtEveryOrder) {
    for (const char* recipe : recipes()) {
        for (const std::int64_t dim : {64, 128}) {
            Case c = usual_case(recipe, dim == 128, dim);
            const Outcome first = run_stages(c, recipe);
            EXPECT_TRUE(first.report.ok()) << first.report.summary();
            for (std::uint64_t seed = 1; seed < seeds(); seed++) {
                // D = 128 takes a third of the pairs, others for each recipe.
                if (dim == 128 && (seed + static_cast<std::uint64_t>(recipe[0])) % 3 != 0) {
                    continue;
                }
                const Outcome next = run_stages(c, recipe, {.options = {.seed = seed}});
                EXPECT_TRUE(next.report.ok())
                    << recipe << ", D = " << dim << ", seed " << seed << '\n'
                    << next.report.summary();
                EXPECT_EQ(next.bits, first.bits) << recipe << ", D = " << dim << ", seed " << seed;
            }
        }
    }
}

TEST_P(Executor, SameBitsAtEveryCompletionWithAnyWarpOrder) {
    using simt::Completion;
    using simt::WarpOrder;
    for (const char* recipe : recipes()) {
        for (const std::int64_t dim : {64, 128}) {
            Case c = usual_case(recipe, true, dim);
            const Outcome first = run_stages(c, recipe);
            std::uint64_t seed = 100;
            for (const Completion completion :
                 {Completion::kAtOnce, Completion::kLastMoment, Completion::kMixed}) {
                for (const WarpOrder order : {WarpOrder::kRandom, WarpOrder::kRoundRobin,
                                              WarpOrder::kGreedy, WarpOrder::kStarve}) {
                    seed++;
                    const auto n = static_cast<int>(seed) + recipe[0];
                    if (!thinned(n) || (dim == 128 && n % 3 != 0)) {
                        continue;
                    }
                    // The strict reading of the memory model too: a fence between reads and the
                    // refill.
                    const Outcome next = run_stages(c, recipe,
                                                    {.options = {.seed = seed,
                                                                 .completion = completion,
                                                                 .order = order,
                                                                 .fence_after_reads = true}});
                    EXPECT_TRUE(next.report.ok()) << recipe << ", D = " << dim << '\n'
                                                  << next.report.summary();
                    EXPECT_EQ(next.bits, first.bits) << recipe << ", D = " << dim;
                }
            }
        }
    }
}

TEST_P(Executor, SameBitsForAnyGridAndNumberOfWorkers) {
    for (const char* recipe : recipes()) {
        Case c = usual_case(recipe);
        const Outcome first = run_stages(c, recipe, {.blocks = 1});
        for (const std::int32_t blocks : {1, 2, 3, 5, 8, 13}) {
            const unsigned workers = blocks == 1 ? 1 : 1 + static_cast<unsigned>(blocks) % 2;
            const Outcome next = run_stages(
                c, recipe, {.options = {.seed = 3, .workers = workers}, .blocks = blocks});
            EXPECT_TRUE(next.report.ok()) << next.report.summary();
            EXPECT_EQ(next.bits, first.bits)
                << recipe << ", " << blocks << " blocks, " << workers << " workers";
        }
    }
}

// The workspace may hold anything.
TEST_P(Executor, SameBitsWithAnythingInTheWorkspace) {
    Thinner thin;
    for (const char* recipe : recipes()) {
        for (const std::int64_t dim : {64, 50}) {
            Spec s = usual_case(recipe, true).spec;
            s.dim = s.dim_v = dim;
            Case c = make_case(s);
            const Outcome first = run_stages(c, recipe);
            EXPECT_TRUE(first.report.ok()) << first.report.summary();
            for (const int byte : {0x00, 0x7E, 0x7F, 0x3C, 0x80, 0x01}) {
                if (thin.skip()) {
                    continue;
                }
                EXPECT_EQ(run_stages(c, recipe, {.workspace = std::byte(byte)}).bits, first.bits)
                    << recipe << ' ' << byte;
            }
        }
    }
}

// Two configurations in turn in one process.
TEST_P(Executor, ConfigurationsInTurn) {
    const char* other = recipes()[0];
    Case a = usual_case("fp8", true);
    Spec s = usual_case(other, true).spec;
    s.dim = s.dim_v = 128;
    Case b = make_case(s);
    const Bits first_a = run_stages(a, "fp8").bits, first_b = run_stages(b, other).bits;
    for (int i = 0; i < 2; i++) {
        EXPECT_EQ(run_stages(b, other).bits, first_b);
        EXPECT_EQ(run_stages(a, "fp8").bits, first_a);
    }
}

// Exact, and monotone in every extent.
TEST_P(Executor, WorkspaceGrowsWithEveryExtent) {
    const auto bytes = [](const char* recipe, std::int64_t batch, std::int64_t heads,
                          std::int64_t group, std::int64_t sq, std::int64_t sk, std::int64_t dim,
                          bool lse) {
        Problem p;
        p.recipe = Recipe(std::string(recipe));
        const quatt_dtype dtype = is(recipe, "f16") ? QUATT_F16 : QUATT_BF16;
        const auto tensor = [&](std::int64_t tokens, std::int64_t n) {
            const std::int64_t e[] = {batch, tokens, n, dim};
            return quatt_tensor_contiguous(nullptr, dtype, 4, e);
        };
        p.tensors.q = p.tensors.out = tensor(sq, heads * group);
        p.tensors.k = p.tensors.v = tensor(sk, heads);
        if (lse) {
            const std::int64_t e[] = {batch, heads * group, sq};
            p.tensors.lse = quatt_tensor_contiguous(nullptr, QUATT_F32, 3, e);
        }
        p.softmax_scale = 1;
        p.kernel = kernel();
        return query(p, device()).value().workspace_bytes;
    };
    for (const char* recipe : recipes()) {
        for (const bool lse : {false, true}) {
            std::int64_t x[6] = {1, 1, 1, 1, 1, 33};
            const auto now = [&] { return bytes(recipe, x[0], x[1], x[2], x[3], x[4], x[5], lse); };
            Random random(9);
            for (int i = 0; i < 300; i++) {
                const std::size_t before = now();
                const std::int64_t axis = random.in(0, 5);
                // NOTE: 64 and 128 channels need no copy where 63 and 100 do, in 16 bits.
                const bool is_copy = !is(recipe, "fp8");
                x[axis] += axis == 5   ? (x[5] < (is_copy ? 60 : 120) ? random.in(0, 3) : 0)
                           : axis >= 3 ? random.in(0, 500)
                                       : random.in(0, 1);
                ASSERT_GE(now(), before) << recipe << " axis " << axis;
            }
        }
    }
}

}  // namespace
}  // namespace quatt::test
