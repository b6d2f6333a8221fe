// One kernel, natively and in the executor: bit-equal where the ISA leaves nothing open, within
// derived bounds where it does. Skipped where there is no GPU.
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <random>

#include "../../simt/broadcast_cluster.cuh"
#include "both.cuh"
#include "both_wgmma.cuh"
#include "cuda/launch/launcher.hpp"
#include "formats/e4m3.hpp"
#include "recording.hpp"
#include "simt/launch.hpp"

namespace quatt::test {
namespace {

constexpr int kSkipped = 77;

Recording inputs() {
    Recording r;
    r.warps = 200;
    r.bytes.resize(r.warps * 1024u);
    r.floats.resize(r.warps * 32u * 8u);
    r.exact.resize(r.warps * 32u * kExactWords);
    r.sums.resize(r.warps * 32u * kFloats);
    r.approximate.resize(r.warps * 32u * kApproximate);
    std::mt19937 generator(1);
    std::normal_distribution<float> normal;
    for (std::uint8_t& byte : r.bytes)
        byte = static_cast<std::uint8_t>(generator());
    constexpr float kInf = std::numeric_limits<float>::infinity();
    const float special[] = {0.0f,   -0.0f,   kInf,     -kInf,    NAN,       448.0f, 464.0f,
                             465.0f, 0x1p-9f, 0x1p-10f, 0x3p-11f, 0x1p-140f, 17.0f,  -19.0f};
    for (std::size_t i = 0; i < r.floats.size(); i++) {
        r.floats[i] = normal(generator) *
                      (i % 8 < 4 ? std::exp2(static_cast<float>(generator() % 24) - 12) : 1.0f);
        // The first four are packed and compared only; the others are operands of sums too.
        if (i % 8 < 4 && generator() % 3 == 0) r.floats[i] = special[generator() % 14];
        if (i % 8 == 7) r.floats[i] *= 20;
    }
    return r;
}

Recording record_on_executor(Recording r) {
    const BothParams params{{r.bytes.data(), static_cast<i64>(r.bytes.size())},
                            {r.floats.data(), static_cast<i64>(r.floats.size())},
                            {r.exact.data(), static_cast<i64>(r.exact.size())},
                            {r.sums.data(), static_cast<i64>(r.sums.size())},
                            {r.approximate.data(), static_cast<i64>(r.approximate.size())}};
    const simt::Result result =
        simt::launch({"record", {r.warps}, {32}, 1024}, {}, [&] { record(params); });
    std::fputs(result.summary().c_str(), stderr);
    if (!result.ok()) std::exit(1);
    return r;
}

int compare() {
    const Recording start = inputs();
    const Recording executor = record_on_executor(start);
    Recording gpu = start;
    if (!record_on_gpu(gpu)) {
        std::puts("no GPU");
        return kSkipped;
    }
    int failures = 0;
    const auto fail = [&](const char* what, std::size_t word, double a, double b) {
        if (failures++ < 20) std::printf("%s %zu: GPU %.9g executor %.9g\n", what, word, a, b);
    };
    for (std::size_t i = 0; i < gpu.exact.size(); i++)
        if (gpu.exact[i] != executor.exact[i])
            fail("exact", i % kExactWords, gpu.exact[i], executor.exact[i]);
    // Operands are below 2, so products are below 4 (times 16 with the scales). Each of at most 32
    // and the accumulator, below 128, are cut at 2^-23 of the largest, and sums are rounded.
    for (std::size_t i = 0; i < gpu.sums.size(); i++) {
        const double largest = i % kFloats < 16 ? 128 : 2048;
        const double bound = 34 * 0x1p-23 * largest;
        if (!(std::fabs(double{gpu.sums[i]} - executor.sums[i]) <= bound))
            fail("sum", i % kFloats, gpu.sums[i], executor.sums[i]);
    }
    for (std::size_t i = 0; i < gpu.approximate.size(); i++) {
        const double bound = 2.4e-7 * std::max(1.0, std::fabs(double{executor.approximate[i]}));
        if (!(std::fabs(double{gpu.approximate[i]} - executor.approximate[i]) <= bound))
            fail("approximate", i % kApproximate, gpu.approximate[i], executor.approximate[i]);
    }
    std::printf("%zu values compared, %d differ\n",
                gpu.exact.size() + gpu.sums.size() + gpu.approximate.size(), failures);
    return failures == 0 ? 0 : 1;
}

WgmmaRecording wgmma_inputs() {
    using namespace wgmma_record;
    WgmmaRecording r;
    r.blocks = 60;
    r.a.resize(r.blocks * kRowsA * kDepth);
    r.b.resize(r.blocks * kRowsB * kDepth);
    r.c.resize(r.blocks * kValues);
    r.out.resize(r.blocks * kCases * kValues);
    std::mt19937 generator(2);
    std::normal_distribution<float> normal;
    // Sizes that spread over 2^0 to 2^spread, block by block, so that terms meet the cut at every
    // distance from the largest; some zeros and, in few rows, NaN.
    const auto value = [&](std::size_t block) {
        const unsigned spread = 1 + block % 12;
        const float scale = std::exp2(static_cast<float>(generator() % spread) - 4);
        return generator() % 16 == 0 ? 0.0f : normal(generator) * scale;
    };
    const auto fill = [&](std::vector<std::uint8_t>& codes) {
        for (std::size_t i = 0; i < codes.size(); i++) {
            codes[i] = formats::E4m3::encode(value(i * r.blocks / codes.size()));
            if (generator() % 10000 == 0) codes[i] = formats::E4m3::kNan;
        }
    };
    fill(r.a);
    fill(r.b);
    for (std::size_t i = 0; i < r.c.size(); i++)
        r.c[i] =
            value(i * r.blocks / r.c.size()) * std::exp2(static_cast<float>(generator() % 24) - 16);
    return r;
}

// The accumulator's law is a measured one, and holds bit for bit: a value that differs is a
// failure.
int compare_wgmma() {
    using namespace wgmma_record;
    WgmmaRecording executor = wgmma_inputs(), gpu = executor;
    const Params params{{executor.a.data(), static_cast<i64>(executor.a.size())},
                        {executor.b.data(), static_cast<i64>(executor.b.size())},
                        {executor.c.data(), static_cast<i64>(executor.c.size())},
                        {executor.out.data(), static_cast<i64>(executor.out.size())}};
    const simt::Result result = simt::launch({"record", {executor.blocks}, {128}, kSharedBytes}, {},
                                             [&] { record(params); });
    std::fputs(result.summary().c_str(), stderr);
    if (!result.ok()) return 1;
    if (!record_wgmma_on_gpu(gpu)) {
        std::puts("no GPU with wgmma");
        return 0;
    }
    std::size_t failures = 0, nans = 0;
    for (std::size_t i = 0; i < gpu.out.size(); i++) {
        const float x = gpu.out[i], y = executor.out[i];
        nans += std::isnan(y);
        if (x == y || (std::isnan(x) && std::isnan(y))) continue;
        if (failures++ < 20)
            std::printf("wgmma case %zu value %zu: GPU %.9g executor %.9g\n", i / kValues % kCases,
                        i % kValues, double{x}, double{y});
    }
    std::printf("%zu values of wgmma compared, %zu of them NaN, %zu differ\n", gpu.out.size(), nans,
                failures);
    return failures == 0 ? 0 : 1;
}

// Multicast loads, remote arrivals, and the launcher's cluster on both sides.
int compare_cluster() {
    using namespace cluster_kernel;
    ClusterRecording executor;
    executor.blocks = 64;
    executor.tiles = 50;
    executor.in.resize(executor.tiles * kTileBytes);
    executor.out.resize(executor.blocks * 64);
    std::mt19937 generator(3);
    for (std::uint8_t& byte : executor.in)
        byte = static_cast<std::uint8_t>(generator());
    ClusterRecording gpu = executor;
    const Params params{{executor.in.data(), static_cast<i64>(executor.tiles * kTileBytes)},
                        {executor.out.data(), static_cast<i64>(executor.out.size())},
                        executor.tiles};
    launch::Launcher launcher;
    launcher.run<broadcast<>>("broadcast", {executor.blocks}, kThreads, sizeof(SharedPlan), params,
                              kCluster);
    std::fputs(launcher.result.summary().c_str(), stderr);
    if (!launcher.ok) return 1;
    if (!record_cluster_on_gpu(gpu)) {
        std::puts("no GPU with clusters");
        return 0;
    }
    const bool same = gpu.out == executor.out;
    std::printf("a cluster's multicast loads: %s\n", same ? "the same" : "different sums");
    return same ? 0 : 1;
}

}  // namespace
}  // namespace quatt::test

int main() {
    const int wgmma = quatt::test::compare_wgmma(), cluster = quatt::test::compare_cluster();
    const int others = quatt::test::compare();
    return wgmma != 0 || cluster != 0 ? 1 : others;
}
