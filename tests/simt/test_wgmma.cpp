// wgmma and setmaxnreg: a kernel that uses them is right at every seed, and each fault that is
// planted in it shows at every seed.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "formats/e4m3.hpp"
#include "formats/hopper_accumulator.hpp"
#include "simt/attend_wgmma.cuh"
#include "simt/launch.hpp"
#include "simt/seeds.hpp"

namespace quatt::test {
namespace {

using namespace quatt::ptx;
using formats::E4m3;
using simt::Fault;
using wgmma_kernel::kDim;
using wgmma_kernel::kDimV;
using wgmma_kernel::kKeys;
using wgmma_kernel::kRows;
using wgmma_kernel::Planted;

// Where the kernel's P has key `key` of its tile.
u32 place_of_key(u32 key) {
    const u32 in_half = key % 16;
    return key / 16 * 16 + 4 * (in_half % 8 / 2) + 2 * (in_half / 8) + in_half % 2;
}

struct Attention {
    u32 keys;
    std::vector<u8> q, k, v;  // v: [64, keys], in the kernel's order
    std::vector<float> out;

    explicit Attention(u32 tiles) : keys(tiles * kKeys), out(kRows * kDimV) {
        std::mt19937 generator(tiles);
        std::normal_distribution<float> normal;
        const auto fill = [&](std::vector<u8>& codes, u32 count) {
            codes.resize(count);
            for (u8& code : codes)
                code = E4m3::encode(normal(generator));
        };
        fill(q, kRows * kDim);
        fill(k, keys * kDim);
        fill(v, kDimV * keys);
    }

    [[nodiscard]] std::vector<float> expected() const {
        const auto decode = [](const std::vector<u8>& codes) {
            std::vector<float> values;
            for (const u8 code : codes)
                values.push_back(E4m3::decode(code));
            return values;
        };
        const std::vector<float> fq = decode(q), fk = decode(k), fv = decode(v);
        std::vector<float> result(out.size()), p(keys);
        for (u32 row = 0; row < kRows; row++) {
            for (u32 key = 0; key < keys; key++) {
                float s = 0;
                for (u32 c = 0; c < kDim; c += 32)
                    s = formats::hopper_step(s, &fq[row * kDim + c], 1, &fk[key * kDim + c], 1, 32);
                p[key / kKeys * kKeys + place_of_key(key % kKeys)] =
                    E4m3::decode(E4m3::encode(s / 64));
            }
            for (u32 c = 0; c < kDimV; c++) {
                float o = 0;
                for (u32 key = 0; key < keys; key += 32)
                    o = formats::hopper_step(o, &p[key], 1, &fv[c * keys + key], 1, 32);
                result[row * kDimV + c] = o;
            }
        }
        return result;
    }

    template <Planted P = Planted::kNone>
    simt::Result run(const simt::Options& options) {
        out.assign(out.size(), NAN);
        const auto map = [](std::vector<u8>& codes, u32 rows, u32 columns, u32 box_rows,
                            u32 box_columns, simt::Swizzle swizzle) {
            simt::TensorMap m;
            m.base = codes.data();
            m.rank = 2;
            m.element_bytes = 1;
            m.extent[0] = columns;
            m.extent[1] = rows;
            m.stride_bytes[1] = columns;
            m.box[0] = box_columns;
            m.box[1] = box_rows;
            m.swizzle = swizzle;
            return m;
        };
        const wgmma_kernel::Params params{{q.data(), static_cast<i64>(q.size())},
                                          map(k, keys, kDim, kKeys, kDim, simt::Swizzle::k128B),
                                          map(v, kDimV, keys, kDimV, kKeys, simt::Swizzle::k64B),
                                          {out.data(), static_cast<i64>(out.size())},
                                          keys / kKeys};
        return simt::launch(
            {"attend", {1}, {wgmma_kernel::kThreads}, sizeof(wgmma_kernel::SharedPlan)}, options,
            [&] { wgmma_kernel::attend<P>(params); });
    }
};

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

TEST(Wgmma, GivesTheExpectedBitsAtEverySeed) {
    for (const u32 tiles : {1u, 5u}) {
        Attention problem(tiles);
        const std::vector<float> expected = problem.expected();
        for (std::uint64_t seed = 0; seed < seeds(); seed++) {
            const simt::Result result = problem.run({.seed = seed});
            EXPECT_TRUE(result.ok()) << "seed " << seed << "\n" << result.summary();
            EXPECT_TRUE(same_bits(problem.out, expected)) << "seed " << seed;
            EXPECT_EQ(result.statistics.wgmmas, tiles * 6 * 2);
        }
    }
}

template <Planted P>
void expect_planted(std::initializer_list<Fault> any_of) {
    Attention problem(5);
    for (std::uint64_t seed = 0; seed < seeds(); seed++) {
        const simt::Result result = problem.run<P>({.seed = seed, .max_steps = 2'000'000});
        EXPECT_TRUE(std::any_of(any_of.begin(), any_of.end(),
                                [&](Fault fault) { return result.has(fault); }))
            << "seed " << seed << " reported:\n"
            << result.summary();
        for (const simt::Report& report : result.reports)
            EXPECT_NE(report.site.line(), 0u) << simt::to_string(report);
    }
}

template <Planted P>
void expect_wrong(const simt::Options& start = {}) {
    Attention problem(5);
    const std::vector<float> expected = problem.expected();
    for (simt::Options options = start; options.seed < seeds(); options.seed++) {
        (void)problem.run<P>(options);
        EXPECT_FALSE(same_bits(problem.out, expected)) << "seed " << options.seed;
    }
}

TEST(PlantedInWgmma, NoScoreWait) {
    expect_wrong<Planted::kNoScoreWait>();
}
TEST(PlantedInWgmma, NoFinalWait) {
    expect_planted<Planted::kNoFinalWait>({Fault::kInFlight});
}
TEST(PlantedInWgmma, NoCommit) {
    expect_planted<Planted::kNoCommit>({Fault::kInFlight});
}
TEST(PlantedInWgmma, NoFirstFence) {
    expect_planted<Planted::kNoFirstFence>({Fault::kWgmmaFence});
}
TEST(PlantedInWgmma, NoFence) {
    expect_planted<Planted::kNoFence>({Fault::kWgmmaFence});
}
TEST(PlantedInWgmma, NoProxyFence) {
    expect_planted<Planted::kNoProxyFence>({Fault::kProxyFence});
}
TEST(PlantedInWgmma, NoFullWait) {
    expect_planted<Planted::kNoFullWait>({Fault::kReadRace, Fault::kUninitialised});
}
TEST(PlantedInWgmma, NoEmptyWait) {
    expect_planted<Planted::kNoEmptyWait>({Fault::kInFlight, Fault::kWriteRace});
}
TEST(PlantedInWgmma, EarlyEmpty) {
    expect_planted<Planted::kEarlyEmpty>({Fault::kInFlight, Fault::kWriteRace});
}
TEST(PlantedInWgmma, WritesP) {
    expect_planted<Planted::kWritesP>({Fault::kInFlight});
    // Without the reports, late reads show it.
    expect_wrong<Planted::kWritesP>(
        {.completion = simt::Completion::kLastMoment, .check_races = false});
}
TEST(PlantedInWgmma, WritesO) {
    expect_planted<Planted::kWritesO>({Fault::kInFlight});
    expect_wrong<Planted::kWritesO>({.check_races = false});
}
TEST(PlantedInWgmma, WrongSwizzle) {
    expect_wrong<Planted::kWrongSwizzle>();
}
TEST(PlantedInWgmma, Descriptors) {
    expect_planted<Planted::kStride>({Fault::kBadOperand});
    expect_planted<Planted::kBeyond>({Fault::kBadOperand});
    expect_planted<Planted::kUnaligned>({Fault::kBadOperand});
}
TEST(PlantedInWgmma, Registers) {
    expect_planted<Planted::kTooMany>({Fault::kRegisterPool});
    expect_planted<Planted::kNoDecrease>({Fault::kRegisterPool});
    expect_planted<Planted::kWrongDirection>({Fault::kRegisterPool});
    expect_planted<Planted::kOneWarp>({Fault::kRegisterPool});
}

// ---- kernels of a few lines

template <class Kernel>
simt::Result run(u32 threads, const Kernel& kernel, simt::Options options = {}) {
    return simt::launch({"kernel", {1}, {threads}, 16384}, options, kernel);
}

template <class Kernel>
void expect_fault(Fault fault, u32 threads, const Kernel& kernel) {
    for (simt::Options options; options.seed < seeds(); options.seed++) {
        const simt::Result result = run(threads, kernel, options);
        EXPECT_TRUE(result.has(fault)) << "seed " << options.seed << "\n" << result.summary();
    }
}

// Zeros in both operands.
void clear() {
    const Shared shared = dynamic_shared(16384);
    for (u32 at = 16 * thread_x(); at < 16384; at += 16 * threads_x())
        shared.store(at, U32x4{0, 0, 0, 0});
    fence_proxy_async();
    barrier_sync();
}
u64 operand(u32 at) {
    return k_major<128>(dynamic_shared(16384).sub(at, 16384 - at));
}

TEST(Wgmma, WarpsOfAWarpgroupDriftAndMeet) {
    // Each warp issues and waits at its own pace; one of them is far behind.
    for (simt::Options options; options.seed < seeds(); options.seed++) {
        const simt::Result result = run(
            256,
            [] {
                clear();
                float d[32] = {};
                if (warp_id() % 4 == 2) {
                    for (u32 i = 0; i < 50; i++)
                        (void)any(i == 49);
                }
                for (u32 round = 0; round < 4; round++) {
                    d[3] += 1;
                    wgmma_fence();
                    wgmma_e4m3<64>(d, operand(0), operand(8192), true);
                    wgmma_commit();
                    wgmma_wait<0>();
                    EXPECT_EQ(d[3], static_cast<float>(round + 1));
                    EXPECT_EQ(d[4], 0.0f);
                }
            },
            options);
        EXPECT_TRUE(result.ok()) << "seed " << options.seed << "\n" << result.summary();
    }
}

TEST(Wgmma, AccumulatorsAreNanUntilTheirOwnGroupIsDone) {
    for (simt::Options options; options.seed < seeds(); options.seed++) {
        const simt::Result result = run(
            128,
            [] {
                clear();
                float d[32], e[32];
                wgmma_fence();
                wgmma_e4m3<64>(d, operand(0), operand(8192), false);
                wgmma_commit();
                wgmma_e4m3<64>(e, operand(0), operand(8192), false);
                wgmma_commit();
                EXPECT_TRUE(std::isnan(d[0]) && std::isnan(d[31]) && std::isnan(e[0]));
                wgmma_wait<1>();
                EXPECT_TRUE(d[0] == 0 && d[31] == 0);
                EXPECT_TRUE(std::isnan(e[0]) && std::isnan(e[31]));
                wgmma_wait<0>();
                EXPECT_TRUE(e[0] == 0 && e[31] == 0);
            },
            options);
        EXPECT_TRUE(result.ok()) << "seed " << options.seed << "\n" << result.summary();
    }
}

enum class LetsGo { kEachWarp, kOneWarp, kBeforeTheWait };

TEST(Wgmma, EachWarpLetsGoForItself) {
    // A wait says that the warp's own quarter is done, to each of its lanes, and nothing of the
    // other warps, which read all of B too.
    for (const LetsGo how : {LetsGo::kEachWarp, LetsGo::kOneWarp, LetsGo::kBeforeTheWait}) {
        const auto body = [how] {
            const Shared shared = dynamic_shared(16384), barrier = shared.sub(12288, 8);
            for (u32 at = 16 * thread_x(); at < 12288; at += 16 * threads_x())
                shared.store(at, U32x4{0, 0, 0, 0});
            if (thread_x() == 0) mbarrier_init(barrier, how == LetsGo::kOneWarp ? 1 : 4);
            fence_proxy_async();
            barrier_sync();
            if (thread_x() < 128) {
                float d[16];
                wgmma_fence();
                host::wgmma_e4m3(d, 32, k_major<128>(shared.sub(0, 8192)),
                                 k_major<128>(shared.sub(8192, 4096)), false, Site::current());
                wgmma_commit();
                const bool speaks = how == LetsGo::kOneWarp ? thread_x() == 70 : lane_id() == 6;
                if (speaks && how == LetsGo::kBeforeTheWait) mbarrier_arrive(barrier);
                wgmma_wait<0>();
                if (speaks && how != LetsGo::kBeforeTheWait) mbarrier_arrive(barrier);
            } else {
                mbarrier_wait(barrier, 0);
                shared.store(4 * (thread_x() - 128), 7u);
                shared.store(8192 + 4 * (thread_x() - 128), 7u);
            }
        };
        for (simt::Options options; options.seed < seeds(); options.seed++) {
            const simt::Result result = run(160, body, options);
            EXPECT_EQ(result.ok(), how == LetsGo::kEachWarp) << "seed " << options.seed << "\n"
                                                             << result.summary();
            // A read race where a warp issues after the write.
            EXPECT_EQ(result.has(Fault::kInFlight) || result.has(Fault::kWriteRace) ||
                          result.has(Fault::kReadRace),
                      how != LetsGo::kEachWarp);
        }
    }
}

TEST(Wgmma, RefusesWhatTheIsaDoes) {
    const auto with_n = [](u32 n) {
        return [n] {
            clear();
            float d[160] = {};
            wgmma_fence();
            host::wgmma_e4m3(d, n, operand(0), operand(8192), false, Site::current());
            wgmma_commit();
            wgmma_wait<0>();
        };
    };
    EXPECT_TRUE(run(128, with_n(24)).ok());
    expect_fault(Fault::kBadOperand, 128, with_n(12));
    expect_fault(Fault::kBadOperand, 128, with_n(0));
    expect_fault(Fault::kBadOperand, 128, with_n(264));
    expect_fault(Fault::kBadOperand, 96, with_n(64));   // no four warps
    expect_fault(Fault::kBadOperand, 160, with_n(64));  // the fifth has no three others
    expect_fault(Fault::kBadOperand, 160, [] {          // warps 1 to 4 are no warpgroup
        clear();
        float d[32];
        if (warp_id() == 0 || warp_id() == 4) return;
        wgmma_fence();
        wgmma_e4m3<64>(d, operand(0), operand(8192), false);
        wgmma_commit();
        wgmma_wait<0>();
    });
    expect_fault(Fault::kDivergence, 128, [] {
        clear();
        float d[32];
        wgmma_fence();
        if (warp_id() == 3)
            wgmma_e4m3<64>(d, operand(0), operand(8192), false);
        else
            wgmma_e4m3<64>(d, operand(0), operand(8192), false);
        wgmma_commit();
        wgmma_wait<0>();
    });
}

TEST(Wgmma, WarpsOfAWarpgroupRunTheSameStatements) {
    // A second wait, commit or fence by one warp only, in the middle or at the end.
    const auto kernel = [](u32 which, bool at_end) {
        return [which, at_end] {
            clear();
            float d[32] = {};
            for (u32 round = 0; round < 2; round++) {
                wgmma_fence();
                wgmma_e4m3<64>(d, operand(0), operand(8192), true);
                wgmma_commit();
                wgmma_wait<0>();
                if (warp_id() != 1 || round != (at_end ? 1 : 0)) continue;
                if (which == 0) wgmma_wait<0>();
                if (which == 1) wgmma_commit();
                if (which == 2) wgmma_fence();
            }
        };
    };
    EXPECT_TRUE(run(128, kernel(3, false)).ok());
    for (const u32 which : {0u, 1u, 2u}) {
        expect_fault(Fault::kDivergence, 128, kernel(which, false));
        expect_fault(Fault::kDivergence, 128, kernel(which, true));
    }
    // A warpgroup without one of its warps.
    expect_fault(Fault::kBadOperand, 128, [] {
        clear();
        if (warp_id() == 0) return;
        float d[32] = {};
        wgmma_fence();
        wgmma_e4m3<64>(d, operand(0), operand(8192), true);
        wgmma_commit();
        wgmma_wait<0>();
    });
}

TEST(Wgmma, FencesStandBetweenOtherWritesAndIt) {
    const auto kernel = [](bool is_written, bool has_fence) {
        return [is_written, has_fence] {
            clear();
            float d[32] = {};
            for (u32 round = 0; round < 2; round++) {
                if (round == 0 || has_fence) wgmma_fence();
                wgmma_e4m3<64>(d, operand(0), operand(8192), true);
                wgmma_e4m3<64>(d, operand(32), operand(8192 + 32), true);  // needs none
                wgmma_commit();
                wgmma_wait<0>();
                if (is_written) d[7] = -d[7];  // 0 to -0
            }
        };
    };
    EXPECT_TRUE(run(128, kernel(true, true)).ok());
    EXPECT_TRUE(run(128, kernel(false, false)).ok());  // accumulators of the same shape
    expect_fault(Fault::kWgmmaFence, 128, kernel(true, false));
}

TEST(Registers, GoRoundThePool) {
    // 168 a thread: the third warpgroup needs what the second gives back.
    const auto kernel = [] {
        const u32 group = warp_id() / 4;
        if (group == 0) setmaxnreg_dec<24>();
        if (group == 1) {
            setmaxnreg_inc<240>();
            barrier_arrive(1, 256);
            setmaxnreg_dec<160>();
        }
        if (group == 2) {
            barrier_sync(1, 256);
            setmaxnreg_inc<248>();
        }
    };
    for (simt::Options options; options.seed < seeds(); options.seed++) {
        const simt::Result result = run(384, kernel, options);
        EXPECT_TRUE(result.ok()) << "seed " << options.seed << "\n" << result.summary();
    }
    expect_fault(Fault::kDeadlock, 384, [] {
        if (warp_id() / 4 == 0) setmaxnreg_dec<48>();
        if (warp_id() / 4 == 1) setmaxnreg_inc<248>();
        if (warp_id() / 4 == 2) setmaxnreg_inc<240>();
    });
    const auto more = [] { setmaxnreg_inc<104>(); };
    EXPECT_TRUE(simt::launch({"kernel", {1}, {128}, 0, 104}, {}, more).ok());
    EXPECT_TRUE(simt::launch({"kernel", {1}, {128}, 0, 96}, {}, more).has(Fault::kRegisterPool));
    expect_fault(Fault::kRegisterPool, 128, [] {
        if (warp_id() == 0) setmaxnreg_dec<24>();
    });
    // Whoever should have taken them forgot.
    expect_fault(Fault::kRegisterPool, 256, [] {
        if (warp_id() / 4 == 0) setmaxnreg_dec<24>();
    });
}

}  // namespace
}  // namespace quatt::test
