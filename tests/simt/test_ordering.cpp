// What orders memory and what does not, in kernels of a few lines.
#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "cuda/ptx/ptx.hpp"
#include "simt/launch.hpp"
#include "simt/seeds.hpp"

namespace quatt::test {
namespace {

using namespace quatt::ptx;
using simt::Fault;

template <class Kernel>
simt::Result run(std::uint32_t threads, const Kernel& kernel, simt::Options options = {}) {
    return simt::launch({"kernel", {1}, {threads}, 4096}, options, kernel);
}

template <class Kernel>
void expect_clean(std::uint32_t threads, const Kernel& kernel, simt::Options options = {}) {
    for (options.seed = 0; options.seed < seeds(); options.seed++) {
        const simt::Result result = run(threads, kernel, options);
        EXPECT_TRUE(result.ok()) << "seed " << options.seed << "\n" << result.summary();
    }
}

// At every seed: `fault`, or `other` where it depends on who comes first which of them it is.
template <class Kernel>
void expect_fault(Fault fault, std::uint32_t threads, const Kernel& kernel,
                  std::optional<Fault> other = {}) {
    simt::Options options;
    for (options.seed = 0; options.seed < seeds(); options.seed++) {
        const simt::Result result = run(threads, kernel, options);
        EXPECT_TRUE(result.has(fault) || (other && result.has(*other)))
            << "seed " << options.seed << "\n"
            << result.summary();
    }
}

TEST(Ordering, SyncwarpOrdersLanesAndShufflesDoNot) {
    const auto exchange = [](auto between) {
        return [between] {
            const Shared shared = dynamic_shared(4096);
            shared.store(4 * lane_id(), lane_id());
            between();
            EXPECT_EQ(shared.load<u32>(4 * (lane_id() ^ 5)), lane_id() ^ 5);
        };
    };
    expect_clean(32, exchange([] { syncwarp(); }));
    expect_fault(Fault::kReadRace, 32, exchange([] { (void)shfl_xor(1u, 1); }));
    expect_fault(Fault::kReadRace, 32, exchange([] { (void)ballot(true); }));
}

TEST(Ordering, SyncwarpOrdersOneWarpOnly) {
    expect_fault(
        Fault::kReadRace, 64,
        [] {
            const Shared shared = dynamic_shared(4096);
            shared.store(4 * thread_x(), thread_x());
            syncwarp();
            barrier_sync(warp_id(), 32);
            (void)shared.load<u32>(4 * (thread_x() ^ 32));
        },
        Fault::kUninitialised);
}

TEST(Ordering, WritesAfterReadsNeedABarrierToo) {
    const auto kernel = [](bool has_barrier) {
        return [has_barrier] {
            const Shared shared = dynamic_shared(4096);
            if (thread_x() < 32) shared.store(4 * thread_x(), 1u);
            barrier_sync();
            (void)shared.load<u32>(4 * lane_id());
            if (has_barrier) barrier_sync();
            if (thread_x() >= 32) shared.store(4 * lane_id(), 2u);
        };
    };
    expect_clean(64, kernel(true));
    expect_fault(Fault::kWriteRace, 64, kernel(false), Fault::kReadRace);
}

TEST(Ordering, NarrowWritesSideBySideAreNoRace) {
    expect_clean(64, [] {
        const Shared shared = dynamic_shared(4096);
        shared.store(thread_x(), static_cast<u8>(thread_x()));
        shared.store(256 + 2 * thread_x(), static_cast<u16>(thread_x()));
        barrier_sync();
        EXPECT_EQ(shared.load<u8>(thread_x() ^ 33), thread_x() ^ 33);
        EXPECT_EQ(shared.load<u32>(256 + 4 * lane_id()), 2 * lane_id() | (2 * lane_id() + 1) << 16);
    });
    expect_fault(
        Fault::kReadRace, 32,
        [] {
            const Shared shared = dynamic_shared(4096);
            shared.store(thread_x(), static_cast<u8>(1));
            (void)shared.load<u32>(thread_x() / 4 * 4);
        },
        Fault::kWriteRace);
    expect_fault(Fault::kUninitialised, 32, [] {
        const Shared shared = dynamic_shared(4096);
        shared.store(4 * thread_x(), static_cast<u16>(1));
        (void)shared.load<u32>(4 * thread_x());
    });
}

TEST(Ordering, EveryLaneMayArriveForItself) {
    // A word that all lanes read, each of them letting go of it alone; or one too early.
    const auto kernel = [](bool is_early) {
        return [is_early] {
            const Shared shared = dynamic_shared(4096), free = shared.sub(64, 8);
            const Shared full = shared.sub(72, 8);
            if (thread_x() == 32) {
                mbarrier_init(free, 32);
                mbarrier_init(full, 1);
            }
            barrier_sync();
            const bool lets_go_first = is_early && lane_id() == 7;
            for (u32 round = 0; round < 5; round++) {
                if (thread_x() < 32) {
                    mbarrier_wait(full, round % 2);
                    if (lets_go_first) mbarrier_arrive(free);
                    const u32 value = shared.load<u32>(0);
                    EXPECT_TRUE(value == round || lets_go_first);
                    if (!lets_go_first) mbarrier_arrive(free);
                } else if (thread_x() == 32) {
                    if (round > 0) mbarrier_wait(free, (round - 1) % 2);
                    shared.store(0, round);
                    mbarrier_arrive(full);
                }
            }
        };
    };
    expect_clean(64, kernel(false));
    expect_fault(Fault::kWriteRace, 64, kernel(true), Fault::kReadRace);
}

TEST(Ordering, ProducersArriveAndConsumersSync) {
    // Two named barriers between one producing and one consuming warp.
    expect_clean(64, [] {
        const Shared shared = dynamic_shared(4096);
        for (u32 round = 0; round < 6; round++) {
            if (warp_id() == 0) {
                if (round > 0) barrier_sync(2, 64);
                shared.store(4 * lane_id(), round + lane_id());
                barrier_arrive(1, 64);
            } else {
                barrier_sync(1, 64);
                EXPECT_EQ(shared.load<u32>(4 * (31 - lane_id())), round + 31 - lane_id());
                if (round < 5) barrier_arrive(2, 64);
            }
        }
    });
}

TEST(Ordering, ArriveDoesNotAcquire) {
    expect_fault(
        Fault::kReadRace, 64,
        [] {
            const Shared shared = dynamic_shared(4096);
            shared.store(4 * thread_x(), 1u);
            if (warp_id() == 0)
                barrier_arrive(1, 64);
            else
                barrier_sync(1, 64);
            (void)shared.load<u32>(4 * (thread_x() ^ 32));
        },
        Fault::kWriteRace);
}

TEST(Ordering, TheReadersOfAWordAreRememberedOneByOne) {
    // Lanes read the same word at different times; only the first is known to the writer.
    expect_fault(
        Fault::kWriteRace, 64,
        [] {
            const Shared shared = dynamic_shared(4096), a = shared.sub(64, 8),
                         b = shared.sub(72, 8);
            if (thread_x() == 0) {
                shared.store(0, 1u);
                mbarrier_init(a, 1);
                mbarrier_init(b, 1);
            }
            barrier_sync();
            if (thread_x() == 1) {
                mbarrier_arrive(b);  // lane 1's time runs ahead of lane 0's
                (void)shared.load<u32>(0);
            }
            if (thread_x() == 0) {
                (void)shared.load<u32>(0);
                mbarrier_arrive(a);
            }
            if (thread_x() == 32) {
                mbarrier_wait(a, 0);
                shared.store(0, 2u);
            }
        },
        Fault::kReadRace);
}

// A word written by the generic proxy, then by a bulk copy, with a fence at `fence_at`.
enum class FenceAt { kNowhere, kTooEarly, kWriter, kIssuer };
auto overwritten_by_bulk(std::vector<u8>& source, FenceAt where) {
    return [&source, where] {
        const Shared shared = dynamic_shared(4096), barrier = shared.sub(64, 8);
        const bool is_writer = thread_x() == 32, is_issuer = thread_x() == 0;
        if (is_writer) {
            if (where == FenceAt::kTooEarly) fence_proxy_async();
            shared.store(0, 1u);
            if (where == FenceAt::kWriter) fence_proxy_async();
        }
        if (is_issuer) {
            mbarrier_init(barrier, 1);
            fence_mbarrier_init();
        }
        barrier_sync();
        if (is_issuer) {
            if (where == FenceAt::kIssuer) fence_proxy_async();
            mbarrier_arrive_expect_tx(barrier, 16);
            const auto at =
                static_cast<i64>((16 - reinterpret_cast<std::uintptr_t>(source.data()) % 16) % 16);
            bulk_load(shared.sub(0, 16), Global<const u8>(source.data() + at, 16), 16, barrier);
        }
        mbarrier_wait(barrier, 0);
        EXPECT_EQ(shared.load<u8>(5), 7);
    };
}

TEST(ProxyFence, ByTheWriterOrTheIssuerButAfterTheWrite) {
    std::vector<u8> source(32, 7);
    expect_clean(64, overwritten_by_bulk(source, FenceAt::kWriter));
    expect_clean(64, overwritten_by_bulk(source, FenceAt::kIssuer));
    expect_fault(Fault::kProxyFence, 64, overwritten_by_bulk(source, FenceAt::kNowhere));
    expect_fault(Fault::kProxyFence, 64, overwritten_by_bulk(source, FenceAt::kTooEarly));
}

TEST(Mbarrier, IsNoPlainMemory) {
    expect_fault(Fault::kMbarrierMisuse, 32, [] {
        const Shared barrier = dynamic_shared(4096).sub(0, 8);
        if (lane_id() == 0) {
            mbarrier_init(barrier, 1);
            barrier.store(4, 1u);
        }
    });
    expect_fault(Fault::kMbarrierMisuse, 32, [] {
        if (lane_id() == 0) mbarrier_arrive(dynamic_shared(4096).sub(8, 8));
    });
    expect_fault(Fault::kMisaligned, 32, [] {
        if (lane_id() == 0) mbarrier_init(dynamic_shared(4096).sub(4, 8), 1);
    });
}

TEST(Mbarrier, TheWrongParityWaitsForEver) {
    expect_fault(Fault::kDeadlock, 32, [] {
        const Shared barrier = dynamic_shared(4096).sub(0, 8);
        if (lane_id() == 0) mbarrier_init(barrier, 1);
        syncwarp();
        if (lane_id() == 1) mbarrier_arrive(barrier);
        syncwarp();
        mbarrier_wait(barrier, 1);
        mbarrier_wait(barrier, 1);
        mbarrier_wait(barrier, 0);
        mbarrier_wait(barrier, 1);
    });
}

TEST(Copies, ReusingTheSourceOfABulkStoreNeedsItsWait) {
    std::vector<u8> target(64);
    const auto kernel = [&](bool has_wait) {
        return [&target, has_wait] {
            const Shared shared = dynamic_shared(4096);
            if (thread_x() != 0) return;
            shared.store(0, U32x4{1, 2, 3, 4});
            fence_proxy_async();
            const auto at =
                static_cast<i64>((16 - reinterpret_cast<std::uintptr_t>(target.data()) % 16) % 16);
            bulk_store(Global<u8>(target.data() + at, 16), shared.sub(0, 16), 16);
            bulk_commit();
            if (has_wait) bulk_wait_read<0>();
            shared.store(0, U32x4{5, 6, 7, 8});
            bulk_wait_read<0>();
        };
    };
    expect_clean(32, kernel(true));
    expect_fault(Fault::kInFlight, 32, kernel(false));
}

// With the detector off, the seeds alone show these faults, at the completion that suits them.
TEST(Completions, LateCopiesShowAMissingWait) {
    std::vector<u8> source(512, 9);
    const auto first_byte = [&](simt::Completion completion) {
        u8 got = 0;
        (void)run(32,
                  [&] {
                      const Shared shared = dynamic_shared(4096);
                      cp_async<16>(shared, 16 * lane_id(), Global<const u8>(source.data(), 512),
                                   16 * lane_id());
                      cp_async_commit();
                      if (lane_id() == 0) got = shared.load<u8>(0);
                  },
                  {.seed = 1, .completion = completion, .check_races = false});
        return got;
    };
    EXPECT_EQ(first_byte(simt::Completion::kAtOnce), 9);
    EXPECT_EQ(first_byte(simt::Completion::kLastMoment), 0xFF);
}

}  // namespace
}  // namespace quatt::test
