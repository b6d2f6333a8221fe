// The kernels of a call one by one in the executor, with options of its own or a planted fault.
#pragma once
#include <gtest/gtest.h>

#include <memory>
#include <optional>

#include "attention/harness.hpp"
#include "core/problem.hpp"
#include "cuda/backend.hpp"
#include "cuda/stages.cuh"

namespace quatt::test {

using simt::Fault;

// The chain of a call with options of its own.
struct Run {
    simt::Options options = {};
    std::int32_t blocks = 2;
    std::byte workspace{0xFF};     // what every byte of it holds before
    const char* device = nullptr;  // null: the subject's
};

struct Outcome {
    Bits bits;
    Results results;
    simt::Result report;
};

// `attend`: an instance with a planted fault; null for the kernel itself.
[[nodiscard]] inline Outcome run_stages(Case& c, const char* recipe, const Run& run = {},
                                        schedule::Attend attend = nullptr) {
    const char* on = run.device != nullptr ? run.device : device();
    const Problem p = c.problem({on, recipe, kernel()});
    const core::Shape shape = core::shape_of(p);
    cuda::Call call = cuda::make_call(p, shape, Device(on), p.tensors);
    std::vector<std::byte, CacheLineAllocator<std::byte>> workspace(cuda::Workspace(call).bytes(),
                                                                    run.workspace);
    call.schedule = is(kernel(), "wgmma") ? &wgmma::kRow : &warp_mma::kRow;
    cuda::place(call, workspace.data());
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
[[nodiscard]] inline Case usual_case(const char* recipe, bool small = false,
                                     std::int64_t dim = 64) {
    Spec s = spec_of(recipe);
    s.dim = dim;
    s.packed = true;
    s.heads_q = small ? 1 : 2;
    s.q_lens = {small ? 20 : 140, 0, 5};
    s.k_lens = {small ? 450 : 330, 3, 70};
    s.causal = !small;
    return make_case(s);
}

// Seeds 0 to 11 go through all pairs of completion (at once, last moment, mixed) and warp order.
[[nodiscard]] inline std::uint64_t seeds() {
    return static_cast<std::uint64_t>(std::max(10, scaled(12)));
}

// Not the emulation's result: kernel and data are such that what is planted matters.
inline void expect_wrong(schedule::Attend attend, const char* recipe, Case& c,
                         double largest_t = 8) {
    const Results want = compute(c, "emulate", recipe, [](Problem& p) { p.key_tile = 64; });
    const auto close = [&](const Outcome& o) {
        return agree(o.results, want, c, recipe, {.largest_t = largest_t});
    };
    EXPECT_TRUE(close(run_stages(c, recipe)));
    const Outcome mutant = run_stages(c, recipe, {}, attend);
    EXPECT_FALSE(mutant.report.ok() && close(mutant)) << recipe;
}

}  // namespace quatt::test
