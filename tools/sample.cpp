#include "sample.hpp"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <span>
#include <utility>

namespace quatt::tools {
namespace {

// In the order of the enum.
constexpr std::array<std::string_view, 4> kKindNames = {"gaussian", "dit", "outlier", "sink"};

constexpr std::size_t kWaves = 8;
constexpr double kWaveCyclesT = 0.5;
constexpr double kWaveCyclesYX = 1.5;
constexpr double kSmoothPart = 0.8;  // the squares of the two add up to 1
constexpr double kNoisePart = 0.6;
constexpr double kSharedPower = 0.2;  // of a query's mixture, with the keys'
constexpr double kGainSpread = 0.3;
constexpr double kGainFloor = 0.1;
constexpr double kRotaryBase = 10000.0;
constexpr std::int64_t kOutlierChannels = 2;
constexpr int kOutlierElementBits = 10;  // one element in 2^10
constexpr std::int64_t kMaxElements = std::int64_t{1} << 35;

// --- Mathematics that rounds alike everywhere -------------------------------------------------
// NOTE: this holds without contraction to fused multiply-adds, which the build switches off.

constexpr double kLn2 = 0.693147180559945309417;
constexpr double kPi = 3.14159265358979323846;

// ln x for normal x > 0. With x = 2^e m and m in [sqrt .5, sqrt 2), ln m = 2 atanh f for
// f = (m - 1) / (m + 1), |f| < .172: the series f + f^3/3 + ... + f^17/17 is good to 1e-14.
double natural_log(double x) {
    const auto bits = std::bit_cast<std::uint64_t>(x);
    auto exponent = static_cast<double>(static_cast<std::int64_t>(bits >> 52) - 1023);
    double m = std::bit_cast<double>((bits & 0x000F'FFFF'FFFF'FFFFu) | 0x3FF0'0000'0000'0000u);
    if (m > 1.41421356) {
        m *= 0.5;
        exponent += 1.0;
    }
    const double f = (m - 1.0) / (m + 1.0);
    const double s = f * f;
    double sum = 1.0 / 17.0;
    for (const double n : {15.0, 13.0, 11.0, 9.0, 7.0, 5.0, 3.0, 1.0}) {
        sum = sum * s + 1.0 / n;
    }
    return exponent * kLn2 + 2.0 * f * sum;
}

// e^x for |x| < 700: 2^k e^r with |r| <= ln 2 / 2 and 14 terms of the series.
double exponential(double x) {
    const double k = std::floor(x / kLn2 + 0.5);
    const double r = x - k * kLn2;
    double sum = 1.0;
    for (double n = 14.0; n >= 1.0; n -= 1.0) {
        sum = 1.0 + sum * r / n;
    }
    return std::ldexp(sum, static_cast<int>(k));
}

// A whole turn is 2^32, so that angles wrap by themselves. 2^-32 turns are 1.5e-9 radians.
using Turn = std::uint32_t;

Turn to_turn(double turns) {
    return static_cast<Turn>(static_cast<std::int64_t>(turns * 0x1p32));
}

struct SinCos {
    double sin;
    double cos;
};

// Taylor series within an eighth of a turn of the nearest quarter; good to 1e-12.
SinCos sin_cos(Turn angle) {
    const std::uint32_t quarter = (angle + 0x2000'0000u) >> 30;
    const auto rest = static_cast<std::int32_t>(angle - (quarter << 30));
    const double x = static_cast<double>(rest) * (kPi * 0x1p-31);
    const double s = x * x;
    double sine = 1.0 / 6227020800.0;   // 1 / 13!
    double cosine = 1.0 / 479001600.0;  // 1 / 12!
    sine = sine * s - 1.0 / 39916800.0;
    cosine = cosine * s - 1.0 / 3628800.0;
    sine = sine * s + 1.0 / 362880.0;
    cosine = cosine * s + 1.0 / 40320.0;
    sine = sine * s - 1.0 / 5040.0;
    cosine = cosine * s - 1.0 / 720.0;
    sine = sine * s + 1.0 / 120.0;
    cosine = cosine * s + 1.0 / 24.0;
    sine = sine * s - 1.0 / 6.0;
    cosine = cosine * s - 1.0 / 2.0;
    sine = (sine * s + 1.0) * x;
    cosine = cosine * s + 1.0;
    if (quarter & 1u) {
        std::swap(sine, cosine);
        cosine = -cosine;
    }
    return (quarter & 2u) != 0 ? SinCos{-sine, -cosine} : SinCos{sine, cosine};
}

// --- Random numbers ---------------------------------------------------------------------------

// The finaliser of SplitMix64 (Steele, Lea, Flood 2014; constants by Stafford): a bijection that
// makes good random bits of a counter.
std::uint64_t mix(std::uint64_t x) {
    x = (x ^ (x >> 30)) * 0xBF58'476D'1CE4'E5B9u;
    x = (x ^ (x >> 27)) * 0x94D0'49BB'1331'11EBu;
    return x ^ (x >> 31);
}

// One stream of random numbers for each thing that is drawn, so that asking for more of one (a
// head, a token) leaves the others as they were.
enum class Draw : std::uint64_t {
    kQ,
    kK,
    kV,
    kKMean,
    kVMean,
    kWaveCycles,
    kWavePhase,
    kMixK,
    kMixQ,
    kMixV,
    kGainQ,
    kGainK,
    kChannels,
    kElements,
    kDirections,
};

class Random {
public:
    Random(std::uint64_t seed, Draw draw)
        : base_(mix(mix(seed) + (static_cast<std::uint64_t>(draw) + 1) * kStep)) {}

    [[nodiscard]] std::uint64_t bits(std::uint64_t index) const {
        return mix(base_ + index * kStep);
    }

    // N(0,1), by Box and Muller: numbers 2i and 2i+1 are r cos a and r sin a with
    // r = sqrt(-2 ln u). u has 40 bits, which cuts the tails at 7.5; the angle has 24.
    [[nodiscard]] float normal(std::uint64_t index) const {
        const std::pair<float, float> pair = normal_pair(index / 2);
        return index % 2 == 0 ? pair.first : pair.second;
    }

    [[nodiscard]] std::vector<float> normals(std::size_t count, double scale = 1.0) const {
        std::vector<float> out(count);
        for (std::size_t i = 0; i + 1 < count; i += 2) {
            const auto [first, second] = normal_pair(i / 2);
            out[i] = first;
            out[i + 1] = second;
        }
        if (count % 2 == 1) {
            out.back() = normal(count - 1);
        }
        if (scale != 1.0) {
            for (float& x : out) {
                x = static_cast<float>(x * scale);
            }
        }
        return out;
    }

private:
    static constexpr std::uint64_t kStep = 0x9E37'79B9'7F4A'7C15u;  // 2^64 / golden ratio, odd

    [[nodiscard]] std::pair<float, float> normal_pair(std::uint64_t index) const {
        const std::uint64_t random = bits(index);
        const double u = (static_cast<double>(random >> 24) + 0.5) * 0x1p-40;
        const SinCos angle = sin_cos(static_cast<Turn>(random << 8));
        const double r = std::sqrt(-2.0 * natural_log(u));
        return {static_cast<float>(r * angle.cos), static_cast<float>(r * angle.sin)};
    }

    std::uint64_t base_;
};

// --- The kinds --------------------------------------------------------------------------------

std::string number_text(double value) {
    std::array<char, 32> buffer{};
    const auto result = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value);
    return {buffer.data(), result.ptr};
}

void require(bool condition, std::string_view name, const std::string& value,
             std::string_view allowed) {
    if (!condition) {
        throw Error("sample: " + std::string(name) + " is " + value + "; allowed is " +
                    std::string(allowed));
    }
}

void require(bool condition, std::string_view name, double value, std::string_view allowed) {
    require(condition && std::isfinite(value), name, number_text(value), allowed);
}

void require(bool condition, std::string_view name, std::int64_t value, std::string_view allowed) {
    require(condition, name, std::to_string(value), allowed);
}

void validate(const SampleSpec& spec) {
    require(!spec.segment_tokens.empty(), "the number of segments", std::int64_t{0}, "at least 1");
    std::int64_t tokens = 0;
    for (const std::int64_t length : spec.segment_tokens) {
        require(length >= 0 && length <= std::numeric_limits<std::int32_t>::max() - tokens,
                "segment length", length, "0 or more, 2^31 - 1 tokens in all");
        tokens += length;
    }
    require(tokens > 0, "the number of tokens", tokens, "at least 1");
    require(spec.heads_q > 0, "heads_q", spec.heads_q, "at least 1");
    require(spec.heads_kv > 0, "heads_kv", spec.heads_kv, "at least 1");
    require(spec.heads_q % spec.heads_kv == 0, "heads_q", spec.heads_q,
            "a multiple of heads_kv = " + std::to_string(spec.heads_kv));
    require(spec.head_dim > 0 && spec.head_dim <= kMaxHeadDim, "head_dim", spec.head_dim,
            "1 to " + std::to_string(kMaxHeadDim) + ", the head sizes that kernels take");
    require(spec.heads_q <= kMaxElements / tokens &&
                spec.head_dim <= kMaxElements / tokens / spec.heads_q,
            "the size of q",
            std::to_string(tokens) + " x " + std::to_string(spec.heads_q) + " x " +
                std::to_string(spec.head_dim),
            "at most 2^35 elements");
    require(spec.k_mean_std >= 0, "k_mean_std", spec.k_mean_std, "0 or more");
    require(spec.v_mean_std >= 0, "v_mean_std", spec.v_mean_std, "0 or more");
    require(spec.gain > 0, "gain", spec.gain, "more than 0");
    require(spec.outlier_gain > 0, "outlier_gain", spec.outlier_gain, "more than 0");
    require(spec.sink_weight > 0 && spec.sink_weight < 1, "sink_weight", spec.sink_weight,
            "between 0 and 1, both excluded");
    require(spec.sink_position >= 0 && spec.sink_position <= 1, "sink_position", spec.sink_position,
            "from 0 to 1");
    require(spec.score_std >= 0 && spec.score_std <= 10, "score_std", spec.score_std,
            "from 0 to 10");
    if (spec.kind == SampleKind::kDit && spec.grid != std::array<std::int64_t, 3>{}) {
        const auto [t, y, x] = spec.grid;
        const std::string text =
            std::to_string(t) + " x " + std::to_string(y) + " x " + std::to_string(x);
        for (const std::int64_t length : spec.segment_tokens) {
            const bool fits = t > 0 && y > 0 && x > 0 && y <= length && x <= length &&
                              t == length / y / x && length % (y * x) == 0;
            require(length == 0 || fits, "grid", text,
                    "t x y x = " + std::to_string(length) + " tokens, a segment's length");
        }
    }
}

// What all kinds share: the tensors, filled with N(0,1), and their extents.
struct Builder {
    explicit Builder(const SampleSpec& given)
        : spec(given),
          heads_q(static_cast<std::size_t>(spec.heads_q)),
          heads_kv(static_cast<std::size_t>(spec.heads_kv)),
          dim(static_cast<std::size_t>(spec.head_dim)) {
        std::int32_t tokens = 0;
        sample.cu_seqlens.push_back(0);
        for (const std::int64_t length : spec.segment_tokens) {
            tokens += static_cast<std::int32_t>(length);
            sample.cu_seqlens.push_back(tokens);
        }
        const auto rows = static_cast<std::size_t>(tokens);
        sample.q = random(Draw::kQ).normals(rows * heads_q * dim);
        sample.k = random(Draw::kK).normals(rows * heads_kv * dim);
        sample.v = random(Draw::kV).normals(rows * heads_kv * dim);
    }

    [[nodiscard]] Random random(Draw draw) const { return {spec.seed, draw}; }
    [[nodiscard]] std::size_t kv_head(std::size_t head_q) const {
        return head_q / (heads_q / heads_kv);
    }
    [[nodiscard]] std::span<float> q_row(std::size_t token, std::size_t head) {
        return std::span(sample.q).subspan((token * heads_q + head) * dim, dim);
    }
    [[nodiscard]] std::span<float> k_row(std::size_t token, std::size_t head) {
        return std::span(sample.k).subspan((token * heads_kv + head) * dim, dim);
    }
    [[nodiscard]] std::span<float> v_row(std::size_t token, std::size_t head) {
        return std::span(sample.v).subspan((token * heads_kv + head) * dim, dim);
    }

    // Adds std N(0,1), one number per head and channel, to every token.
    void add_mean(std::vector<float>& tensor, Draw draw, double std_dev) const {
        if (std_dev == 0.0) {
            return;
        }
        const std::vector<float> mean = random(draw).normals(heads_kv * dim, std_dev);
        for (std::size_t row = 0; row < tensor.size(); row += mean.size()) {
            for (std::size_t i = 0; i < mean.size(); ++i) {
                tensor[row + i] += mean[i];
            }
        }
    }

    const SampleSpec& spec;
    std::size_t heads_q;
    std::size_t heads_kv;
    std::size_t dim;
    Sample sample;
};

// row = .8 sum_j mixture[j] waves[j] + .6 row; the mixture [wave, channel] has the .8 in it.
void add_waves(std::span<float> row, std::span<const float> mixture, std::span<const float> waves) {
    for (float& x : row) {
        x *= static_cast<float>(kNoisePart);
    }
    for (std::size_t j = 0; j < waves.size(); ++j) {
        const float* weights = mixture.data() + j * row.size();
        for (std::size_t c = 0; c < row.size(); ++c) {
            row[c] += weights[c] * waves[j];
        }
    }
}

// Divides by the root mean square and multiplies by the gains.
void rms_norm(std::span<float> row, std::span<const float> gains) {
    double squares = 0.0;
    for (const float x : row) {
        squares += double{x} * double{x};
    }
    const double mean = squares / static_cast<double>(row.size());
    const auto factor = static_cast<float>(1.0 / std::sqrt(std::max(mean, 1e-12)));
    for (std::size_t c = 0; c < row.size(); ++c) {
        row[c] *= factor * gains[c];
    }
}

struct Rotation {
    float sin;
    float cos;
};

void rotate(std::span<float> row, std::span<const Rotation> rotations) {
    for (std::size_t i = 0; i < rotations.size(); ++i) {
        const float a = row[2 * i];
        const float b = row[2 * i + 1];
        row[2 * i] = a * rotations[i].cos - b * rotations[i].sin;
        row[2 * i + 1] = a * rotations[i].sin + b * rotations[i].cos;
    }
}

using Grid = std::array<std::int64_t, 3>;  // t, y, x

Grid grid_of(const SampleSpec& spec, std::int64_t tokens) {
    if (spec.grid != Grid{}) {
        return spec.grid;
    }
    std::int64_t side = 1;
    while (side * side * side < 4 * tokens) {
        ++side;
    }
    return {(tokens + side * side - 1) / (side * side), side, side};
}

// The random numbers that stand for the network's weights, and what follows from them.
class Dit {
public:
    explicit Dit(Builder& builder)
        : b_(builder),
          mix_k_(mixture(Draw::kMixK, b_.heads_kv)),
          mix_q_(mixture(Draw::kMixQ, b_.heads_q)),
          mix_v_(mixture(Draw::kMixV, b_.heads_kv)),
          gain_q_(gains(Draw::kGainQ, b_.heads_q)),
          gain_k_(gains(Draw::kGainK, b_.heads_kv)),
          cycles_(b_.random(Draw::kWaveCycles).normals(b_.heads_kv * kWaves * 3, kWaveCyclesYX)) {
        for (std::size_t i = 0; i < cycles_.size(); i += 3) {
            cycles_[i] *= static_cast<float>(kWaveCyclesT / kWaveCyclesYX);
        }
        const std::size_t head_size = kWaves * b_.dim;
        const auto shared = static_cast<float>(std::sqrt(kSharedPower));
        const auto own = static_cast<float>(std::sqrt(1.0 - kSharedPower));
        for (std::size_t i = 0; i < mix_q_.size(); ++i) {
            const std::size_t kv = b_.kv_head(i / head_size);
            mix_q_[i] = shared * mix_k_[kv * head_size + i % head_size] + own * mix_q_[i];
        }
        // The turns of a pair per step along its axis.
        const std::size_t pairs = b_.dim / 2;
        const std::array<std::size_t, 3> axis_pairs = {pairs - pairs / 3 * 2, pairs / 3, pairs / 3};
        for (std::size_t axis = 0; axis < 3; ++axis) {
            for (std::size_t i = 0; i < axis_pairs[axis]; ++i) {
                const double part = static_cast<double>(i) / static_cast<double>(axis_pairs[axis]);
                const double radians = exponential(-part * natural_log(kRotaryBase));
                frequencies_.push_back({.axis = axis, .turns = radians / (2.0 * kPi)});
            }
        }
    }

    void fill() {
        for (std::size_t s = 0; s < b_.spec.segment_tokens.size(); ++s) {
            fill_segment(s, static_cast<std::size_t>(b_.sample.cu_seqlens[s]),
                         b_.spec.segment_tokens[s]);
        }
    }

private:
    struct Frequency {
        std::size_t axis;
        double turns;
    };

    [[nodiscard]] std::vector<float> mixture(Draw draw, std::size_t heads) const {
        return b_.random(draw).normals(heads * kWaves * b_.dim,
                                       kSmoothPart / std::sqrt(static_cast<double>(kWaves)));
    }

    [[nodiscard]] std::vector<float> gains(Draw draw, std::size_t heads) const {
        std::vector<float> out = b_.random(draw).normals(heads * b_.dim);
        for (float& x : out) {
            x = static_cast<float>(b_.spec.gain * std::max(kGainFloor, 1.0 + kGainSpread * x));
        }
        return out;
    }

    void fill_segment(std::size_t segment, std::size_t first, std::int64_t tokens) {
        const Grid grid = grid_of(b_.spec, tokens);
        const Random phases = b_.random(Draw::kWavePhase);
        const std::size_t wave_count = b_.heads_kv * kWaves;
        std::vector<float> waves(wave_count);
        std::vector<Rotation> rotations(frequencies_.size());
        for (std::int64_t i = 0; i < tokens; ++i) {
            const std::array<double, 3> position = {static_cast<double>(i / (grid[1] * grid[2])),
                                                    static_cast<double>(i / grid[2] % grid[1]),
                                                    static_cast<double>(i % grid[2])};
            for (std::size_t j = 0; j < wave_count; ++j) {
                double turns = 0.0;
                for (std::size_t axis = 0; axis < 3; ++axis) {
                    turns +=
                        cycles_[3 * j + axis] * position[axis] / static_cast<double>(grid[axis]);
                }
                const auto phase = static_cast<Turn>(phases.bits(segment * wave_count + j) >> 32);
                waves[j] = static_cast<float>(std::sqrt(2.0) * sin_cos(to_turn(turns) + phase).cos);
            }
            for (std::size_t j = 0; j < rotations.size(); ++j) {
                const Frequency& frequency = frequencies_[j];
                const SinCos turn = sin_cos(to_turn(position[frequency.axis] * frequency.turns));
                rotations[j] = {.sin = static_cast<float>(turn.sin),
                                .cos = static_cast<float>(turn.cos)};
            }
            fill_token(first + static_cast<std::size_t>(i), waves, rotations);
        }
    }

    void fill_token(std::size_t token, std::span<const float> waves,
                    std::span<const Rotation> rotations) {
        const std::size_t dim = b_.dim;
        const auto head_of = [&](const std::vector<float>& mixtures, std::size_t head) {
            return std::span(mixtures).subspan(head * kWaves * dim, kWaves * dim);
        };
        for (std::size_t h = 0; h < b_.heads_q; ++h) {
            const std::span<float> q = b_.q_row(token, h);
            add_waves(q, head_of(mix_q_, h), waves.subspan(b_.kv_head(h) * kWaves, kWaves));
            rms_norm(q, std::span(gain_q_).subspan(h * dim, dim));
            rotate(q, rotations);
        }
        for (std::size_t h = 0; h < b_.heads_kv; ++h) {
            const std::span<float> k = b_.k_row(token, h);
            const auto head_waves = waves.subspan(h * kWaves, kWaves);
            add_waves(k, head_of(mix_k_, h), head_waves);
            rms_norm(k, std::span(gain_k_).subspan(h * dim, dim));
            rotate(k, rotations);
            add_waves(b_.v_row(token, h), head_of(mix_v_, h), head_waves);
        }
    }

    Builder& b_;
    std::vector<float> mix_k_;  // [head, wave, channel]
    std::vector<float> mix_q_;
    std::vector<float> mix_v_;
    std::vector<float> gain_q_;  // [head, channel]
    std::vector<float> gain_k_;
    std::vector<float> cycles_;           // [head, wave, axis]
    std::vector<Frequency> frequencies_;  // [pair]
};

void fill_outliers(Builder& b) {
    const std::int64_t k_count = std::clamp<std::int64_t>(b.spec.head_dim / 4, 1, kOutlierChannels);
    const std::int64_t q_count = std::min(k_count, b.spec.head_dim - k_count);
    const auto gain = static_cast<float>(b.spec.outlier_gain);
    const std::size_t tokens = static_cast<std::size_t>(b.sample.cu_seqlens.back());
    const Random channels = b.random(Draw::kChannels);
    for (std::size_t h = 0; h < b.heads_kv; ++h) {
        // The first steps of a shuffle.
        std::vector<std::size_t> order(b.dim);
        for (std::size_t c = 0; c < b.dim; ++c) {
            order[c] = c;
        }
        for (std::size_t i = 0; i < static_cast<std::size_t>(k_count + q_count); ++i) {
            const std::size_t other = i + channels.bits(h * b.dim + i) % (b.dim - i);
            std::swap(order[i], order[other]);
        }
        const auto k_channels = std::span(order).first(static_cast<std::size_t>(k_count));
        const auto q_channels =
            std::span(order).subspan(k_channels.size(), static_cast<std::size_t>(q_count));
        const std::size_t group = b.heads_q / b.heads_kv;
        for (std::size_t t = 0; t < tokens; ++t) {
            for (const std::size_t c : k_channels) {
                b.k_row(t, h)[c] *= gain;
            }
            for (std::size_t g = 0; g < group; ++g) {
                for (const std::size_t c : q_channels) {
                    b.q_row(t, h * group + g)[c] *= gain;
                }
            }
        }
    }
    const Random elements = b.random(Draw::kElements);
    for (std::size_t i = 0; i < b.sample.v.size(); ++i) {
        if (elements.bits(i) >> (64 - kOutlierElementBits) == 0) {
            b.sample.v[i] *= gain;
        }
    }
}

// Takes the part along the unit vector out of a row and returns the length of what is left.
double make_orthogonal(std::span<float> row, std::span<const float> unit) {
    double dot = 0.0;
    for (std::size_t c = 0; c < row.size(); ++c) {
        dot += double{row[c]} * double{unit[c]};
    }
    double squares = 0.0;
    for (std::size_t c = 0; c < row.size(); ++c) {
        row[c] = static_cast<float>(row[c] - dot * unit[c]);
        squares += double{row[c]} * double{row[c]};
    }
    return std::sqrt(squares);
}

void scale(std::span<float> row, double factor) {
    for (float& x : row) {
        x = static_cast<float>(x * factor);
    }
}

// The sink's place in a segment that is not empty.
std::size_t sink_token(const Builder& b, std::size_t segment) {
    const auto last = static_cast<double>(b.spec.segment_tokens[segment] - 1);
    return static_cast<std::size_t>(b.sample.cu_seqlens[segment]) +
           static_cast<std::size_t>(std::llround(b.spec.sink_position * last));
}

void fill_sinks(Builder& b) {
    const auto dim = static_cast<double>(b.dim);
    const bool flat = b.dim == 1;  // there is no room beside u: all other scores are 0
    const double std_dev = flat ? 0.0 : b.spec.score_std;
    const double k_scale = flat ? 0.0 : std_dev * std::sqrt(dim / (dim - 1.0));

    const Random channels = b.random(Draw::kDirections);
    std::vector<float> directions(b.heads_kv * b.dim);
    for (std::size_t h = 0; h < b.heads_kv; ++h) {
        directions[h * b.dim + channels.bits(h) % b.dim] = 1.0F;
    }
    const auto direction = [&](std::size_t head) {
        return std::span<const float>(directions).subspan(head * b.dim, b.dim);
    };

    const auto tokens = static_cast<std::size_t>(b.sample.cu_seqlens.back());
    for (std::size_t t = 0; t < tokens; ++t) {
        for (std::size_t h = 0; h < b.heads_q; ++h) {
            const std::span<float> q = b.q_row(t, h);
            const std::span<const float> u = direction(b.kv_head(h));
            const double length = make_orthogonal(q, u);
            scale(q, flat || length == 0.0 ? 0.0 : std::sqrt(dim - 1.0) / length);
            for (std::size_t c = 0; c < b.dim; ++c) {
                q[c] += static_cast<float>(std::sqrt(dim) * u[c]);
            }
        }
        for (std::size_t h = 0; h < b.heads_kv; ++h) {
            make_orthogonal(b.k_row(t, h), direction(h));
            scale(b.k_row(t, h), k_scale);
        }
    }
    for (std::size_t s = 0; s < b.spec.segment_tokens.size(); ++s) {
        const auto keys = static_cast<double>(b.spec.segment_tokens[s]);
        if (keys < 2.0) {
            continue;  // alone, a key has all the weight
        }
        const double odds = b.spec.sink_weight / (1.0 - b.spec.sink_weight);
        const double score = natural_log(odds) + natural_log(keys - 1.0) + std_dev * std_dev / 2.0;
        for (std::size_t h = 0; h < b.heads_kv; ++h) {
            const std::span<float> k = b.k_row(sink_token(b, s), h);
            for (std::size_t c = 0; c < b.dim; ++c) {
                k[c] = static_cast<float>(score * direction(h)[c]);
            }
        }
    }
}

void clear_sink_values(Builder& b) {
    for (std::size_t s = 0; s < b.spec.segment_tokens.size(); ++s) {
        if (b.spec.segment_tokens[s] > 0) {
            for (std::size_t h = 0; h < b.heads_kv; ++h) {
                std::ranges::fill(b.v_row(sink_token(b, s), h), 0.0f);
            }
        }
    }
}

void describe(const SampleSpec& spec, Sample& sample) {
    auto& m = sample.metadata;
    m["kind"] = sample_kind_name(spec.kind);
    m["seed"] = std::to_string(spec.seed);
    m["softmax_scale"] = number_text(1.0 / std::sqrt(static_cast<double>(spec.head_dim)));
    m["causal"] = "false";
    m["k_mean_std"] = number_text(spec.k_mean_std);
    m["v_mean_std"] = number_text(spec.v_mean_std);
    switch (spec.kind) {
        case SampleKind::kGaussian:
            break;
        case SampleKind::kDit:
            m["gain"] = number_text(spec.gain);
            if (spec.grid != Grid{}) {
                m["grid"] = std::to_string(spec.grid[0]) + "," + std::to_string(spec.grid[1]) +
                            "," + std::to_string(spec.grid[2]);
            }
            break;
        case SampleKind::kOutlier:
            m["outlier_gain"] = number_text(spec.outlier_gain);
            break;
        case SampleKind::kSink:
            m["sink_weight"] = number_text(spec.sink_weight);
            m["sink_position"] = number_text(spec.sink_position);
            m["score_std"] = number_text(spec.score_std);
            break;
    }
}

}  // namespace

std::string_view sample_kind_name(SampleKind kind) noexcept {
    return kKindNames[static_cast<std::size_t>(kind)];
}

std::optional<SampleKind> sample_kind_from_name(std::string_view name) noexcept {
    for (std::size_t i = 0; i < kKindNames.size(); ++i) {
        if (kKindNames[i] == name) {
            return static_cast<SampleKind>(i);
        }
    }
    return std::nullopt;
}

SampleSpec SampleSpec::defaults(SampleKind kind) {
    SampleSpec spec;
    spec.kind = kind;
    if (kind == SampleKind::kDit) {
        spec.k_mean_std = 1.0;
        spec.v_mean_std = 0.5;
    }
    return spec;
}

Sample make_sample(const SampleSpec& spec) {
    validate(spec);
    Builder builder(spec);
    switch (spec.kind) {
        case SampleKind::kGaussian:
            break;
        case SampleKind::kDit:
            Dit(builder).fill();
            break;
        case SampleKind::kOutlier:
            fill_outliers(builder);
            break;
        case SampleKind::kSink:
            fill_sinks(builder);
            break;
    }
    builder.add_mean(builder.sample.k, Draw::kKMean, spec.k_mean_std);
    builder.add_mean(builder.sample.v, Draw::kVMean, spec.v_mean_std);
    if (spec.kind == SampleKind::kSink) {
        clear_sink_values(builder);
    }
    describe(spec, builder.sample);
    return std::move(builder.sample);
}

}  // namespace quatt::tools
