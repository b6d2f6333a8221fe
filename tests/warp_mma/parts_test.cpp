// The parts that attention kernels may be put together from and that no instance of the library has
// yet: walks over a range and over a list of key tiles, and a score modifier.
#include <limits>

#include "warp_mma/instances.hpp"

namespace quatt::test {
namespace {

#if defined(QUATT_TEST_WGMMA)
template <class Parts>
using Of = wgmma::Config<softmax::Fp8, 64, Parts>;
template <class C>
using Params = wgmma::WgmmaParams<C>;
template <class C>
void launch(launch::Launcher& launcher, const Params<C>& p, std::uint32_t blocks) {
    launcher.run<wgmma::attention<C>>("attention", {blocks}, C::kThreads,
                                      sizeof(wgmma::SharedPlan<C>), p);
}
constexpr const char* kRecipe = "fp8";
#else
template <class Parts>
using Of = warp_mma::Config<softmax::Fp8, 64, 1, warp_mma::Instruction::kBlockScaled, Parts>;
template <class C>
using Params = warp_mma::WarpMmaParams<C>;
template <class C>
void launch(launch::Launcher& launcher, const Params<C>& p, std::uint32_t blocks) {
    launcher.run<warp_mma::attention<C>>("attention", {blocks}, C::kThreads,
                                         sizeof(warp_mma::SharedPlan<C>), p);
}
constexpr const char* kRecipe = "fp8";
#endif
constexpr std::int64_t kIntervalKeys = 2304, kTile = 64;

// What the next run hands to its walk and modifier; one test at a time.
template <class C>
typename C::Walk::Params walk_params;

template <class C>
void attend(launch::Launcher& launcher, const schedule::AttendParams& params,
            std::uint32_t multiprocessors) {
    launch(launcher, Params<C>{params, walk_params<C>, {}}, multiprocessors);
}

// ---------------------------------------------------------------- a range

struct RangeParts : Whole<softmax::Fp8> {
    template <std::uint32_t IntervalTiles>
    using Walk = worklist::TileRange<IntervalTiles>;
};

// Out and LSE of the whole from those of its splits.
Results merged(const std::vector<Results>& splits) {
    Results all = splits[0];
    const auto channels = static_cast<std::size_t>(all.channels);
    for (std::size_t token = 0; token < all.out.size() / channels; token++) {
        // One head: lse [1, 1, tokens].
        double top = -std::numeric_limits<double>::infinity(), sum = 0;
        for (const Results& r : splits) {
            top = std::max(top, r.lse[token]);
        }
        std::vector<double> out(channels);
        for (const Results& r : splits) {
            const double weight = std::exp(r.lse[token] - top);
            sum += weight;
            for (std::size_t d = 0; d < channels; d++) {
                out[d] += weight * r.out[token * channels + d];
            }
        }
        all.lse[token] = top + std::log(sum);
        for (std::size_t d = 0; d < channels; d++) {
            all.out[token * channels + d] = out[d] / sum;
        }
    }
    return all;
}

TEST(Parts, SplitsOfTheKeysMergeToTheWhole) {
    using C = Of<RangeParts>;
    for (const bool causal : {false, true}) {
        Spec s = spec_of(kRecipe);
        s.heads_q = 1;
        s.tokens_q = 70;
        s.tokens_k = 2 * kIntervalKeys + 100;  // three intervals
        s.causal = causal;
        Case c = make_case(s);
        for (const std::int32_t splits : {1, 2, 3, 5}) {  // of five, two are empty
            const Results want = compute(c, "emulate", kRecipe, [&](Problem& p) {
                p.key_tile = kTile;
                p.splits = splits;
            });
            std::vector<Results> parts;
            for (std::int32_t i = 0; i < splits; i++) {
                walk_params<C> = {i, splits};
                const Outcome o = run_stages(c, kRecipe, {}, attend<C>);
                EXPECT_TRUE(o.report.ok()) << o.report.summary();
                parts.push_back(o.results);
            }
            EXPECT_TRUE(agree(merged(parts), want, c, kRecipe))
                << splits << " splits" << (causal ? ", causal" : "");
            if (splits == 1) {
                EXPECT_EQ(parts[0].bits, run_stages(c, kRecipe).bits);
            }
        }
    }
}

// ---------------------------------------------------------------- a list

struct ListParts : Whole<softmax::Fp8> {
    template <std::uint32_t IntervalTiles>
    using Walk = worklist::TileList<IntervalTiles, Of<Whole<softmax::Fp8>>::kRows>;
};

// All tiles in a list: the bits of the kernel without one.
TEST(Parts, AListOfAllTilesIsTheWholeWalk) {
    using C = Of<ListParts>;
    Spec s = spec_of(kRecipe);
    s.heads_q = 2;
    s.tokens_q = 70;
    s.tokens_k = kIntervalKeys + 165;
    Case c = make_case(s);
    std::vector<std::int32_t> tiles(2 * 39), counts(2, 39);
    for (std::size_t i = 0; i < tiles.size(); i++) {
        tiles[i] = static_cast<std::int32_t>(i % 39);
    }
    walk_params<C> = {{tiles.data(), 78}, {counts.data(), 2}, 1, 39};
    const Outcome o = run_stages(c, kRecipe, {}, attend<C>);
    EXPECT_TRUE(o.report.ok()) << o.report.summary();
    EXPECT_EQ(o.bits, run_stages(c, kRecipe).bits);
}

// Some tiles, and none: what attention to those keys alone gives. Odd and even counts, and the last
// tile with its tail.
TEST(Parts, AListOfSomeTiles) {
    using C = Of<ListParts>;
    for (const std::vector<std::int32_t>& list :
         {std::vector<std::int32_t>{0}, {5}, {1, 4}, {0, 2, 5}, {0, 1, 3, 5}, {}}) {
        Spec s = spec_of(kRecipe);
        s.heads_q = 1;
        s.tokens_q = 20;
        s.tokens_k = 5 * kTile + 20;
        Case c = make_case(s);
        std::vector<std::int32_t> tiles = list, counts = {static_cast<std::int32_t>(list.size())};
        tiles.resize(6, 1 << 20);  // behind the list: never read
        walk_params<C> = {{tiles.data(), 6}, {counts.data(), 1}, 1, 6};
        const Outcome o = run_stages(c, kRecipe, {}, attend<C>);
        EXPECT_TRUE(o.report.ok()) << o.report.summary();
        // In fp64, over the keys of the list.
        const std::vector<double> q = values_of(c.q), k = values_of(c.k), v = values_of(c.v);
        double error = 0, norm = 0;
        for (std::size_t row = 0; row < 20; row++) {
            double sum = 0;
            std::vector<double> out(64);
            for (const std::int32_t tile : list) {
                for (std::int64_t j = tile * kTile;
                     j < std::min<std::int64_t>(s.tokens_k, (tile + 1) * kTile); j++) {
                    double score = 0;
                    for (std::size_t d = 0; d < 64; d++) {
                        score += q[row * 64 + d] * k[static_cast<std::size_t>(j) * 64 + d];
                    }
                    const double weight = std::exp(score / 8);
                    sum += weight;
                    for (std::size_t d = 0; d < 64; d++) {
                        out[d] += weight * v[static_cast<std::size_t>(j) * 64 + d];
                    }
                }
            }
            if (list.empty()) {
                EXPECT_EQ(o.results.lse[row], -std::numeric_limits<double>::infinity());
            } else {
                EXPECT_NEAR(o.results.lse[row], std::log(sum), .1);
            }
            for (std::size_t d = 0; d < 64; d++) {
                const double want = list.empty() ? 0 : out[d] / sum,
                             got = o.results.out[row * 64 + d];
                error += (got - want) * (got - want);
                norm += want * want;
            }
        }
        // Recipe fp8 errs by .053 at N(0,1); a tile too much or too few by more than .3.
        EXPECT_LE(std::sqrt(error), .1 * std::sqrt(norm)) << list.size() << " tiles";
    }
}

// ---------------------------------------------------------------- a score modifier

// t falls by slope for each key of distance, as in ALiBi.
struct Slope {
    static constexpr bool kChangesScores = true;
    struct Params {};
    static float apply(const Params&, float t, std::uint32_t, std::int32_t row, std::int32_t key) {
        return t - .01f * static_cast<float>(row < key ? key - row : row - key);
    }
};
struct SlopeParts : Whole<softmax::Fp8> {
    using Modifier = Slope;
};

TEST(Parts, AScoreModifier) {
    using C = Of<SlopeParts>;
    Spec s = spec_of(kRecipe);
    s.heads_q = 1;
    s.tokens_q = 100;
    s.tokens_k = 300;
    Case c = make_case(s);
    walk_params<C> = {};
    const Outcome o = run_stages(c, kRecipe, {}, attend<C>);
    EXPECT_TRUE(o.report.ok()) << o.report.summary();
    const std::vector<double> q = values_of(c.q), k = values_of(c.k), v = values_of(c.v);
    double error = 0, norm = 0;
    for (std::size_t row = 0; row < 100; row++) {
        double sum = 0;
        std::vector<double> out(64);
        for (std::size_t j = 0; j < 300; j++) {
            double score = 0;
            for (std::size_t d = 0; d < 64; d++) {
                score += q[row * 64 + d] * k[j * 64 + d];
            }
            const double distance = std::fabs(static_cast<double>(row) - static_cast<double>(j));
            const double weight = std::exp2(score / 8 * 1.4426950408889634 - .01 * distance);
            sum += weight;
            for (std::size_t d = 0; d < 64; d++) {
                out[d] += weight * v[j * 64 + d];
            }
        }
        for (std::size_t d = 0; d < 64; d++) {
            const double want = out[d] / sum, got = o.results.out[row * 64 + d];
            error += (got - want) * (got - want);
            norm += want * want;
        }
    }
    EXPECT_LE(std::sqrt(error), .1 * std::sqrt(norm));
    EXPECT_NE(o.bits, run_stages(c, kRecipe).bits);
}

}  // namespace
}  // namespace quatt::test
