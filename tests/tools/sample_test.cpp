#include "sample.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <complex>
#include <cstddef>
#include <cstring>
#include <set>
#include <span>

namespace quatt::tools {
namespace {

SampleSpec spec_of(SampleKind kind, std::vector<std::int64_t> segments, std::int64_t heads_q,
                   std::int64_t heads_kv, std::int64_t head_dim) {
    SampleSpec spec = SampleSpec::defaults(kind);
    spec.segment_tokens = std::move(segments);
    spec.heads_q = heads_q;
    spec.heads_kv = heads_kv;
    spec.head_dim = head_dim;
    return spec;
}

struct Moments {
    double mean;
    double std_dev;
    double kurtosis;
};

template <class Range>
Moments moments_of(const Range& values) {
    double sum = 0.0;
    for (const double x : values)
        sum += x;
    const auto n = static_cast<double>(values.size());
    const double mean = sum / n;
    double second = 0.0;
    double fourth = 0.0;
    for (const double x : values) {
        const double square = (x - mean) * (x - mean);
        second += square;
        fourth += square * square;
    }
    return {mean, std::sqrt(second / n), fourth * n / (second * second)};
}

// Channel c of head h over all tokens of a [T, H, D] tensor.
std::vector<double> channel(const std::vector<float>& tensor, std::size_t heads, std::size_t dim,
                            std::size_t h, std::size_t c) {
    std::vector<double> out;
    for (std::size_t i = h * dim + c; i < tensor.size(); i += heads * dim)
        out.push_back(tensor[i]);
    return out;
}

std::span<const float> row_of(const std::vector<float>& tensor, std::size_t heads, std::size_t dim,
                              std::size_t token, std::size_t head) {
    return std::span(tensor).subspan((token * heads + head) * dim, dim);
}

double dot(std::span<const float> a, std::span<const float> b) {
    double sum = 0.0;
    for (std::size_t c = 0; c < a.size(); ++c)
        sum += double{a[c]} * double{b[c]};
    return sum;
}

double correlation(const std::vector<double>& a, const std::vector<double>& b) {
    const Moments ma = moments_of(a);
    const Moments mb = moments_of(b);
    double sum = 0.0;
    for (std::size_t i = 0; i < a.size(); ++i)
        sum += (a[i] - ma.mean) * (b[i] - mb.mean);
    return sum / static_cast<double>(a.size()) / (ma.std_dev * mb.std_dev);
}

// FNV-1a over the bytes.
std::uint64_t hash_of(const Sample& sample) {
    std::uint64_t hash = 0xCBF2'9CE4'8422'2325u;
    for (const auto* tensor : {&sample.q, &sample.k, &sample.v}) {
        for (const std::byte byte : std::as_bytes(std::span(*tensor))) {
            hash = (hash ^ static_cast<std::uint64_t>(byte)) * 0x100'0000'01B3u;
        }
    }
    return hash;
}

TEST(Sample, KindsHaveNames) {
    for (const char* name : {"gaussian", "dit", "outlier", "sink"}) {
        const std::optional<SampleKind> kind = sample_kind_from_name(name);
        ASSERT_TRUE(kind) << name;
        EXPECT_EQ(sample_kind_name(*kind), name);
    }
    EXPECT_FALSE(sample_kind_from_name("Gaussian"));
}

// The bits are part of the interface: a published number can be made again anywhere.
TEST(Sample, BitsNeverChange) {
    const std::vector<std::pair<SampleKind, std::uint64_t>> golden = {
        {SampleKind::kGaussian, 0x1703CE471A950BD6},
        {SampleKind::kDit, 0xB3E4BC461D5B45AF},
        {SampleKind::kOutlier, 0x2409CE6D25C55ED1},
        {SampleKind::kSink, 0x6ED341689C9E6C19},
    };
    for (const auto& [kind, hash] : golden) {
        SampleSpec spec = spec_of(kind, {70, 0, 1, 29}, 4, 2, 24);
        EXPECT_EQ(hash_of(make_sample(spec)), hash)
            << sample_kind_name(kind) << std::hex << " 0x" << hash_of(make_sample(spec));
        spec.seed = 2;
        EXPECT_NE(hash_of(make_sample(spec)), hash) << sample_kind_name(kind);
    }
}

TEST(Sample, HasExtentsAndMetadata) {
    const Sample sample = make_sample(spec_of(SampleKind::kGaussian, {5, 0, 7}, 6, 2, 16));
    EXPECT_EQ(sample.q.size(), 12u * 6 * 16);
    EXPECT_EQ(sample.k.size(), 12u * 2 * 16);
    EXPECT_EQ(sample.v.size(), 12u * 2 * 16);
    EXPECT_EQ(sample.cu_seqlens, (std::vector<std::int32_t>{0, 5, 5, 12}));
    EXPECT_EQ(sample.metadata.at("kind"), "gaussian");
    EXPECT_EQ(sample.metadata.at("seed"), "1");
    EXPECT_EQ(sample.metadata.at("softmax_scale"), "0.25");
    EXPECT_EQ(sample.metadata.at("causal"), "false");
}

TEST(Sample, EveryKindTakesOddExtents) {
    for (const SampleKind kind :
         {SampleKind::kGaussian, SampleKind::kDit, SampleKind::kOutlier, SampleKind::kSink}) {
        for (const std::int64_t dim : {1, 2, 3, 5, 7, 17}) {
            for (const std::int64_t tokens : {1, 2, 3, 13}) {
                const Sample sample = make_sample(spec_of(kind, {tokens, 0, 1}, 3, 1, dim));
                for (const auto* tensor : {&sample.q, &sample.k, &sample.v}) {
                    EXPECT_TRUE(
                        std::ranges::all_of(*tensor, [](float x) { return std::isfinite(x); }))
                        << sample_kind_name(kind) << " " << dim << " " << tokens;
                }
            }
        }
    }
}

TEST(Sample, GaussianIsGaussian) {
    const Sample sample = make_sample(spec_of(SampleKind::kGaussian, {2000}, 4, 4, 64));
    for (const auto* tensor : {&sample.q, &sample.k, &sample.v}) {
        const auto n = static_cast<double>(tensor->size());
        const Moments moments = moments_of(*tensor);
        EXPECT_NEAR(moments.mean, 0.0, 4 / std::sqrt(n));
        EXPECT_NEAR(moments.std_dev, 1.0, 4 / std::sqrt(2 * n));
        EXPECT_NEAR(moments.kurtosis, 3.0, 4 * std::sqrt(24 / n));
        for (const auto& [limit, tail] :
             {std::pair{1.0, 0.158655}, {2.0, 0.0227501}, {3.0, 0.00134990}}) {
            const auto found = static_cast<double>(
                std::ranges::count_if(*tensor, [above = limit](float x) { return x > above; }));
            EXPECT_NEAR(found / n, tail, 4 * std::sqrt(tail / n)) << limit;
        }
    }
    const std::vector<double> q(sample.q.begin(), sample.q.end());
    const std::vector<double> k(sample.k.begin(), sample.k.end());
    EXPECT_NEAR(correlation(q, k), 0.0, 4 / std::sqrt(static_cast<double>(q.size())));
    std::vector<double> shifted(q.begin() + 1, q.end());
    shifted.push_back(q.front());
    EXPECT_NEAR(correlation(q, shifted), 0.0, 4 / std::sqrt(static_cast<double>(q.size())));
}

TEST(Sample, MeansAreOneNumberPerHeadAndChannel) {
    SampleSpec spec = spec_of(SampleKind::kGaussian, {400}, 2, 2, 256);
    const Sample plain = make_sample(spec);
    spec.k_mean_std = 10.0;
    spec.v_mean_std = 2.0;
    const Sample shifted = make_sample(spec);
    EXPECT_EQ(plain.q, shifted.q);
    std::vector<double> k_means;
    std::vector<double> v_means;
    for (std::size_t h = 0; h < 2; ++h) {
        for (std::size_t c = 0; c < 256; ++c) {
            const std::vector<double> before = channel(plain.k, 2, 256, h, c);
            const std::vector<double> after = channel(shifted.k, 2, 256, h, c);
            const double mean = after[0] - before[0];
            for (std::size_t t = 0; t < before.size(); ++t) {
                ASSERT_NEAR(after[t] - before[t], mean, 1e-5);
            }
            k_means.push_back(mean);
            v_means.push_back(channel(shifted.v, 2, 256, h, c)[0] -
                              channel(plain.v, 2, 256, h, c)[0]);
        }
    }
    EXPECT_NEAR(moments_of(k_means).std_dev, 10.0, 4 * 10.0 / std::sqrt(2 * 512.0));
    EXPECT_NEAR(moments_of(v_means).std_dev, 2.0, 4 * 2.0 / std::sqrt(2 * 512.0));
    EXPECT_NEAR(correlation(k_means, v_means), 0.0, 4 / std::sqrt(512.0));
}

TEST(Sample, DitIsNormedSmoothAndCentred) {
    SampleSpec spec = spec_of(SampleKind::kDit, {8 * 16 * 16}, 4, 2, 128);
    spec.grid = {8, 16, 16};
    const Sample sample = make_sample(spec);
    const std::size_t tokens = sample.q.size() / (4 * 128);

    // RMS norm: only the gains are left in a query's length, so rows of a head differ little, and
    // their mean square is gain^2 E[max(.1, 1 + .3 z)^2] = gain^2 1.09.
    std::vector<double> lengths;
    for (std::size_t t = 0; t < tokens; ++t) {
        const auto q = row_of(sample.q, 4, 128, t, 0);
        lengths.push_back(dot(q, q) / 128);
    }
    EXPECT_NEAR(moments_of(lengths).mean, 1.09 * spec.gain * spec.gain, 0.25);
    EXPECT_LT(moments_of(lengths).std_dev, 0.15 * moments_of(lengths).mean);

    // Smooth: neighbours along x in the same frame correlate, tokens far away hardly.
    const auto v_correlation = [&](std::size_t step) {
        double sum = 0.0;
        for (std::size_t c = 0; c < 128; ++c) {
            std::vector<double> a;
            std::vector<double> b;
            for (std::size_t t = 0; t < tokens; ++t) {
                if (t % 16 + step < 16) {
                    a.push_back(row_of(sample.v, 2, 128, t, 1)[c]);
                    b.push_back(row_of(sample.v, 2, 128, t + step, 1)[c]);
                }
            }
            sum += correlation(a, b);
        }
        return sum / 128;
    };
    EXPECT_NEAR(v_correlation(1), 0.55, 0.1);
    EXPECT_LT(v_correlation(8), 0.3);

    // Scores: wide enough to matter, not one-hot.
    std::vector<double> scores;
    for (std::size_t t = 0; t < tokens; t += 7) {
        std::vector<double> of_row;
        for (std::size_t s = 0; s < tokens; s += 3) {
            of_row.push_back(dot(row_of(sample.q, 4, 128, t, 2), row_of(sample.k, 2, 128, s, 1)) /
                             std::sqrt(128.0));
        }
        scores.push_back(moments_of(of_row).std_dev);
    }
    EXPECT_GT(moments_of(scores).mean, 1.0);
    EXPECT_LT(moments_of(scores).mean, 3.0);

    // The mean of K, added last, changes no difference of keys.
    spec.k_mean_std = 0.0;
    const Sample centred = make_sample(spec);
    std::vector<double> k_means;
    for (std::size_t i = 0; i < 2 * 128; ++i) {
        k_means.push_back(double{sample.k[i]} - double{centred.k[i]});
        EXPECT_NEAR(sample.k[sample.k.size() - 256 + i] - centred.k[sample.k.size() - 256 + i],
                    k_means.back(), 1e-5);
    }
    EXPECT_NEAR(moments_of(k_means).std_dev, 1.0, 4 / std::sqrt(2 * 256.0));
}

// As complex numbers, the pairs of a channel in neighbouring tokens differ by e^(i angle) times
// what the smooth part does, which is real in the mean.
TEST(Sample, DitRotatesPairsByTheirAxis) {
    constexpr std::size_t kHeads = 16;
    constexpr std::size_t kDim = 96;  // 16 pairs an axis, in the order t, y, x
    constexpr std::array<std::size_t, 3> kGrid = {12, 12, 12};
    SampleSpec spec = spec_of(SampleKind::kDit, {12 * 12 * 12}, kHeads, kHeads, kDim);
    spec.grid = {12, 12, 12};
    spec.k_mean_std = 0.0;
    const Sample sample = make_sample(spec);
    constexpr std::array<std::size_t, 3> kStride = {144, 12, 1};
    for (std::size_t axis = 0; axis < 3; ++axis) {
        for (std::size_t pair = 0; pair < kDim / 2; pair += 4) {
            std::complex<double> sum = 0.0;
            for (std::size_t t = 0; t < 12 * 12 * 12; ++t) {
                if (t / kStride[axis] % kGrid[axis] == 11) continue;
                for (std::size_t h = 0; h < kHeads; ++h) {
                    const auto here = row_of(sample.k, kHeads, kDim, t, h);
                    const auto next = row_of(sample.k, kHeads, kDim, t + kStride[axis], h);
                    sum += std::complex<double>(next[2 * pair], next[2 * pair + 1]) *
                           std::complex<double>(here[2 * pair], -here[2 * pair + 1]);
                }
            }
            const double angle =
                pair / 16 == axis ? std::pow(10000.0, -static_cast<double>(pair % 16) / 16) : 0.0;
            EXPECT_NEAR(std::arg(sum), angle, 0.15) << "axis " << axis << " pair " << pair;
        }
    }
}

TEST(Sample, DitSegmentsAreGridsOfTheirOwn) {
    SampleSpec spec = spec_of(SampleKind::kDit, {30, 24}, 1, 1, 16);
    EXPECT_NO_THROW((void)make_sample(spec));
    spec.segment_tokens = {24, 0, 24};
    spec.grid = {2, 3, 4};
    const Sample sample = make_sample(spec);
    EXPECT_EQ(sample.metadata.at("grid"), "2,3,4");
    spec.segment_tokens = {24, 25};
    EXPECT_THROW((void)make_sample(spec), Error);
}

TEST(Sample, OutliersStandInFewChannels) {
    const SampleSpec spec = spec_of(SampleKind::kOutlier, {1024}, 4, 2, 64);
    const Sample sample = make_sample(spec);
    const auto wide_channels = [&](const std::vector<float>& tensor, std::size_t heads,
                                   std::size_t h) {
        std::set<std::size_t> out;
        for (std::size_t c = 0; c < 64; ++c) {
            const double std_dev = moments_of(channel(tensor, heads, 64, h, c)).std_dev;
            if (std_dev > 2.0) {
                EXPECT_NEAR(std_dev, 20.0, 2.0);
                out.insert(c);
            }
        }
        return out;
    };
    for (std::size_t kv = 0; kv < 2; ++kv) {
        const std::set<std::size_t> k = wide_channels(sample.k, 2, kv);
        const std::set<std::size_t> q = wide_channels(sample.q, 4, 2 * kv);
        EXPECT_EQ(k.size(), 2u);
        EXPECT_EQ(q.size(), 2u);
        EXPECT_EQ(wide_channels(sample.q, 4, 2 * kv + 1), q);
        EXPECT_TRUE(std::ranges::none_of(k, [&](std::size_t c) { return q.contains(c); }));
    }
    const auto large = std::ranges::count_if(sample.v, [](float x) { return std::fabs(x) > 6; });
    const double expected = static_cast<double>(sample.v.size()) / 1024 * 0.764;  // P(|z| > .3)
    EXPECT_NEAR(static_cast<double>(large), expected, 4 * std::sqrt(expected));
}

TEST(Sample, SinksHaveTheirWeight) {
    for (const double weight : {0.5, 0.9, 0.97}) {
        for (const double position : {0.0, 0.3, 0.5, 1.0}) {
            SampleSpec spec = spec_of(SampleKind::kSink, {2000, 0, 1, 1001}, 2, 1, 64);
            spec.sink_weight = weight;
            spec.sink_position = position;
            spec.v_mean_std = 1.0;
            const Sample sample = make_sample(spec);
            for (const auto& [first, keys] :
                 {std::pair<std::size_t, std::size_t>{0, 2000}, {2001, 1001}}) {
                const std::size_t sink =
                    first +
                    static_cast<std::size_t>(std::lround(position * static_cast<double>(keys - 1)));
                const auto v = row_of(sample.v, 1, 64, sink, 0);
                EXPECT_TRUE(std::ranges::all_of(v, [](float x) { return x == 0.0f; }));
                for (const std::size_t t : {first, first + keys / 2, first + keys - 1}) {
                    const auto q = row_of(sample.q, 2, 64, t, 1);
                    std::vector<double> others;
                    double sum = 0.0;
                    for (std::size_t s = first; s < first + keys; ++s) {
                        const double score = dot(q, row_of(sample.k, 1, 64, s, 0)) / 8.0;
                        sum += std::exp(score);
                        if (s != sink) others.push_back(score);
                    }
                    const double at_sink = dot(q, row_of(sample.k, 1, 64, sink, 0)) / 8.0;
                    // The others' exponentials have a relative spread of .53, e^(.25) - 1 squared.
                    const double odds = weight / (1 - weight);
                    const double found = std::exp(at_sink) / (sum - std::exp(at_sink));
                    EXPECT_NEAR(found / odds, 1.0, 5 * 0.53 / std::sqrt(static_cast<double>(keys)));
                    const Moments moments = moments_of(others);
                    EXPECT_NEAR(moments.std_dev, 0.5, 0.06);
                    EXPECT_NEAR(moments.mean, 0.0, 0.06);
                }
            }
        }
    }
}

TEST(Sample, RefusesNonsense) {
    const auto error_of = [](auto change) -> std::string {
        SampleSpec spec = spec_of(SampleKind::kGaussian, {8}, 4, 2, 16);
        change(spec);
        try {
            (void)make_sample(spec);
        } catch (const Error& error) {
            return error.what();
        }
        return "";
    };
    const std::vector<std::pair<std::string, std::string>> cases = {
        {error_of([](SampleSpec& s) { s.segment_tokens = {}; }), "number of segments is 0"},
        {error_of([](SampleSpec& s) { s.segment_tokens = {0}; }), "number of tokens is 0"},
        {error_of([](SampleSpec& s) {
             s.segment_tokens = {4, -1};
         }),
         "segment length is -1"},
        {error_of([](SampleSpec& s) {
             s.segment_tokens = {1LL << 30, 1LL << 30};
         }),
         "segment length is 1073741824; allowed is 0 or more, 2^31 - 1 tokens in all"},
        {error_of([](SampleSpec& s) { s.heads_q = 0; }), "heads_q is 0; allowed is at least 1"},
        {error_of([](SampleSpec& s) { s.heads_kv = -1; }), "heads_kv is -1"},
        {error_of([](SampleSpec& s) { s.heads_kv = 3; }), "allowed is a multiple of heads_kv = 3"},
        {error_of([](SampleSpec& s) { s.head_dim = 0; }), "head_dim is 0"},
        {error_of([](SampleSpec& s) { s.head_dim = 257; }), "head_dim is 257; allowed is 1 to 256"},
        {error_of([](SampleSpec& s) { s.heads_q = INT64_MAX - 1; }), "at most 2^35 elements"},
        {error_of([](SampleSpec& s) { s.k_mean_std = -1; }), "k_mean_std is -1"},
        {error_of([](SampleSpec& s) { s.v_mean_std = NAN; }), "v_mean_std is nan"},
        {error_of([](SampleSpec& s) { s.gain = INFINITY; }), "gain is inf"},
        {error_of([](SampleSpec& s) { s.outlier_gain = 0; }), "outlier_gain is 0"},
        {error_of([](SampleSpec& s) { s.sink_weight = 1; }), "sink_weight is 1"},
        {error_of([](SampleSpec& s) { s.sink_position = 1.5; }), "sink_position is 1.5"},
        {error_of([](SampleSpec& s) { s.score_std = 11; }), "score_std is 11"},
        {error_of([](SampleSpec& s) {
             s.kind = SampleKind::kDit;
             s.grid = {2, 0, 4};
         }),
         "grid is 2 x 0 x 4; allowed is t x y x = 8 tokens"},
        {error_of([](SampleSpec& s) {
             s.kind = SampleKind::kDit;
             s.grid = {INT64_MAX, INT64_MAX, INT64_MAX};
         }),
         "grid is"},
    };
    for (const auto& [message, part] : cases) {
        EXPECT_NE(message.find(part), std::string::npos) << part << " / " << message;
    }
}

}  // namespace
}  // namespace quatt::tools
