// The figures that docs/recipes.md publishes, and the cases that each rule of a recipe is for,
// through the public API. Also the faults of other libraries that spec tests 6, 7, 10, 29, 30 and
// 31 are about.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "support.hpp"

namespace quatt {
namespace {

using support::bf16;
using support::Case;
using support::gaussian;
using support::max_lse_error;
using support::Options;
using support::Output;
using support::Random;
using support::rel_l2;
using support::run;

using Numbers = std::vector<float> Case::*;

// Changes every number of one input, element by element; the results are rounded to bf16 again.
Case changed(Case c, Numbers input,
             const std::function<double(double x, std::int64_t channel)>& f) {
    std::vector<float>& x = c.*input;
    const std::int64_t width = input == &Case::v ? c.dim_v : c.dim;
    for (std::size_t i = 0; i < x.size(); i++) {
        x[i] = bf16(f(static_cast<double>(x[i]), static_cast<std::int64_t>(i) % width));
    }
    return c;
}

Output exact(const Case& c, Options o = {}) {
    o.out = DType::f32;
    return run(c, "reference", Recipe("bf16"), o);
}

double error_of(const Case& c, const quatt_recipe& r, const Output& e, const Options& o = {}) {
    return rel_l2(c, run(c, "emulate", r, o), e);
}

// ------------------------------------------------------------------------------ published errors

void expect_published(std::int64_t tokens) {
    // A seed of its own: the figures are of the distribution, not of a sample.
    const Case c = gaussian(1000 + static_cast<std::uint64_t>(tokens), tokens, 16, 128, 256);
    const Output e = exact(c);
    for (const std::string& name : Recipe::names()) {
        const Recipe r(name);
        Options o;
        o.out = name == "f16" ? DType::f16 : DType::bf16;
        const Output got = run(c, "emulate", r, o);
        const double error = rel_l2(c, got, e), published = static_cast<double>(r.expected_rel_l2),
                     lse = max_lse_error(got, e);
        EXPECT_NEAR(error, published, .05 * published) << name << ", " << tokens << " keys";
        EXPECT_LE(lse, static_cast<double>(r.expected_lse_error))
            << name << ", " << tokens << " keys";
        std::printf("%-10s %5ld keys: rel-L2 %.5f (published %.5f), LSE %.5f (%.5f)\n",
                    name.c_str(), static_cast<long>(tokens), error, published, lse,
                    static_cast<double>(r.expected_lse_error));
    }
}

TEST(Accuracy, PublishedErrorsAt1024) {
    QUATT_NEEDS_WHOLE_SAMPLE();
    expect_published(1024);
}

TEST(Accuracy, PublishedErrorsAt4096) {
    QUATT_NEEDS_WHOLE_SAMPLE();
    expect_published(4096);
}

// Without the mean row that adds Q's block mean back, nvfp4 is at .208.
TEST(Accuracy, MeanRowOfNvfp4) {
    QUATT_NEEDS_WHOLE_SAMPLE();
    const Case c = gaussian(2, 1024, 16, 128, 256);
    Recipe r("nvfp4");
    r.q_mean_term = 0;
    const double error = error_of(c, r, exact(c));
    std::printf("nvfp4 without the mean row %.4f\n", error);
    EXPECT_NEAR(error, .208, .05 * .208);
}

// ---------------------------------------------------------------------------------------- means

TEST(Accuracy, MeansOfKAndV) {
    QUATT_NEEDS_WHOLE_SAMPLE();
    const auto sign = [](std::int64_t d) { return d * 5 % 7 < 3 ? 1.0 : -1.0; };
    const Case plain = gaussian(3, 1024, 16, 128, 256);
    const Case k10 =
        changed(plain, &Case::k, [&](double x, std::int64_t d) { return x + 10 * sign(d); });
    const Case v2 = changed(plain, &Case::v, [](double x, std::int64_t) { return x + 2; });
    const Output e = exact(plain), e_k10 = exact(k10), e_v2 = exact(v2);
    for (const std::string& name : Recipe::names()) {
        const Recipe r(name);
        const double error = error_of(plain, r, e), with_k = error_of(k10, r, e_k10);
        const double with_v = rel_l2(v2, run(v2, "emulate", r), e_v2,
                                     2.0);  // relative to what is left without the mean
        std::printf("%-10s plain %.4f, K mean 10 %.4f (%+.1f %%), V mean 2 %.4f (%+.1f %%)\n",
                    name.c_str(), error, with_k, 100 * (with_k / error - 1), with_v,
                    100 * (with_v / error - 1));
        const bool wide = name == "bf16" || name == "f16";  // 16 bits bear either mean
        if (name != "fp8_head") {
            EXPECT_NEAR(with_k, error, .02 * error) << name << ": K's mean is taken out";
        } else {
            EXPECT_GT(with_k, 3 * error) << name << " cannot be centred";
        }
        if (name == "fp8_head" || name == "nvfp4") {
            EXPECT_GT(with_v, 1.5 * error) << name << ": V's mean stays in";
        } else if (!wide) {
            EXPECT_NEAR(with_v, error, .02 * error) << name << ": V's mean is taken out";
        }
        EXPECT_LE(max_lse_error(run(k10, "emulate", r), e_k10),
                  name == "fp8_head" ? 2.0 : 1.1 * static_cast<double>(r.expected_lse_error))
            << name << ": smoothing is undone in LSE";
    }
}

TEST(Accuracy, MeanOfQCosts) {
    QUATT_NEEDS_WHOLE_SAMPLE();
    for (int seed = 0; seed < 4; seed++) {
        const Case c = changed(gaussian(4 + static_cast<std::uint64_t>(seed), 1024, 16, 128, 256),
                               &Case::q, [](double x, std::int64_t) { return x + 5; });
        const Output e = exact(c);
        for (const std::string& name : Recipe::names()) {
            std::printf("%-10s Q mean 5: %.4f\n", name.c_str(), error_of(c, Recipe(name), e));
        }
    }
}

// ---------------------------------------------------------------------------------------- sinks

// One key at `position` of the row with weight `weight` and V = 0; the others have scores of
// standard deviation .5.
Case with_sink(std::uint64_t seed, std::int64_t tokens, double position, double weight) {
    constexpr std::int64_t kDim = 128;
    constexpr double kAlong = 3, kAcross = .42;  // q = kAlong u + kAcross g, g across u: a score
                                                 // has std |q| / sqrt(128) = .5
    Case c = gaussian(seed, tokens, 1, kDim, 16);
    Random random(seed + 1000);
    std::vector<double> u(kDim);
    double length = 0;
    for (double& x : u) {
        x = random.normal();
        length += x * x;
    }
    for (double& x : u) {
        x /= std::sqrt(length);
    }
    const auto sink =
        static_cast<std::size_t>(std::llround(position * static_cast<double>(tokens - 1)));
    const double logit = std::log(weight / (1 - weight) * static_cast<double>(tokens)) + .125,
                 size = logit * std::sqrt(static_cast<double>(kDim)) / kAlong;
    for (std::size_t i = 0; i < static_cast<std::size_t>(tokens); i++) {
        double along = 0;
        for (std::size_t d = 0; d < kDim; d++) {
            along += static_cast<double>(c.q[i * kDim + d]) * u[d];
        }
        for (std::size_t d = 0; d < kDim; d++) {
            c.q[i * kDim + d] = bf16(
                kAcross * (static_cast<double>(c.q[i * kDim + d]) - along * u[d]) + kAlong * u[d]);
        }
    }
    for (std::size_t d = 0; d < kDim; d++) {
        c.k[sink * kDim + d] = bf16(size * u[d]);
        c.v[sink * kDim + d] = 0;
    }
    return c;
}


TEST(AccuracyX, SinkSeeds) {
    for (const std::int64_t tokens : {8192, 32768}) {
        for (std::uint64_t seed = 1; seed <= 6; seed++) {
            const Case c = with_sink(seed, tokens, .3, .9);
            const Output e = exact(c);
            Recipe wide("fp8");
            wide.q = wide.k = Recipe("bf16").q;
            Recipe exact_v = wide;
            exact_v.v = Recipe("bf16").q;
            Recipe p_off("fp8");
            p_off.p_format = QUATT_FORMAT_F32;
            std::printf("%5ld keys seed %d fp8 %.4f  int8_fp8 %.4f  fp8 with bf16 QK %.4f, with bf16 QKV %.4f, P exact %.4f; nvfp4 %.4f\n", (long)tokens, (int)seed, error_of(c, Recipe("fp8"), e),
                        error_of(c, Recipe("int8_fp8"), e), error_of(c, wide, e), error_of(c, exact_v, e), error_of(c, p_off, e), error_of(c, Recipe("nvfp4"), e));
        }
    }
}
TEST(AccuracyX, LseSeeds) {
    for (const std::int64_t tokens : {1024, 4096}) {
        for (std::uint64_t seed = 1; seed <= 8; seed++) {
            const Case c = gaussian(seed, tokens, tokens == 1024 ? 16 : 4, 128, 256);
            const Output e = exact(c);
            std::printf("%5ld keys seed %d:", (long)tokens, (int)seed);
            for (const std::string& name : Recipe::names()) {
                const Output g = run(c, "emulate", Recipe(name));
                double ss = 0;
                for (std::size_t i = 0; i < g.lse.size(); i++) {
                    const double x = static_cast<double>(g.lse[i]) - static_cast<double>(e.lse[i]);
                    ss += x * x;
                }
                std::printf("  %s %.4f (rms %.5f)", name.c_str(), max_lse_error(g, e), std::sqrt(ss / static_cast<double>(g.lse.size())));
            }
            std::printf("\n");
        }
    }
}

TEST(Accuracy, Sinks) {
    QUATT_NEEDS_WHOLE_SAMPLE();
    for (const std::int64_t tokens : {8192, 32768}) {
        for (const double weight : {.5, .9, .97}) {
            for (const double position : {0.0, .3, .5, 1.0}) {
                const Case c = with_sink(5, tokens, position, weight);
                const Output e = exact(c);
                const double error = error_of(c, Recipe("fp8"), e);
                std::printf("%5ld keys, weight %.2f at %.1f: fp8 %.4f\n", static_cast<long>(tokens),
                            weight, position, error);
            }
        }
    }
}

}  // namespace
}  // namespace quatt
