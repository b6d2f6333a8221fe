// The kernels of a call one by one in the executor, with options of its own or a planted fault.
#pragma once
#include <gtest/gtest.h>

#include <memory>
#include <optional>

#include "core/problem.hpp"
#include "cuda/backend.hpp"
#include "cuda/stages.cuh"
#include "warp_mma/harness.hpp"

namespace quatt::test {

using simt::Fault;

// The chain of a call with options of its own.
struct Run {
    simt::Options options = {};
    std::int32_t blocks = 2;
    std::byte workspace{0xFF};  // what every byte of it holds before
    const char* device = kDevice;
};

struct Outcome {
    Bits bits;
    Results results;
    simt::Result report;
};

// `attend`: an instance with a planted fault; null for the kernel itself.
[[nodiscard]] inline Outcome run_chain(Case& c, const char* recipe, const Run& run = {},
                                       schedule::Attend attend = nullptr) {
    const Device device(run.device);
    const Problem p = c.problem({run.device, recipe});
    const core::Shape shape = core::shape_of(p);
    cuda::Call call = cuda::make_call(p, shape, device, p.tensors);
    std::vector<std::byte, CacheLineAllocator<std::byte>> workspace(cuda::Workspace(call).bytes,
                                                                    run.workspace);
    call.schedule = is(kSchedule, "wgmma") ? &wgmma::kRow : &warp_mma::kRow;
    call.workspace = workspace.data();
    call.blocks = run.blocks;
    launch::Launcher launcher;
    launcher.options = run.options;
    c.reset_outputs();
    cuda::run_stages(call, launcher, attend != nullptr ? attend : cuda::attend_of(call));
    EXPECT_EQ(launcher.ok, launcher.result.ok());
    Results r = results_of(c);
    return {r.bits, r, launcher.result};
}

// Several items a block, more tiles than stages, a tail, an empty segment.
[[nodiscard]] inline Case usual_case(const char* recipe, bool small = false) {
    Spec s = spec_of(recipe);
    s.packed = true;
    s.heads_q = small ? 1 : 2;
    s.q_lens = {small ? 20 : 140, 0, 5};
    s.k_lens = {small ? 450 : 330, 3, 70};
    s.causal = !small;
    return make_case(s);
}

[[nodiscard]] inline std::uint64_t seeds() {
    return static_cast<std::uint64_t>(std::max(10, scaled(12)));
}

// Any of the faults, at every seed.
inline void expect_reported(schedule::Attend attend, const char* recipe, Case& c,
                            std::initializer_list<Fault> any_of, bool strict = false) {
    for (std::uint64_t seed = 0; seed < seeds(); seed++) {
        const Outcome o = run_chain(
            c, recipe,
            {.options = {.seed = seed, .fence_after_reads = strict, .max_steps = 5'000'000}},
            attend);
        EXPECT_TRUE(
            std::any_of(any_of.begin(), any_of.end(), [&](Fault f) { return o.report.has(f); }))
            << recipe << ", seed " << seed << " reported:\n"
            << o.report.summary();
    }
}

inline void expect_reported(schedule::Attend attend, const char* recipe,
                            std::initializer_list<Fault> any_of, bool strict = false) {
    Case c = usual_case(recipe, true);
    expect_reported(attend, recipe, c, any_of, strict);
}

// Not the emulation's result: kernel and data are such that what is planted matters.
inline void expect_wrong(schedule::Attend attend, const char* recipe, Case& c,
                         double largest_t = 8) {
    const Results want = compute(c, "emulate", recipe, [](Problem& p) { p.key_tile = 64; });
    const auto close = [&](const Outcome& o) {
        return agree(o.results, want, agreement_of(recipe, largest_t), largest(c.v));
    };
    EXPECT_TRUE(close(run_chain(c, recipe)));
    const Outcome mutant = run_chain(c, recipe, {}, attend);
    EXPECT_FALSE(mutant.report.ok() && close(mutant)) << recipe;
}

}  // namespace quatt::test
