// What the tests of attention share: the rows of the support table that they run over, data whose
// codes do not depend on the order of sums, and how far a result may be from the recipe's
// emulation.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <iterator>
#include <ostream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "cpu/sums.hpp"
#include "support/attention.hpp"

namespace quatt::test {

// ---------------------------------------------------------------------------------------------
// What is tested: rows of the support table

// A kernel of the support table on one device, and the recipes that it takes there.
struct Subject {
    std::string device, kernel;
    std::vector<const char*> recipes;
    std::int32_t accumulator = QUATT_ACCUMULATOR_FP32;  // of its emulation
    // Of a long list of cases it takes one in so many: 1 for the first device of a kernel. The
    // others differ from it in an instruction.
    int one_in = 1;

    [[nodiscard]] bool is_gpu() const { return device.starts_with("simt:"); }
    friend std::ostream& operator<<(std::ostream& out, const Subject& s) {
        return out << s.kernel << " on " << s.device;
    }
};

[[nodiscard]] inline bool is(const char* a, const char* b) {
    return std::strcmp(a, b) == 0;
}

// Inputs of the dtype that the recipe reads; fp8 reads both 16-bit ones.
[[nodiscard]] inline Spec spec_of(const char* recipe, quatt_dtype fp8_input = QUATT_BF16) {
    Spec s;
    s.q = s.k = s.v = is(recipe, "f16") ? QUATT_F16 : is(recipe, "fp8") ? fp8_input : QUATT_BF16;
    s.dim = 64;
    return s;
}

// The devices that may serve a row of the table.
[[nodiscard]] inline std::vector<std::string> devices_of(const quatt_kernel_info& row) {
    if (!is(row.device, "simt")) {
        return {row.device};
    }
    std::vector<std::string> devices;
    std::istringstream text(row.compute);  // "9.0 12.0 12.1"
    for (std::string version; text >> version;) {
        const std::size_t point = version.find('.');
        // 12.1 runs the binary of 12.0.
        if (version.substr(point + 1) == "0") {
            devices.insert(devices.begin(), "simt:sm_" + version.substr(0, point) + "0");
        }
    }
    return devices;
}

// All rows of the support table on host devices, and what they take on this machine.
[[nodiscard]] inline const std::vector<Subject>& subjects() {
    static const std::vector<Subject> all = [] {
        std::vector<Subject> found;
        for (std::int32_t i = 0; i < quatt_kernel_count(); i++) {
            quatt_kernel_info row{};
            row.struct_size = sizeof row;
            EXPECT_EQ(quatt_kernel_get_info(i, &row), QUATT_OK) << quatt_last_error();
            if (is(row.device, "cuda") || is(row.device, "emu")) {
                continue;
            }
            int one_in = 1;
            for (const std::string& device : devices_of(row)) {
                Subject s{device, row.name, {}, QUATT_ACCUMULATOR_FP32, one_in};
                for (std::int32_t n = 0; n < quatt_recipe_count(); n++) {
                    Spec spec = spec_of(quatt_recipe_name(n));
                    spec.tokens_q = spec.tokens_k = 1;
                    Case c(spec);
                    const Problem p = c.problem({device.c_str(), quatt_recipe_name(n), row.name});
                    if (query(p, device).ok()) {
                        s.recipes.push_back(quatt_recipe_name(n));
                        if (explain(p, device).find("accumulator hopper") != std::string::npos) {
                            s.accumulator = QUATT_ACCUMULATOR_HOPPER;
                        }
                    }
                }
                if (!s.recipes.empty()) {
                    found.push_back(s);
                    one_in = 3;
                }
            }
        }
        return found;
    }();
    return all;
}

// The GPU kernels in the executor.
[[nodiscard]] inline std::vector<Subject> gpu_subjects() {
    std::vector<Subject> some;
    std::copy_if(subjects().begin(), subjects().end(), std::back_inserter(some),
                 [](const Subject& s) { return s.is_gpu(); });
    return some;
}

// All that compute by the softmax rule with code of their own: those, and the device cpu's levels.
[[nodiscard]] inline std::vector<Subject> gpu_and_cpu_subjects() {
    std::vector<Subject> some;
    std::copy_if(subjects().begin(), subjects().end(), std::back_inserter(some),
                 [](const Subject& s) { return s.is_gpu() || s.kernel.starts_with("cpu_"); });
    return some;
}

// The one that the running test is about.
[[nodiscard]] inline Subject& subject() {
    static Subject now;
    return now;
}
[[nodiscard]] inline const char* device() {
    return subject().device.c_str();
}
[[nodiscard]] inline const char* kernel() {
    return subject().kernel.c_str();
}
[[nodiscard]] inline const std::vector<const char*>& recipes() {
    return subject().recipes;
}
[[nodiscard]] inline bool takes(const char* recipe) {
    return std::any_of(recipes().begin(), recipes().end(),
                       [&](const char* r) { return is(r, recipe); });
}
// The n-th, round and round.
[[nodiscard]] inline const char* recipe_at(std::int64_t n) {
    return recipes()[static_cast<std::size_t>(n) % recipes().size()];
}
[[nodiscard]] inline Way way(const char* recipe) {
    return {device(), recipe, kernel()};
}

// Makes a row of the table the subject; false where there is none such.
inline bool use(const std::string& device, const std::string& kernel) {
    for (const Subject& s : subjects()) {
        if (s.device == device && s.kernel == kernel) {
            subject() = s;
            return true;
        }
    }
    return false;
}

class SubjectTest : public testing::TestWithParam<Subject> {
protected:
    void SetUp() override { subject() = GetParam(); }
};

#define QUATT_SUBJECTS(suite, subjects)                                                            \
    class suite : public SubjectTest {};                                                           \
    INSTANTIATE_TEST_SUITE_P(Kernels, suite, testing::ValuesIn(subjects), [](const auto& tested) { \
        std::string name = tested.param.device + "_" + tested.param.kernel;                        \
        std::replace(name.begin(), name.end(), ':', '_');                                          \
        return name;                                                                               \
    })

// Is number n of a fixed list of cases run? All are at a scale of 1, one in ten at .1; of those the
// subject takes its share.
[[nodiscard]] inline bool taken(int n) {
    return thinned(n) && Random(static_cast<std::uint64_t>(n)).in(0, subject().one_in - 1) == 0;
}

// Goes through the cases of a test.
class Thinner {
public:
    [[nodiscard]] bool skip() { return !taken(n_++); }

private:
    int n_ = 0;
};

// `make(index)` is the value of each element of a tensor.
inline void fill(Buffer& b, const std::function<double(const Extents&)>& make) {
    std::vector<float> values;
    values.reserve(static_cast<std::size_t>(b.size()));
    for_each_index(extents_of(b.view()),
                   [&](const Extents& i) { values.push_back(static_cast<float>(make(i))); });
    b.set(values);
}

// Rounds to multiples of 2^-10: sums over the keys of a test are then exact in fp32 in any order.
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
        p.recipe.accumulator = subject().accumulator;
    } else if (!is(device, "reference")) {
        p.kernel = kernel();
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
// same rule; what is left:
// - fp32 sums in another order, scales multiplied in another order, and ex2 within 2 ulp: the
//   exponent t is off by some 2^-24 |t|, and with it P and l (measured on N(0,1), where |t| stays
//   below 8: 1e-7 of the largest |v|);
// - codes of P on the other side of a rounding boundary because of that. There are 8 boundaries an
//   octave in E4M3, 128 in bf16 and 1024 in f16: about one code in 10^6, 10^5 and 10^4 at |t| = 8.
// A row without such a code agrees tightly. One with it differs by an ulp of that P, at most 2^-3,
// 2^-7 or 2^-10 of its weight times |v|.
// The device cpu sums in yet another order, `cpu_avx512_fp16` in fewer bits: there the whole
// counts.

struct Agreement {
    double tight = 0;     // of a row without a code that flipped, in units of the largest |v|
    double flipped = 0;   // probability that a code of P flips
    double flip = 0;      // what a row with one may differ by, in units of the largest |v|
    double lse = 0;       // l sums unrounded numbers, so this holds for every row
    double relative = 0;  // if not 0, rel-L2 of the whole instead of the three above
};

// `largest_t`: of the scores in log2 units. A large one makes every addition of its sum of products
// round at its own size: some sqrt(128) / 2 half ulps on each side.
[[nodiscard]] inline Agreement agreement_of(const char* recipe, double largest_t = 8) {
    const double t = 0x1p-22 + 0x1p-22 * std::max(0.0, largest_t - 8);
    const double share = std::max(1.0, largest_t / 8), lse = 2e-6 + 4 * t;
    if (is(device(), "cpu")) {
        // As tests/cpu/levels_test.cpp has it for |t| of some 8.
        const double sums = short_sums(kernel(), Recipe{std::string(recipe)});
        return {.lse = lse, .relative = std::max(1e-4 * share, sums)};
    }
    if (is(recipe, "fp8")) {
        return {2e-7 + t, 1e-6 * share, 0x1p-3, lse};
    }
    if (is(recipe, "f16")) {
        return {2e-7 + t, 1e-4 * share, 0x1p-10, lse};
    }
    return {2e-7 + t, 1e-5 * share, 0x1p-7, lse};
}

// How many of `rows` rows of `keys` keys may have a code that flipped: so many that more are rarer
// than `rare`. Data is the same in every run, so a case that is rarer than that says so itself.
[[nodiscard]] inline std::int64_t rows_that_may_flip(double of_a_code, std::int64_t rows,
                                                     std::int64_t keys, double rare) {
    const double p = 1 - std::pow(1 - std::min(of_a_code, 1.0), static_cast<double>(keys));
    if (p >= 1) {
        return rows;
    }
    // Binomial: P(n) from P(n - 1).
    double of_n = std::pow(1 - p, static_cast<double>(rows)), more = 1 - of_n;
    std::int64_t n = 0;
    for (; n < rows && more > rare; n++) {
        of_n *= static_cast<double>(rows - n) / static_cast<double>(n + 1) * p / (1 - p);
        more -= of_n;
    }
    return n;
}
inline constexpr double kRareInFixedData = 1e-2, kRareInRandomData = 1e-7;

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

// `may_flip`: rows that may have a code that flipped.
[[nodiscard]] inline testing::AssertionResult agree(const Results& got, const Results& want,
                                                    const Agreement& a, double largest_v,
                                                    std::int64_t may_flip) {
    const Distance d = distance(got, want);
    if (!d.same_kind) {
        return testing::AssertionFailure() << "NaN or infinite where the emulation is not";
    }
    if (!(d.lse <= a.lse)) {
        return testing::AssertionFailure() << "lse differs by " << d.lse << ", allowed " << a.lse;
    }
    if (a.relative > 0) {
        return d.relative() <= a.relative ? testing::AssertionSuccess()
                                          : testing::AssertionFailure()
                                                << "rel-L2 is " << d.relative() << ", allowed "
                                                << a.relative;
    }
    const auto tight = std::upper_bound(d.rows.begin(), d.rows.end(), a.tight * largest_v);
    const auto loose = d.rows.end() - tight;
    if (loose > may_flip) {
        return testing::AssertionFailure()
               << loose << " of " << d.rows.size() << " rows differ by more than "
               << a.tight * largest_v << " (median " << d.rows[d.rows.size() / 2] << ", worst "
               << d.rows.back() << ", rel-L2 " << d.relative() << "); allowed " << may_flip;
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

// Keys of a row at most.
[[nodiscard]] inline std::int64_t keys_of(const Spec& s) {
    const std::vector<std::int32_t>& lens = s.k_lens.empty() ? s.q_lens : s.k_lens;
    return s.packed && !lens.empty() ? *std::max_element(lens.begin(), lens.end()) : s.tokens_k;
}

// How the subject's results are compared with its emulation's.
struct Comparison {
    double largest_t = 8;  // of the scores, in log2 units
    std::function<void(Problem&)> change = {};
    double rare = kRareInFixedData;
    std::int64_t may_flip = -1;  // of a case whose data is fixed, what was seen; -1: by `rare`
};

[[nodiscard]] inline testing::AssertionResult agree(const Results& got, const Results& want,
                                                    const Case& c, const char* recipe,
                                                    const Comparison& how = {}) {
    const Agreement a = agreement_of(recipe, how.largest_t);
    const auto rows =
        static_cast<std::int64_t>(want.out.size()) / std::max<std::int64_t>(want.channels, 1);
    return agree(got, want, a, largest(c.v),
                 how.may_flip >= 0
                     ? how.may_flip
                     : rows_that_may_flip(a.flipped, rows, keys_of(c.spec), how.rare));
}

// The subject and its emulation on the same data.
[[nodiscard]] inline testing::AssertionResult equals_emulation(Case& c, const char* recipe,
                                                               const Comparison& how = {}) {
    const Results want = compute(c, "emulate", recipe, [&](Problem& p) {
        p.key_tile = 64;
        p.splits = 1;
        if (how.change) {
            how.change(p);
        }
    });
    const Results got = compute(c, device(), recipe, how.change);
    testing::AssertionResult result = agree(got, want, c, recipe, how);
    if (!result) {
        std::ostringstream what;
        what << "\n  " << recipe << " by " << subject() << ": " << c.spec;
        result << what.str();
    }
    return result;
}

}  // namespace quatt::test
