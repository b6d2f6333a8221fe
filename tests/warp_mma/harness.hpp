// What the tests of the attention kernels share: which schedule they are built for, data whose
// codes do not depend on the order of sums, and how far the executor's result may be from the
// recipe's emulation. tests/wgmma builds the same tests with QUATT_TEST_WGMMA.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "support/attention.hpp"

namespace quatt::test {

#if defined(QUATT_TEST_WGMMA)
inline constexpr const char* kSchedule = "wgmma";
inline constexpr const char* kRecipes[] = {"fp8"};
inline constexpr const char* kDevices[] = {"simt:sm_90"};
inline constexpr std::int32_t kAccumulator = QUATT_ACCUMULATOR_HOPPER;
#else
inline constexpr const char* kSchedule = "warp_mma";
inline constexpr const char* kRecipes[] = {"bf16", "f16", "fp8"};
// NOTE: they differ in the instruction: the block-scaled one with unit scales, and the plain one.
inline constexpr const char* kDevices[] = {"simt:sm_120", "simt:sm_90"};
inline constexpr std::int32_t kAccumulator = QUATT_ACCUMULATOR_FP32;
#endif
inline constexpr const char* kDevice = kDevices[0];  // takes kSchedule for all of kRecipes

// The n-th, round and round.
[[nodiscard]] inline const char* recipe_at(std::int64_t n) {
    return kRecipes[static_cast<std::size_t>(n) % std::size(kRecipes)];
}
[[nodiscard]] inline const char* device_at(std::int64_t n) {
    return kDevices[static_cast<std::size_t>(n) % std::size(kDevices)];
}

[[nodiscard]] inline bool is(const char* a, const char* b) {
    return std::strcmp(a, b) == 0;
}

// Goes through the cases of a test: all of them at a scale of 1, each tenth at .1.
class Thinner {
public:
    [[nodiscard]] bool skip() { return !thinned(n_++); }

private:
    int n_ = 0;
};

// Inputs of the dtype that the recipe reads; fp8 reads both 16-bit ones.
[[nodiscard]] inline Spec spec_of(const char* recipe, quatt_dtype fp8_input = QUATT_BF16) {
    Spec s;
    s.q = s.k = s.v = is(recipe, "f16") ? QUATT_F16 : is(recipe, "fp8") ? fp8_input : QUATT_BF16;
    s.dim = 64;
    return s;
}

// `make(index)` is the value of each element of a tensor.
inline void fill(Buffer& b, const std::function<double(const Extents&)>& make) {
    std::vector<float> values;
    values.reserve(static_cast<std::size_t>(b.size()));
    for_each_index(extents_of(b.view()),
                   [&](const Extents& i) { values.push_back(static_cast<float>(make(i))); });
    b.set(values);
}

// Rounds to multiples of 2^-10: sums over the keys of a test are then exact in fp32 in any order,
// so kernel and emulation take the same means out of K and V. (Means are rounded to bf16; one that
// rounds the other way changes all codes of its channel.)
[[nodiscard]] inline double on_grid(double x) {
    return std::nearbyint(x * 1024) / 1024;
}

inline void fill_normal(Buffer& b, Random& random, double mean = 0, double deviation = 1) {
    fill(b, [&](const Extents&) { return on_grid(mean + deviation * random.normal()); });
}

// A case with normal data on the grid.
[[nodiscard]] inline Case make_case(const Spec& spec) {
    Case c(spec);
    Random random(spec.seed * 7919 + 1);
    fill_normal(c.q, random, spec.q_mean);
    fill_normal(c.k, random, spec.k_mean);
    fill_normal(c.v, random, spec.v_mean);
    return c;
}

// ---------------------------------------------------------------------------------------------
// Results

struct Results {
    std::vector<double> out;  // row-major as the tensor
    std::vector<double> lse;  // likewise, empty where there is none
    std::int64_t channels = 0;
    Bits bits;
};

[[nodiscard]] inline std::vector<double> values_of(const Buffer& b) {
    std::vector<double> values;
    if (b.present()) {
        const quatt_tensor t = b.view();
        for_each_index(extents_of(t), [&](const Extents& i) { values.push_back(value_at(t, i)); });
    }
    return values;
}

[[nodiscard]] inline Results results_of(const Case& c) {
    return {values_of(c.out),
            values_of(c.lse),
            c.spec.dim_v,
            {c.out.codes(), c.lse.present() ? c.lse.codes() : std::vector<std::uint32_t>()}};
}

// Runs `c` and holds against the run what holds for every run: inputs keep their bytes, the
// workspace is exact (run() watches it, and fills it with NaN), nothing beside out and lse changes.
[[nodiscard]] inline Results compute(Case& c, const char* device, const char* recipe,
                                     const std::function<void(Problem&)>& change = {}) {
    Problem p = c.problem({device, recipe});
    if (is(device, "emulate")) {
        p.recipe.accumulator = kAccumulator;
    } else if (!is(device, "reference")) {
        p.kernel = kSchedule;
    }
    if (change) {
        change(p);
    }
    std::vector<Bytes> before;
    for (const Buffer* b : c.inputs()) {
        before.push_back(b->bytes());
    }
    c.reset_outputs();
    const Status s = run(p, device);
    EXPECT_TRUE(s.ok()) << s.message() << "\n  " << recipe << " on " << device << ": " << c.spec;
    for (std::size_t i = 0; i < before.size(); i++) {
        EXPECT_TRUE(c.inputs()[i]->bytes() == before[i]) << "input " << i << " was written";
    }
    EXPECT_TRUE(c.out.surroundings_intact()) << "written beside out";
    EXPECT_TRUE(!c.lse.present() || c.lse.surroundings_intact()) << "written beside lse";
    return results_of(c);
}

// ---------------------------------------------------------------------------------------------
// Against the emulation at the same key tile. Both make the same codes of Q, K and V and walk the
// same law; what is left:
// - fp32 sums in another order, scales multiplied in another order, and ex2 within 2 ulp: the
//   exponent t is off by some 2^-24 |t|, and with it P and l (measured on N(0,1), where |t| stays
//   below 8: 1e-7 of the largest |v|);
// - codes of P on the other side of a rounding boundary because of that. There are 8 boundaries an
//   octave in E4M3, 128 in bf16 and 1024 in f16: about one code in 10^6, 10^5 and 10^4 at |t| = 8.
// A row without such a code agrees tightly. One with it differs by an ulp of that P, at most 2^-3,
// 2^-7 or 2^-10 of its weight times |v|.

struct Agreement {
    double tight = 0;    // of a row without a code that flipped, in units of the largest |v|
    double flipped = 0;  // share of the rows that may have one
    double flip = 0;     // what such a row may differ by, in units of the largest |v|
    double lse = 0;      // l sums unrounded numbers, so this holds for every row
};

// `largest_t`: of the scores in log2 units. A large one makes every addition of its sum of products
// round at its own size: some sqrt(128) / 2 half ulps on each side.
[[nodiscard]] inline Agreement agreement_of(const char* recipe, double largest_t = 8) {
    const double t = 0x1p-22 + 0x1p-22 * std::max(0.0, largest_t - 8);
    const double share = std::max(1.0, largest_t / 8), lse = 2e-6 + 4 * t;
    if (is(recipe, "fp8")) {
        return {2e-7 + t, std::min(1.0, .01 * share), 0x1p-3, lse};
    }
    if (is(recipe, "f16")) {
        return {2e-7 + t, std::min(1.0, .2 * share), 0x1p-10, lse};
    }
    return {2e-7 + t, std::min(1.0, .05 * share), 0x1p-7, lse};
}

struct Distance {
    std::vector<double> rows;  // largest difference of a row's elements, sorted
    double error = 0, norm = 0, lse = 0;
    bool same_kind = true;  // finite where the other is finite, the same infinity or NaN elsewhere

    [[nodiscard]] double relative() const { return norm > 0 ? std::sqrt(error / norm) : 0; }
};

[[nodiscard]] inline Distance distance(const Results& got, const Results& want) {
    Distance d;
    const auto channels = static_cast<std::size_t>(want.channels);
    const auto alike = [](double a, double b) {
        return std::isfinite(a) ? std::isfinite(b) : std::isnan(a) ? std::isnan(b) : a == b;
    };
    for (std::size_t row = 0; row * channels < want.out.size(); row++) {
        double worst = 0;
        for (std::size_t i = row * channels; i < (row + 1) * channels; i++) {
            const double a = got.out[i], b = want.out[i];
            d.same_kind = d.same_kind && alike(a, b);
            if (std::isfinite(a) && std::isfinite(b)) {
                worst = std::max(worst, std::fabs(a - b));
                d.error += (a - b) * (a - b);
                d.norm += b * b;
            }
        }
        d.rows.push_back(worst);
    }
    for (std::size_t i = 0; i < want.lse.size(); i++) {
        d.same_kind = d.same_kind && alike(got.lse[i], want.lse[i]);
        if (std::isfinite(got.lse[i]) && std::isfinite(want.lse[i])) {
            d.lse = std::max(d.lse, std::fabs(got.lse[i] - want.lse[i]));
        }
    }
    std::sort(d.rows.begin(), d.rows.end());
    return d;
}

[[nodiscard]] inline testing::AssertionResult agree(const Results& got, const Results& want,
                                                    const Agreement& a, double largest_v) {
    const Distance d = distance(got, want);
    if (!d.same_kind) {
        return testing::AssertionFailure() << "NaN or infinite where the emulation is not";
    }
    if (!(d.lse <= a.lse)) {
        return testing::AssertionFailure() << "lse differs by " << d.lse << ", allowed " << a.lse;
    }
    const auto tight = static_cast<std::size_t>(
        std::upper_bound(d.rows.begin(), d.rows.end(), a.tight * largest_v) - d.rows.begin());
    const auto loose = d.rows.size() - tight;
    const double most = 2 + a.flipped * static_cast<double>(d.rows.size());
    if (static_cast<double>(loose) > most) {
        return testing::AssertionFailure()
               << loose << " of " << d.rows.size() << " rows differ by more than "
               << a.tight * largest_v << " (median " << d.rows[d.rows.size() / 2] << ", worst "
               << d.rows.back() << ", rel-L2 " << d.relative() << "); allowed " << most;
    }
    if (!d.rows.empty() && !(d.rows.back() <= (a.flip + a.tight) * largest_v)) {
        return testing::AssertionFailure() << "a row differs by " << d.rows.back() << ", allowed "
                                           << (a.flip + a.tight) * largest_v;
    }
    return testing::AssertionSuccess();
}

// The largest finite |v|, padding that a test poisoned left out.
[[nodiscard]] inline double largest(const Buffer& b) {
    double x = 0;
    for (const double v : values_of(b)) {
        x = std::isfinite(v) && std::fabs(v) < 1e29 ? std::max(x, std::fabs(v)) : x;
    }
    return x;
}

// Device and emulation on the same data.
[[nodiscard]] inline testing::AssertionResult equals_emulation(
    Case& c, const char* device, const char* recipe, double largest_t = 8,
    const std::function<void(Problem&)>& change = {}) {
    const Results want = compute(c, "emulate", recipe, [&](Problem& p) {
        p.key_tile = 64;
        p.splits = 1;
        if (change) {
            change(p);
        }
    });
    const Results got = compute(c, device, recipe, change);
    testing::AssertionResult result =
        agree(got, want, agreement_of(recipe, largest_t), largest(c.v));
    if (!result) {
        std::ostringstream what;
        what << "\n  " << recipe << " on " << device << ": " << c.spec;
        result << what.str();
    }
    return result;
}

}  // namespace quatt::test
