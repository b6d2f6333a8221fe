// Every synchronisation instruction of every kernel matters: without it something is reported, or
// the result is wrong. And whoever comes late to one changes nothing.
#include <iostream>

#include "attention/stages.hpp"
#include "support/sites.hpp"

namespace quatt::test {
namespace {

#if defined(QUATT_TEST_WGMMA)
const bool kIsThere = use("simt:sm_90", "wgmma");
#else
const bool kIsThere = use("simt:sm_120", "warp_mma");
#endif

// The sites whose loss nothing notices: an entry that matches no site, or one that is noticed after
// all, is an error.
const std::vector<Unnoticed>& unnoticed() {
    static const std::vector<Unnoticed> list = {
        // Not required for the result.
        {.file = "launch/pdl.hpp",
         .instruction = "griddepcontrol.launch_dependents",
         .snippet = "grid_launch_dependents()",
         .why = "Only lets the next launch start earlier; without it that one starts when this one "
                "has ended. PTX ISA 9.7.13.13"},
        {.file = "launch/pdl.hpp",
         .instruction = "griddepcontrol.wait",
         .snippet = "grid_wait()",
         .why = "The first launch of a call carries no attribute, so there is nothing to wait for. "
                "PTX ISA 9.7.13.13",
         .kernel = "build_worklist"},
#if defined(QUATT_TEST_WGMMA)
        // Not required: something else does the same.
        {.file = "wgmma/kernel.cuh",
         .instruction = "fence.mbarrier_init",
         .snippet = "fence_mbarrier_init()",
         .why = "The loader's fence_proxy_async lies between the inits, which it knows of by the "
                "barrier, and its first copy. PTX ISA 9.7.13.4"},
        {.file = "wgmma/kernel.cuh",
         .instruction = "bar.warp.sync",
         .snippet = "no lane is behind by a phase",
         .why = "wgmma.fence is .sync and comes after each wait for a stage: all lanes have seen "
                "the phase. What a warp reads of a stage besides is read by wgmma, of which every "
                "lane knows by its wait_group, and by the lane that lets go. PTX ISA 9.7.15.7.1, "
                "9.7.15.7.3. It stays: without it the kernel of 64 channels was slower"},
#endif
    };
    return list;
}

struct Shape {
    const char* name;
    Spec spec;
    std::int32_t blocks = 1;
};

// What passes every site of a recipe's kernels: a shape for each thing that only some show. The
// cheap ones come first: a walk goes on to the next only where a loss was not noticed.
std::vector<Shape> shapes_of(const char* recipe, std::int64_t dim) {
    Spec usual = spec_of(recipe);
    usual.out = QUATT_BF16;
    usual.dim = dim;
    usual.packed = true;
    usual.heads_q = 2;
    std::vector<Shape> shapes;
    // Items without keys, and with one tile: more than there are places for items in shared memory.
    // In fp32, so that out goes to memory without a fence.
    Spec s = usual;
    s.out = QUATT_F32;
    s.heads_q = 5;
    s.q_lens = {20, 3};
    s.k_lens = {0, 3};
    shapes.push_back({"no keys", s});
    // Several items a block, more tiles than stages, an empty segment, a tail of the stream.
    s = usual;
    s.q_lens = {20, 0, 5};
    s.k_lens = {450, 3, 70};
    s.tokens_q = 30;
    s.zero_tail = true;
    shapes.push_back({"segments", s});
    // More segments than the planning block has threads.
    s = usual;
    s.heads_q = 1;
    s.q_lens.assign(260, 0);
    s.k_lens.assign(260, 0);
    s.q_lens[0] = s.q_lens[258] = s.k_lens[0] = s.k_lens[258] = 1;
    shapes.push_back({"many segments", s});
    // Inputs that an attention kernel cannot read where they are.
    if (!is(recipe, "fp8")) {
        s = usual;
        s.dim = dim - 14;
        s.q_lens = {20, 5};
        s.k_lens = {70, 3};
        shapes.push_back({"copies", s, 2});
    }
    // More than one promotion interval.
    if (is(kernel(), "wgmma")) {
        s = usual;
        s.q_lens = {20};
        s.k_lens = {2400};
        shapes.push_back({"intervals", s});
    }
    return shapes;
}

// All sites at D = 64 and each fourth at 128, in the long mode all.
void walk(const std::string& name, const char* device, const char* recipe, std::int64_t dim) {
    const std::vector<Shape> shapes = shapes_of(recipe, dim);
    std::vector<Case> cases;
    for (const Shape& shape : shapes) {
        cases.push_back(make_case(shape.spec));
    }
    std::vector<Scene> scenes;
    for (std::size_t i = 0; i < shapes.size(); i++) {
        const auto run = [&, i](const simt::Options& options) {
            const Run how{.options = options, .blocks = shapes[i].blocks, .device = device};
            Outcome o = run_stages(cases[i], recipe, how);
            std::vector<std::uint32_t> bits = std::move(o.bits.out);
            bits.insert(bits.end(), o.bits.lse.begin(), o.bits.lse.end());
            return SceneOutcome{std::move(bits), std::move(o.report)};
        };
        scenes.push_back({shapes[i].name, run});
    }
    const std::uint64_t stride =
        long_mode() ? 1
                    : static_cast<std::uint64_t>(std::clamp(100 / scaled(100), 1, 100)) *
                          (dim == 128 ? 4 : 1);
    SiteWalk sites(name + " D=" + std::to_string(dim), std::move(scenes),
                   {.stride = stride, .first = name.size()});
    sites.drop_each(long_mode() ? 24 : 4, unnoticed());
    sites.delay_each(long_mode() ? 12 : 1);
    sites.print(std::cout);
}

#if defined(QUATT_TEST_WGMMA)
TEST(Sites, Fp8) {
    walk("fp8", "simt:sm_90", "fp8", 64);
}
TEST(Sites, Fp8At128) {
    walk("fp8", "simt:sm_90", "fp8", 128);
}
#else
// NOTE: in bf16 at 128 channels the two architectures have kernels of their own.
TEST(Sites, Bf16) {
    walk("bf16", "simt:sm_90", "bf16", 64);
}
TEST(Sites, F16) {
    walk("f16", "simt:sm_90", "f16", 64);
}
TEST(Sites, Fp8) {
    walk("fp8", "simt:sm_90", "fp8", 64);
}
TEST(Sites, Fp8BlockScaled) {
    walk("fp8 block-scaled", "simt:sm_120", "fp8", 64);
}
TEST(Sites, Bf16At128) {
    walk("bf16", "simt:sm_90", "bf16", 128);
    walk("bf16 rows16", "simt:sm_120", "bf16", 128);
}
TEST(Sites, F16At128) {
    walk("f16", "simt:sm_90", "f16", 128);
}
TEST(Sites, Fp8At128) {
    walk("fp8", "simt:sm_90", "fp8", 128);
    walk("fp8 block-scaled", "simt:sm_120", "fp8", 128);
}
#endif

}  // namespace
}  // namespace quatt::test
