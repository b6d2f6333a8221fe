// Clusters: a kernel that uses them is right at every seed, and each fault that is planted in it is
// reported at every seed.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "cuda/launch/launcher.hpp"
#include "simt/broadcast_cluster.cuh"
#include "simt/launch.hpp"
#include "simt/seeds.hpp"

namespace quatt::test {
namespace {

using namespace quatt::ptx;
using cluster_kernel::kCluster;
using cluster_kernel::kTileBytes;
using cluster_kernel::Planted;
using simt::Fault;

struct Broadcast {
    u32 blocks, tiles;
    struct alignas(16) Chunk {
        u32 words[4];
    };
    std::vector<Chunk> in;
    std::vector<u32> out;

    Broadcast(u32 block_count, u32 tile_count)
        : blocks(block_count), tiles(tile_count), in(tiles * kTileBytes / 16), out(64 * blocks) {
        std::mt19937 generator(tiles);
        for (Chunk& chunk : in)
            for (u32& word : chunk.words)
                word = static_cast<u32>(generator());
    }
    [[nodiscard]] std::vector<u32> expected() const {
        std::vector<u32> sums(64);
        for (u32 i = 0; i < tiles * kTileBytes / 4; i++)
            sums[i % 64] = sums[i % 64] * 5 + in[i / 4].words[i % 4];
        std::vector<u32> result;
        for (u32 b = 0; b < blocks; b++)
            result.insert(result.end(), sums.begin(), sums.end());
        return result;
    }
    [[nodiscard]] cluster_kernel::Params params() {
        return {{reinterpret_cast<const u8*>(in.data()), static_cast<i64>(16 * in.size())},
                {out.data(), static_cast<i64>(out.size())},
                tiles};
    }
    template <Planted P = Planted::kNone>
    simt::Result run(const simt::Options& options) {
        out.assign(out.size(), 0);
        const cluster_kernel::Params p = params();
        return simt::launch({"broadcast",
                             {blocks},
                             {cluster_kernel::kThreads},
                             sizeof(cluster_kernel::SharedPlan),
                             0,
                             kCluster},
                            options, [&] { cluster_kernel::broadcast<P>(p); });
    }
};

TEST(Cluster, GivesTheExpectedBitsAtEverySeed) {
    Broadcast problem(4, 9);
    const std::vector<u32> expected = problem.expected();
    for (std::uint64_t seed = 0; seed < seeds(); seed++) {
        const simt::Result result = problem.run({.seed = seed});
        EXPECT_TRUE(result.ok()) << "seed " << seed << "\n" << result.summary();
        EXPECT_EQ(problem.out, expected) << "seed " << seed;
    }
    for (const unsigned workers : {2u, 0u}) {
        EXPECT_TRUE(problem.run({.seed = 5, .workers = workers}).ok());
        EXPECT_EQ(problem.out, expected);
    }
}

TEST(Cluster, TheLauncherTakesIt) {
    Broadcast problem(2, 5);
    const cluster_kernel::Params p = problem.params();
    launch::Launcher launcher;
    launcher.run<cluster_kernel::broadcast<>>("broadcast", {2}, cluster_kernel::kThreads,
                                              sizeof(cluster_kernel::SharedPlan), p, kCluster);
    EXPECT_TRUE(launcher.ok) << launcher.result.summary();
    EXPECT_EQ(problem.out, problem.expected());
}

template <Planted P>
void expect_planted(std::initializer_list<Fault> any_of) {
    Broadcast problem(2, 9);
    for (std::uint64_t seed = 0; seed < seeds(); seed++) {
        const simt::Result result = problem.run<P>({.seed = seed, .max_steps = 200'000});
        EXPECT_TRUE(std::any_of(any_of.begin(), any_of.end(),
                                [&](Fault fault) { return result.has(fault); }))
            << "seed " << seed << " reported:\n"
            << result.summary();
        for (const simt::Report& report : result.reports)
            EXPECT_NE(report.site.line(), 0u) << simt::to_string(report);
    }
}

TEST(PlantedInCluster, NoStartSync) {
    expect_planted<Planted::kNoStartSync>({Fault::kMbarrierMisuse, Fault::kReadRace});
}
TEST(PlantedInCluster, NoEndSync) {
    expect_planted<Planted::kNoEndSync>({Fault::kEarlyExit});
}
TEST(PlantedInCluster, NoFullWait) {
    expect_planted<Planted::kNoFullWait>({Fault::kReadRace, Fault::kUninitialised});
}
TEST(PlantedInCluster, NoEmptyWait) {
    expect_planted<Planted::kNoEmptyWait>({Fault::kWriteRace});
}
TEST(PlantedInCluster, OwnEmptyOnly) {
    expect_planted<Planted::kOwnEmptyOnly>({Fault::kWriteRace});
}
TEST(PlantedInCluster, EarlyArrive) {
    expect_planted<Planted::kEarlyArrive>({Fault::kWriteRace});
}
TEST(PlantedInCluster, NoSyncwarp) {
    expect_planted<Planted::kNoSyncwarp>({Fault::kWriteRace});
}
TEST(PlantedInCluster, SmallExpect) {
    expect_planted<Planted::kSmallExpect>(
        {Fault::kMbarrierMisuse, Fault::kDeadlock, Fault::kReadRace});
}
TEST(PlantedInCluster, BeyondTheCluster) {
    expect_planted<Planted::kWrongRank>({Fault::kBadOperand});
    expect_planted<Planted::kWrongRanks>({Fault::kBadOperand});
}
TEST(PlantedInCluster, NoInitFence) {
    expect_planted<Planted::kNoInitFence>({Fault::kProxyFence});
}

// ---- kernels of a few lines

template <class Kernel>
simt::Result run(u32 blocks, u32 cluster, const Kernel& kernel, simt::Options options = {}) {
    return simt::launch({"kernel", {blocks, 2}, {64}, 4096, 0, cluster}, options, kernel);
}

TEST(Cluster, RanksCountAlongX) {
    for (const u32 cluster : {1u, 2u, 8u}) {
        std::vector<u32> ranks(16, 99);
        EXPECT_TRUE(run(8, cluster, [&] {
                        if (thread_x() == 40) ranks[block_y() * 8 + block_x()] = cluster_rank();
                    }).ok());
        for (u32 i = 0; i < 16; i++)
            EXPECT_EQ(ranks[i], i % cluster);
    }
    EXPECT_TRUE(run(8, 3, [] {}).has(Fault::kBadOperand));
    EXPECT_TRUE(run(16, 16, [] {}).has(Fault::kBadOperand));
    EXPECT_TRUE(run(8, 0, [] {}).has(Fault::kBadOperand));
}

TEST(Cluster, SyncMeetsAllWarpsThatHaveNotEnded) {
    for (simt::Options options; options.seed < seeds(); options.seed++) {
        u32 before = 0;  // blocks of a cluster share an OS thread
        const simt::Result result = run(
            4, 4,
            [&] {
                if (block_y() == 0 && thread_x() % 32 == 0) before++;
                if (cluster_rank() == 2 && warp_id() == 1) return;
                cluster_sync();
                EXPECT_TRUE(block_y() != 0 || before == 8);
                cluster_sync();
            },
            options);
        EXPECT_TRUE(result.ok()) << "seed " << options.seed << "\n" << result.summary();
    }
    // One block is at a barrier of its own.
    EXPECT_TRUE(run(2, 2, [] {
                    if (cluster_rank() == 0) return cluster_sync();
                    barrier_sync(1, 64);
                    if (warp_id() == 0) barrier_sync(1, 64);
                }).has(Fault::kDeadlock));
}

TEST(Cluster, SyncOrdersWhatItsBlocksDo) {
    // Block 1 lets go of its word by arriving on block 0, which then sends bytes over it.
    std::vector<Broadcast::Chunk> source(1);
    const auto kernel = [&](bool reads_first) {
        return [&source, reads_first] {
            const Shared shared = dynamic_shared(4096), full = shared.sub(64, 8),
                         go = shared.sub(72, 8);
            if (thread_x() == 0) {
                mbarrier_init(full, 1);
                mbarrier_init(go, 1);
                fence_mbarrier_init();
                shared.store(0, U32x4{1, 2, 3, 4});
                fence_proxy_async();
            }
            cluster_sync();
            if (thread_x() == 0) {
                mbarrier_arrive_expect_tx(full, 16);
                if (cluster_rank() == 1) {
                    if (reads_first) (void)shared.load<u32>(4);
                    mbarrier_arrive_at(go, 0);
                    if (!reads_first) (void)shared.load<u32>(4);
                } else {
                    mbarrier_wait(go, 0);
                    bulk_load_multicast(shared.sub(0, 16),
                                        Global<const u8>(reinterpret_cast<u8*>(source.data()), 16),
                                        16, full, 3);
                }
                mbarrier_wait(full, 0);
                EXPECT_EQ(shared.load<u32>(4), 0u);
            }
            cluster_sync();
        };
    };
    for (simt::Options options; options.seed < seeds(); options.seed++) {
        const simt::Result good = run(2, 2, kernel(true), options);
        EXPECT_TRUE(good.ok()) << "seed " << options.seed << "\n" << good.summary();
        const simt::Result bad = run(2, 2, kernel(false), options);
        EXPECT_TRUE(bad.has(Fault::kWriteRace) || bad.has(Fault::kReadRace))
            << "seed " << options.seed << "\n"
            << bad.summary();
    }
}

}  // namespace
}  // namespace quatt::test
