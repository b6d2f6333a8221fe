// Synchronisation instructions by the place of their call: which a launch passes, what happens
// without one, and what happens when one is late.
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "cuda/ptx/ptx.hpp"
#include "simt/problem.hpp"
#include "support/sites.hpp"

namespace quatt::test {
namespace {

using namespace quatt::ptx;
using simt::Fault;
using simt::SiteFault;
using simt::SyncSite;

// Every wrapper hands the place of its own call on.
TEST(Sites, WrappersForwardThePlaceOfTheirCall) {
    std::vector<std::pair<std::string, u32>> expected;
    const auto kernel = [&] {
        const Shared shared = dynamic_shared(4096), barrier = shared.sub(64, 8);
        const bool is_first = thread_x() == 0;
        const auto at = [&](const char* instruction, u32 line) {
            if (is_first) expected.emplace_back(instruction, line);
        };
        at("griddepcontrol.wait", __LINE__), grid_wait();
        at("griddepcontrol.launch_dependents", __LINE__), grid_launch_dependents();
        if (is_first) {
            at("mbarrier.init", __LINE__), mbarrier_init(barrier, 1);
            at("fence.mbarrier_init", __LINE__), fence_mbarrier_init();
            at("fence.proxy.async", __LINE__), fence_proxy_async();
            at("mbarrier.expect_tx", __LINE__), mbarrier_expect_tx(barrier, 0);
            at("mbarrier.arrive", __LINE__), mbarrier_arrive(barrier);
            at("mbarrier.try_wait", __LINE__), mbarrier_wait(barrier, 0);
            at("mbarrier.try_wait", __LINE__), (void)mbarrier_try_wait(barrier, 0);
            at("mbarrier.test_wait", __LINE__), (void)mbarrier_test_wait(barrier, 0);
            at("mbarrier.arrive.expect_tx", __LINE__), mbarrier_arrive_expect_tx(barrier, 0);
            at("mbarrier.arrive.cluster", __LINE__), mbarrier_arrive_at(barrier, 0);
        }
        at("bar.warp.sync", __LINE__), syncwarp();
        at("barrier.sync", __LINE__), barrier_sync();
        at("barrier.sync", __LINE__), barrier_sync(1, 128);
        if (warp_id() == 0) {
            at("barrier.arrive", __LINE__), barrier_arrive(2, 128);
        } else {
            barrier_sync(2, 128);
        }
        at("barrier.cluster", __LINE__), cluster_sync();
        at("cp.async.commit_group", __LINE__), cp_async_commit();
        at("cp.async.wait_group", __LINE__), cp_async_wait<0>();
        at("cp.async.bulk.commit_group", __LINE__), bulk_commit();
        at("cp.async.bulk.wait_group", __LINE__), bulk_wait_read<0>();
        at("wgmma.fence", __LINE__), wgmma_fence();
        at("wgmma.commit_group", __LINE__), wgmma_commit();
        at("wgmma.wait_group", __LINE__), wgmma_wait<0>();
        at("setmaxnreg", __LINE__), setmaxnreg_dec<24>();
        at("setmaxnreg", __LINE__), setmaxnreg_inc<256>();
    };
    std::vector<SyncSite> sites;
    const simt::Result result =
        simt::launch({"kernel", {1}, {128}, 4096}, {.sites = &sites}, kernel);
    EXPECT_TRUE(result.ok()) << result.summary();
    for (const auto& [instruction, line] : expected) {
        const auto is_it = [&](const SyncSite& s) {
            return s.instruction == instruction && s.site.line() == line &&
                   std::string(s.site.file_name()).ends_with("test_sites.cpp");
        };
        EXPECT_EQ(std::count_if(sites.begin(), sites.end(), is_it), 1)
            << instruction << ' ' << line;
    }
    EXPECT_EQ(sites.size(),
              expected.size() + 1);  // barrier 2, whose sync the first warp leaves out
    for (const SyncSite& s : sites)
        EXPECT_EQ(s.kernel, "kernel");
}

TEST(Sites, AreCountedTheSameForAnyNumberOfWorkers) {
    Problem problem(300, 96, 256);
    const auto text = [&](unsigned workers) {
        std::vector<SyncSite> sites;
        for (int launches = 0; launches < 2; launches++)
            EXPECT_TRUE(problem.run_copy({.seed = 1, .workers = workers, .sites = &sites}).ok());
        std::string all;
        for (const SyncSite& s : sites)
            all += std::to_string(s.site.line()) + ' ' + s.instruction + ' ' +
                   std::to_string(s.count) + '\n';
        return all;
    };
    const std::string one = text(1);
    EXPECT_NE(one.find("cp.async.wait_group"), std::string::npos) << one;
    EXPECT_EQ(text(3), one);
    EXPECT_EQ(text(0), one);
}

[[nodiscard]] std::vector<u32> bits_of(const std::vector<float>& x) {
    std::vector<u32> bits(x.size());
    std::memcpy(bits.data(), x.data(), 4 * x.size());
    return bits;
}

void walk(SiteWalk walk) {
    walk.drop_each(seeds(), {});
    walk.delay_each(seeds());
}

TEST(Sites, EachOneOfTheCopyKernelMatters) {
    Problem problem(64, 32, 320);
    walk(SiteWalk("copy", {{"64 x 32 x 320", [&](const simt::Options& options) {
                                simt::Result result = problem.run_copy(options);
                                return SceneOutcome{bits_of(problem.c), std::move(result)};
                            }}}));
}

TEST(Sites, EachOneOfTheBulkKernelMatters) {
    Problem problem(64, 32, 640);
    walk(SiteWalk("bulk",
                  {{"64 x 32 x 640",
                    [&](const simt::Options& options) {
                        simt::Result result = problem.run_bulk(options);
                        return SceneOutcome{bits_of(problem.c), std::move(result)};
                    }}},
                  {.fence_after_reads = false}));
}

// Block 0 sends a word to both blocks twice; block 1 lets go of its place by arriving there. Nobody
// waits for its last arrival.
TEST(Sites, EachOneOfAClusterMatters) {
    std::vector<U32x4> source{{1, 2, 3, 4}, {5, 6, 7, 8}};
    std::vector<u32> out(2);
    const auto kernel = [&] {
        const Shared shared = dynamic_shared(4096), full = shared.sub(64, 8),
                     free = shared.sub(72, 8);
        if (thread_x() == 0) {
            mbarrier_init(full, 1);
            mbarrier_init(free, 1);
            fence_mbarrier_init();
        }
        cluster_sync();
        u32 sum = 0;
        for (u32 i = 0; i < 2 && thread_x() == 0; i++) {
            mbarrier_arrive_expect_tx(full, 16);
            if (cluster_rank() == 0) {
                if (i > 0) mbarrier_wait(free, 0);
                bulk_load_multicast(shared.sub(0, 16),
                                    Global<const u8>(reinterpret_cast<u8*>(&source[i]), 16), 16,
                                    full, 3);
            }
            mbarrier_wait(full, i);
            sum += shared.load<u32>(4);
            if (cluster_rank() == 1) mbarrier_arrive_at(free, 0);
        }
        if (thread_x() == 0) out[cluster_rank()] = sum;
        cluster_sync();
    };
    walk(SiteWalk("cluster",
                  {{"2 blocks",
                    [&](const simt::Options& options) {
                        out.assign(2, 0);
                        simt::Result result =
                            simt::launch({"kernel", {2}, {64}, 4096, 0, 2}, options, kernel);
                        return SceneOutcome{out, std::move(result)};
                    }}},
                  {.fence_after_reads = false}));
}

// The last one in the order of `log` is the warp that was late.
TEST(Sites, ADelayedWarpGoesLast) {
    std::vector<u32> log;
    u32 lines[2] = {};
    const auto kernel = [&] {
        if (warp_id() == 0) {
            lines[0] = __LINE__ + 1;
            syncwarp();
        } else {
            lines[1] = __LINE__ + 1;
            syncwarp();
        }
        log.push_back(warp_id());
    };
    std::vector<SyncSite> sites;
    EXPECT_TRUE(simt::launch({"kernel", {1}, {64}}, {.sites = &sites}, kernel).ok());
    ASSERT_EQ(sites.size(), 2u);
    for (u32 late = 0; late < 2; late++) {
        EXPECT_EQ(sites[late].site.line(), lines[late]);
        EXPECT_EQ(sites[late].count, 32u);
        const SiteFault fault{SiteFault::Kind::kDelay, sites[late].site};
        for (std::uint64_t seed = 0; seed < seeds(); seed++) {
            log.clear();
            EXPECT_TRUE(
                simt::launch({"kernel", {1}, {64}}, {.seed = seed, .fault = &fault}, kernel).ok());
            std::vector<u32> expected(32, 1 - late);
            expected.insert(expected.end(), 32, late);
            EXPECT_EQ(log, expected) << seed;
        }
    }
}

// One warp arrives twice and nobody holds it back. Whoever waits in time sees both phases; a wait
// that comes late by two waits for ever.
TEST(Sites, ADelayShowsAPhaseThatNobodyKept) {
    const auto kernel = [] {
        const Shared barrier = dynamic_shared(4096).sub(0, 8);
        if (thread_x() == 0) mbarrier_init(barrier, 1);
        barrier_sync();
        for (u32 i = 0; i < 2 && warp_id() == 0; i++) {
            if (thread_x() == 0) mbarrier_arrive(barrier);
            for (u32 turn = 0; turn < 64; turn++)
                syncwarp();  // others may run
        }
        if (thread_x() == 32) {
            mbarrier_wait(barrier, 0);
            mbarrier_wait(barrier, 1);
        }
    };
    std::vector<SyncSite> sites;
    (void)simt::launch({"kernel", {1}, {64}, 4096}, {.sites = &sites}, kernel);
    const auto wait = std::find_if(sites.begin(), sites.end(), [](const SyncSite& s) {
        return std::strcmp(s.instruction, "mbarrier.try_wait") == 0;
    });
    ASSERT_NE(wait, sites.end());
    const SiteFault fault{SiteFault::Kind::kDelay, wait->site};
    bool is_right_without = false;
    for (std::uint64_t seed = 0; seed < seeds(); seed++) {
        const auto run = [&](const SiteFault* late) {
            return simt::launch({"kernel", {1}, {64}, 4096}, {.seed = seed, .fault = late}, kernel);
        };
        is_right_without = is_right_without || run(nullptr).ok();
        EXPECT_TRUE(run(&fault).has(Fault::kDeadlock)) << seed;
    }
    EXPECT_TRUE(is_right_without);
}

TEST(Sites, AFaultCanBeOfOneKernelAndOneInstruction) {
    Problem problem(64, 32, 320);
    std::vector<SyncSite> sites;
    EXPECT_TRUE(problem.run_copy({.sites = &sites}).ok());
    for (const SyncSite& s : sites) {
        const SiteFault elsewhere[] = {{SiteFault::Kind::kDrop, s.site, "other"},
                                       {SiteFault::Kind::kDrop, s.site, "matmul_copy", "nop"},
                                       {SiteFault::Kind::kDrop, simt::Site::current()}};
        for (const SiteFault& fault : elsewhere)
            EXPECT_TRUE(problem.run_copy({.fault = &fault}).ok()) << s.instruction;
        const SiteFault here{SiteFault::Kind::kDrop, s.site, "matmul_copy", s.instruction};
        EXPECT_FALSE(problem.run_copy({.fault = &here}).ok()) << s.instruction;
    }
}

}  // namespace
}  // namespace quatt::test
