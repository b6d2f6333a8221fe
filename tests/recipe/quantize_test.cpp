// Every quantiser against what docs/recipes.md says of it: scales, codes, means, norms, and what a
// value that is not finite takes with it.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "oracle_sample.hpp"
#include "support.hpp"

namespace quatt::recipe {
namespace {

using support::bf16;
using support::QuantisedHead;
using support::Random;
using support::view_of;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

// fp32 rounds a scale twice (the reciprocal of the target, the product), a code's argument three
// times (mean, reciprocal, product).
constexpr double kScaleError = 0x1p-22, kCodeError = 0x1p-21;

struct Operand {
    std::string name;
    quatt_operand_recipe r;
    bool mean_term = false;
};

// The operands of all named recipes, and some that only a caller makes.
std::vector<Operand> operands() {
    std::vector<Operand> all;
    for (const quatt_recipe& r : kNamedRecipes) {
        all.push_back({std::string(r.name) + ".q", r.q, r.q_mean_term != 0});
        all.push_back({std::string(r.name) + ".k", r.k});
        all.push_back({std::string(r.name) + ".v", r.v});
    }
    Operand x{"int8 V a channel", find_recipe("int8_fp8")->v};
    x.r.format = QUATT_FORMAT_INT8;
    x.r.amax_target = 127;
    x.r.center = QUATT_CENTER_SEGMENT;
    all.push_back(x);
    x = {"e4m3 V a channel, mean of the segment", find_recipe("fp8")->v};
    x.r.center = QUATT_CENTER_SEGMENT;
    all.push_back(x);
    x = {"e4m3 V a channel, sampled, target 224", find_recipe("fp8")->v};
    x.r.amax_target = 224;
    all.push_back(x);
    x = {"e4m3 K, mean of the segment", find_recipe("fp8")->k};
    x.r.center = QUATT_CENTER_SEGMENT;
    all.push_back(x);
    x = {"e2m1 K, sampled", find_recipe("nvfp4")->k};
    x.r.center = QUATT_CENTER_SAMPLE;
    all.push_back(x);
    x = {"bf16 K, sampled", find_recipe("bf16")->k};
    x.r.center = QUATT_CENTER_SAMPLE;
    all.push_back(x);
    x = {"int8 a segment", find_recipe("fp8_head")->k};
    x.r.format = QUATT_FORMAT_INT8;
    x.r.amax_target = 127;
    all.push_back(x);
    x = {"e4m3 of 7 tokens, target 224", find_recipe("fp8")->k};
    x.r.group_tokens = 7;
    x.r.amax_target = 224;
    all.push_back(x);
    x = {"e2m1 Q without a mean, of the segment", find_recipe("nvfp4")->q};
    x.r.center = QUATT_CENTER_NONE;
    x.r.normalize = QUATT_NORMALIZE_SEGMENT;
    x.r.block_tokens = 0;
    all.push_back(x);
    x = {"e2m1 Q of blocks of 5", find_recipe("nvfp4")->q, true};
    x.r.block_tokens = 5;
    all.push_back(x);
    x = {"bf16 with a mean", find_recipe("bf16")->k};
    x.r.center = QUATT_CENTER_SEGMENT;
    all.push_back(x);
    x = {"f32", find_recipe("bf16")->k};
    x.r.format = QUATT_FORMAT_F32;
    all.push_back(x);
    return all;
}

const Operand& operand(const std::string& name) {
    static const std::vector<Operand> all = operands();
    return *std::find_if(all.begin(), all.end(), [&](const Operand& x) { return x.name == name; });
}

// ------------------------------------------------------------------------------------ the checks

// Half the distance to the next code, at the place of x.
double half_ulp(quatt_format f, double x) {
    switch (f) {
        case QUATT_FORMAT_F32:
            return oracle::spacing(oracle::kF32, x) / 2;
        case QUATT_FORMAT_BF16:
            return oracle::spacing(oracle::kBf16, x) / 2;
        case QUATT_FORMAT_F16:
            return oracle::spacing(oracle::kF16, x) / 2;
        case QUATT_FORMAT_E4M3:
            return oracle::spacing(oracle::kE4m3, x) / 2;
        case QUATT_FORMAT_INT8:
            return .5;
        default:
            return oracle::spacing(oracle::kE2m1, x) / 2;
    }
}

double largest_code(quatt_format f) {
    return f == QUATT_FORMAT_E4M3   ? 448
           : f == QUATT_FORMAT_INT8 ? 127
           : f == QUATT_FORMAT_E2M1 ? 6
                                    : oracle::kInf;
}

// Collects what is wrong, so that one message shows a whole case.
class Findings {
public:
    template <class... Parts>
    void want(bool ok, const Parts&... parts) {
        if (!ok && count_++ < 5) {
            std::ostringstream s;
            (s << ... << parts);
            text_ += s.str() + "\n";
        }
    }
    [[nodiscard]] testing::AssertionResult result(const std::string& what) const {
        return count_ == 0 ? testing::AssertionSuccess()
                           : testing::AssertionFailure() << what << ": " << count_ << " faults\n"
                                                         << text_;
    }

private:
    int count_ = 0;
    std::string text_;
};

using Values = std::function<double(std::int64_t token, std::int64_t channel)>;

// The whole canonical head of finite values x(j, d), fp32 numbers.
testing::AssertionResult is_right(const Operand& o, const QuantisedHead& h, std::int64_t tokens,
                                  std::int64_t channels, const Values& x) {
    const quatt_operand_recipe& r = o.r;
    Findings f;
    f.want(h.guards_are_whole(), "wrote outside its arrays");
    const auto block_of = [&](std::int64_t j, bool per_block) {
        return per_block ? j / r.block_tokens : 0;
    };
    const bool fp4 = r.scale_format == QUATT_SCALE_UE4M3,
               channel_scales = r.scale_format == QUATT_SCALE_F32 && r.group_channels == 1;

    // Centres of the sample, and V's scales and far tokens.
    oracle::SampledHead sampled;
    const bool of_sample = r.center == QUATT_CENTER_SAMPLE;
    if (of_sample && tokens > 0) {
        sampled = oracle::sampled_head(tokens, channels, channel_scales,
                                       static_cast<double>(r.amax_target), x,
                                       [&](std::int64_t d) { return h.mean(0, d) != 0; });
    }
    const auto is_far = [&](std::int64_t j) {
        return of_sample && sampled.far[static_cast<std::size_t>(j)] != 0;
    };
    for (std::int64_t j = 0; j < tokens; j++) {
        f.want(h.is_far(j) == is_far(j), "token ", j, " is ", is_far(j) ? "" : "not ", "far");
    }

    // Means: of the real tokens, rounded to bf16.
    std::map<std::pair<std::int64_t, std::int64_t>, double> mean;  // (block, channel)
    for (std::int64_t d = 0; of_sample && tokens > 0 && d < channels; d++) {
        mean[{0, d}] = sampled.center[static_cast<std::size_t>(d)];
    }
    if (r.center != QUATT_CENTER_NONE && !of_sample) {
        std::map<std::pair<std::int64_t, std::int64_t>, std::pair<double, double>> sums;
        for (std::int64_t j = 0; j < tokens; j++) {
            for (std::int64_t d = 0; d < channels; d++) {
                auto& s = sums[{block_of(j, r.center == QUATT_CENTER_BLOCK), d}];
                s.first += x(j, d);
                s.second += 1;
            }
        }
        for (const auto& [at, s] : sums) {
            // An fp32 mean, stored as bf16.
            mean[at] =
                oracle::nearest(oracle::kBf16, oracle::nearest(oracle::kF32, s.first / s.second));
        }
    }
    const auto mean_of = [&](std::int64_t j, std::int64_t d) {
        return r.center == QUATT_CENTER_NONE
                   ? 0.0
                   : mean[{block_of(j, r.center == QUATT_CENTER_BLOCK), d}];
    };
    if (channel_scales && r.center != QUATT_CENTER_NONE &&
        !of_sample) {  // a mean that is small beside the channel stays in it
        for (std::int64_t d = 0; d < channels && tokens > 0; d++) {
            double amax = 0;
            for (std::int64_t j = 0; j < tokens; j++) {
                amax = std::max(amax,
                                std::fabs(static_cast<double>(static_cast<float>(x(j, d)) -
                                                              static_cast<float>(mean_of(j, d)))));
            }
            double& m = mean[{0, d}];
            m = std::fabs(m) < amax / 64 ? 0 : m;
        }
    }
    for (std::int64_t j = 0; j < tokens; j++) {
        for (std::int64_t d = 0; d < channels; d++) {
            f.want(h.mean(j, d) == mean_of(j, d), "mean of channel ", d, " at token ", j, " is ",
                   h.mean(j, d), ", not ", mean_of(j, d));
        }
    }
    const auto centred = [&](std::int64_t j, std::int64_t d) {
        return is_far(j) ? x(j, d)
                         : static_cast<double>(static_cast<float>(x(j, d)) -
                                               static_cast<float>(mean_of(j, d)));
    };

    // Norms: the power of two that brings amax (of Q: mean row included) into [1344, 2688).
    std::map<std::int64_t, double> amax_of_norm;
    for (std::int64_t j = 0; r.normalize != QUATT_NORMALIZE_NONE && j < tokens; j++) {
        for (std::int64_t d = 0; d < channels; d++) {
            double& a = amax_of_norm[block_of(j, r.normalize == QUATT_NORMALIZE_BLOCK)];
            a = std::max(
                {a, std::fabs(centred(j, d)), o.mean_term ? std::fabs(mean_of(j, d)) : 0.0});
        }
    }
    for (std::int64_t j = 0; r.normalize != QUATT_NORMALIZE_NONE && j < tokens; j++) {
        const double n = h.norm(j),
                     a = amax_of_norm[block_of(j, r.normalize == QUATT_NORMALIZE_BLOCK)];
        int exponent = 0;
        f.want(std::frexp(n, &exponent) == .5, "norm of token ", j, " is ", n, ", no power of two");
        f.want(a == 0 ? n == 1 : (a / n >= 1344 && a / n < 2688) || (n == 0x1p-126 && a / n < 1344),
               "norm ", n, " makes ", a / n, " of amax ", a);
    }
    const auto prepared = [&](std::int64_t j, std::int64_t d) { return centred(j, d) / h.norm(j); };

    // Scales: of the sample, or amax of what shares one, over the target.
    for (std::int64_t d = 0; of_sample && channel_scales && tokens > 0 && d < channels; d++) {
        const double s = h.scale(0, d), want = sampled.scale[static_cast<std::size_t>(d)];
        f.want(std::fabs(s - want) <=
                   want * (sampled.doubtful[static_cast<std::size_t>(d)] != 0 ? 2e-6 : kScaleError),
               "scale ", s, " of channel ", d, ", not ", want);
    }
    if (r.scale_format != QUATT_SCALE_NONE && !(of_sample && channel_scales)) {
        std::map<std::int64_t, double> amax;
        for (std::int64_t j = 0; j < tokens; j++) {
            for (std::int64_t d = 0; d < channels; d++) {
                double& a = amax[h.group(j, d)];
                a = std::max(a, std::fabs(prepared(j, d)));
            }
        }
        for (const auto& [g, a] : amax) {
            const double s = static_cast<double>(h.head.scales[g]),
                         want = a / static_cast<double>(r.amax_target);
            if (fp4) {
                f.want(oracle::nearest(oracle::kE4m3, s) == s && s >= 0, "scale ", s,
                       " is no UE4M3");
                f.want(std::fabs(s - want) <=
                           oracle::spacing(oracle::kE4m3, want) / 2 * (1 + kScaleError) +
                               want * kScaleError,
                       "scale ", s, " for amax/target ", want);
            } else {
                f.want(a == 0 ? s == 1
                              : s >= 0x1p-126 &&
                                    std::fabs(s - std::max(want, 0x1p-126)) <= s * kScaleError,
                       "scale ", s, " for amax/target ", want);
            }
        }
        const std::int64_t all = h.head.shape.token_groups * h.head.shape.channel_groups;
        for (std::int64_t g = 0; g < all; g++) {
            // A tail's second half of 32 keys has no key of its own.
            f.want(amax.count(g) != 0 || h.head.scales[g] == 0, "scale ", g,
                   " has no element and is ", h.head.scales[g]);
        }
    }

    // Codes: nearest at the scale as decoded, so the error is at most half an ulp of the code
    // there.
    for (std::int64_t j = 0; j < tokens; j++) {
        for (std::int64_t d = 0; d < channels; d++) {
            const double s = h.scale(j, d), c = h.code(j, d);
            if (s == 0) {  // all of the group below half the smallest scale
                f.want(c == 0, "code ", c, " under a scale of 0");
                continue;
            }
            if (std::isnan(c)) {  // what the format cannot hold
                const bool is_f16 = r.format == QUATT_FORMAT_F16;
                f.want((is_f16 || r.format == QUATT_FORMAT_BF16) &&
                           std::isinf(oracle::nearest(is_f16 ? oracle::kF16 : oracle::kBf16,
                                                      prepared(j, d))),
                       "code ", c, " for ", prepared(j, d));
                continue;
            }
            const double y =
                std::clamp(prepared(j, d) / s, -largest_code(r.format), largest_code(r.format));
            const double tolerance = r.format == QUATT_FORMAT_F32
                                         ? 0
                                         : half_ulp(r.format, y) + std::fabs(y) * kCodeError;
            f.want(std::fabs(c - y) <= tolerance, "token ", j, " channel ", d, ": code ", c,
                   " for ", y, " (scale ", s, ")");
            f.want(c == 0 || std::signbit(c) == std::signbit(y), "sign of token ", j, " channel ",
                   d);
            // Saturation cuts nothing off, up to rounding: in fp4 as far as the rounded scale fell
            // short of amax / 6.
            const double most = largest_code(r.format) *
                                (fp4 ? (s < 0x1p-6 ? oracle::kInf : 17.0 / 16) : 1) *
                                (1 + kCodeError);
            f.want(std::fabs(prepared(j, d) / s) <= most, "token ", j, " channel ", d,
                   " is clipped: ", prepared(j, d) / s);
        }
    }

    // The mean rows of Q, quantised like a row.
    for (std::int64_t j = 0; o.mean_term && j < tokens; j++) {
        for (std::int64_t d0 = 0; d0 < channels; d0 += 16) {
            double amax = 0;
            for (std::int64_t d = d0; d < std::min(channels, d0 + 16); d++) {
                amax = std::max(amax, std::fabs(mean_of(j, d) / h.norm(j)));
            }
            const double
                s = static_cast<double>(
                    h.head.mean_scales[j / r.block_tokens * h.head.shape.channel_groups + d0 / 16]),
                want = amax / 6;
            f.want(std::fabs(s - want) <=
                       oracle::spacing(oracle::kE4m3, want) / 2 * (1 + kScaleError) +
                           want * kScaleError,
                   "mean scale ", s, " for ", want);
            for (std::int64_t d = d0; d < std::min(channels, d0 + 16); d++) {
                const double y = s == 0 ? 0 : std::clamp(mean_of(j, d) / h.norm(j) / s, -6.0, 6.0),
                             c = s == 0 ? 0 : h.coded_mean(j, d) / s;
                f.want(
                    std::fabs(c - y) <= half_ulp(QUATT_FORMAT_E2M1, y) + std::fabs(y) * kCodeError,
                    "mean code ", c, " for ", y);
            }
        }
    }
    return f.result(o.name);
}

// -------------------------------------------------------------------------------- random inputs

TEST(Quantize, EveryOperandOfRandomSizes) {
    Random random(11);
    for (const Operand& o : operands()) {
        for (int round = 0; round < support::cases(40); round++) {
            const std::int64_t tokens =
                                   round == 0 ? 1 : random.integer(1, round % 3 == 0 ? 400 : 70),
                               channels = round < 2 ? 1 + 15 * round
                                                    : random.integer(1, round % 4 == 0 ? 256 : 40);
            // Small to huge, with channels of different means and sizes, zeros, and channels so
            // small beside the others that their UE4M3 scale is 0.
            const double size = std::exp2(random.uniform(-30, 30));
            std::vector<float> x(static_cast<std::size_t>(tokens * channels));
            for (std::int64_t j = 0; j < tokens; j++) {
                for (std::int64_t d = 0; d < channels; d++) {
                    const double m = d % 3 == 0 ? 3 * std::cos(static_cast<double>(d)) : 0;
                    x[static_cast<std::size_t>(j * channels + d)] =
                        random.integer(0, 19) == 0
                            ? 0
                            : static_cast<float>(size * (random.normal() * (d % 5 == 4   ? 20
                                                                            : d % 7 == 6 ? 1e-7
                                                                                         : 1) +
                                                         m));
                }
            }
            const QuantisedHead h(o.r, o.mean_term, view_of(x, tokens, channels));
            ASSERT_TRUE(is_right(o, h, tokens, channels,
                                 [&](std::int64_t j, std::int64_t d) {
                                     return static_cast<double>(
                                         x[static_cast<std::size_t>(j * channels + d)]);
                                 }))
                << tokens << " tokens, " << channels << " channels, size " << size;
        }
    }
}

// Views of any dtype and strides (also 0 and negative), elements aligned to nothing, neighbours
// that are NaN.
RC_GTEST_PROP(Quantize, AnyView, ()) {
    static const std::vector<Operand> all = operands();
    const Operand& o = *rc::gen::elementOf(all);
    const auto tokens = *rc::gen::inRange<std::int64_t>(1, 80),
               channels = *rc::gen::inRange<std::int64_t>(1, 40);
    const quatt_dtype dtype =
        *rc::gen::element<quatt_dtype>(QUATT_F32, QUATT_BF16, QUATT_F16, QUATT_E4M3);
    const auto size = static_cast<std::int64_t>(dtype == QUATT_F32    ? 4
                                                : dtype == QUATT_E4M3 ? 1
                                                                      : 2);
    const bool channels_first = *rc::gen::arbitrary<bool>();
    const auto gap = *rc::gen::inRange<std::int64_t>(1, 4);
    const auto sign_t = *rc::gen::element<std::int64_t>(-1, 0, 1),
               sign_c = *rc::gen::element<std::int64_t>(-1, 1);
    const auto token_stride = sign_t * gap * (channels_first ? 1 : channels),
               channel_stride = sign_c * gap * (channels_first ? tokens : 1);
    const auto misalign = *rc::gen::inRange<std::int64_t>(0, 4);
    Random random(*rc::gen::arbitrary<std::uint64_t>());

    HeadView view{.data = nullptr,
                  .dtype = dtype,
                  .tokens = tokens,
                  .channels = channels,
                  .token_stride = token_stride,
                  .channel_stride = channel_stride};
    view.descale =
        dtype == QUATT_E4M3 ? static_cast<float>(std::exp2(random.uniform(-9, 9))) : 1.0f;
    const std::int64_t span = gap * tokens * channels;
    // NaN in every dtype, where nothing is written.
    std::vector<std::byte> memory(static_cast<std::size_t>(2 * span * size + 8), std::byte{0xFF});
    std::byte* origin = memory.data() + span * size + misalign;
    std::vector<double> x(static_cast<std::size_t>(tokens * channels));
    for (std::int64_t j = 0; j < tokens; j++) {
        for (std::int64_t d = 0; d < channels; d++) {
            std::byte* p = origin + (j * token_stride + d * channel_stride) * size;
            // Exact in f32 and bf16; f16 and e4m3 get codes at random.
            const float y = bf16(4 * random.normal());
            double value = static_cast<double>(y);
            if (dtype == QUATT_F32) {
                std::memcpy(p, &y, 4);
            } else if (dtype == QUATT_BF16) {
                const auto c = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(y) >> 16);
                std::memcpy(p, &c, 2);
            } else if (dtype == QUATT_F16) {
                const auto c = static_cast<std::uint16_t>(random.integer(0, 0x4FFF) |
                                                          random.integer(0, 1) << 15);
                std::memcpy(p, &c, 2);
                value = oracle::decode_f16(c);
            } else {
                const auto c =
                    static_cast<std::uint8_t>(random.integer(0, 0x7E) | random.integer(0, 1) << 7);
                std::memcpy(p, &c, 1);
                value =
                    static_cast<double>(static_cast<float>(oracle::decode_e4m3(c)) * view.descale);
            }
            x[static_cast<std::size_t>(j * channels + d)] = value;
        }
    }
    if (sign_t == 0) {  // every token is the one written last
        for (std::size_t i = 0; i < x.size(); i++) {
            x[i] = x[static_cast<std::size_t>((tokens - 1) * channels) +
                     i % static_cast<std::size_t>(channels)];
        }
    }
    view.data = origin;
    if (dtype == QUATT_E4M3 && takes_given_codes(o.r)) {
        return;  // taken over, not quantised: below
    }
    const std::vector<std::byte> before = memory;
    const QuantisedHead h(o.r, o.mean_term, view);
    const testing::AssertionResult right =
        is_right(o, h, tokens, channels, [&](std::int64_t j, std::int64_t d) {
            return x[static_cast<std::size_t>(j * channels + d)];
        });
    if (!right) {
        RC_FAIL(std::string(right.message()));
    }
    RC_ASSERT(memory == before);
}

TEST(Quantize, NothingToQuantise) {
    for (const Operand& o : operands()) {
        const std::vector<float> x(1);
        const QuantisedHead h(o.r, o.mean_term, view_of(x, 0, 7));
        EXPECT_TRUE(h.guards_are_whole()) << o.name;
        EXPECT_EQ(h.head.shape.token_groups + h.head.shape.mean_blocks + h.head.shape.norm_blocks,
                  0)
            << o.name;
    }
}

// ---------------------------------------------------------------------------------- scale groups

// Which elements share a scale: raising one raises the scale of exactly its group.
TEST(Quantize, GroupsAreThoseOfTheText) {
    struct Rule {
        const char* name;
        std::int64_t tokens, channels;
        std::function<bool(std::int64_t, std::int64_t, std::int64_t, std::int64_t)>
            together;  // (j, d) and (j', d')
    };
    const auto per_16_channels = [](std::int64_t j, std::int64_t d, std::int64_t j2,
                                    std::int64_t d2) { return j == j2 && d / 16 == d2 / 16; };
    const auto per_channel = [](std::int64_t, std::int64_t d, std::int64_t, std::int64_t d2) {
        return d == d2;
    };
    const std::vector<Rule> rules = {
        {"fp8.q", 6, 20,
         [](std::int64_t j, std::int64_t, std::int64_t j2, std::int64_t) { return j == j2; }},
        {"fp8.k", 130, 5,
         [](std::int64_t j, std::int64_t, std::int64_t j2, std::int64_t) {
             return j / 64 == j2 / 64;
         }},
        {"fp8.v", 70, 20, per_channel},
        {"fp8_head.q", 70, 5, [](auto...) { return true; }},
        {"fp8_head.k", 70, 5, [](auto...) { return true; }},
        {"fp8_head.v", 70, 5, [](auto...) { return true; }},
        {"int8_fp8.q", 70, 5,
         [](std::int64_t j, std::int64_t, std::int64_t j2, std::int64_t) {
             return j / 32 == j2 / 32;
         }},
        {"int8_fp8.k", 130, 5,
         [](std::int64_t j, std::int64_t, std::int64_t j2, std::int64_t) {
             return j / 64 == j2 / 64;
         }},
        {"int8_fp8.v", 70, 20, per_channel},
        {"nvfp4.q", 5, 40, per_16_channels},
        {"nvfp4.k", 5, 40, per_16_channels},
        {"nvfp4.v", 70, 3,
         [](std::int64_t j, std::int64_t d, std::int64_t j2, std::int64_t d2) {
             return d == d2 && j / 32 == j2 / 32 && j % 8 / 4 == j2 % 8 / 4;
         }},
        {"nvfp4_fp8.q", 5, 40, per_16_channels},
        {"nvfp4_fp8.k", 5, 40, per_16_channels},
        {"nvfp4_fp8.v", 70, 20, per_channel},
    };
    for (const Rule& rule : rules) {
        // Plus and minus one value, so that no mean is in the way; NaN marks the group.
        Operand o = operand(rule.name);
        o.r.center = QUATT_CENTER_NONE;
        o.mean_term = false;
        const auto n = static_cast<std::size_t>(rule.tokens * rule.channels);
        std::vector<float> x(n);
        Random random(5);
        for (std::size_t i = 0; i < n; i++) {
            x[i] = i % 2 == 0 ? 1.0f : -1.0f;
        }
        const QuantisedHead plain(o.r, false, view_of(x, rule.tokens, rule.channels));
        for (int round = 0; round < 40; round++) {
            const std::int64_t j = random.integer(0, rule.tokens - 1),
                               d = random.integer(0, rule.channels - 1);
            std::vector<float> y = x;
            // The norm stays: 1.25 and 1 are both below 1.3125.
            y[static_cast<std::size_t>(j * rule.channels + d)] *= 1.25f;
            const QuantisedHead h(o.r, false, view_of(y, rule.tokens, rule.channels));
            for (std::int64_t j2 = 0; j2 < rule.tokens; j2++) {
                for (std::int64_t d2 = 0; d2 < rule.channels; d2++) {
                    ASSERT_EQ(h.scale(j2, d2) > plain.scale(j2, d2), rule.together(j, d, j2, d2))
                        << rule.name << ": (" << j << ", " << d << ") and (" << j2 << ", " << d2
                        << ")";
                    ASSERT_EQ(token_group(o.r, j2), h.group(j2, 0) / h.head.shape.channel_groups);
                }
            }
        }
    }
}

// ------------------------------------------------------------------------------------- constants

TEST(Quantize, ZerosHaveTheScaleOfTheText) {
    for (const Operand& o : operands()) {
        const std::vector<float> x(70 * 20);
        const QuantisedHead h(o.r, o.mean_term, view_of(x, 70, 20));
        for (std::int64_t j = 0; j < 70; j++) {
            for (std::int64_t d = 0; d < 20; d++) {
                // A channel that a sample shows to be constant: any other number is beyond the
                // scale.
                const bool of_sample = o.r.center == QUATT_CENTER_SAMPLE && o.r.group_channels == 1;
                ASSERT_EQ(h.scale(j, d), o.r.scale_format == QUATT_SCALE_UE4M3 ? 0
                                         : of_sample                           ? 0x1p-126
                                                                               : 1)
                    << o.name;
                ASSERT_EQ(h.code(j, d), 0) << o.name;
                ASSERT_EQ(h.mean(j, d), 0) << o.name;
                ASSERT_EQ(h.norm(j), 1) << o.name;
            }
        }
    }
}

TEST(Quantize, ConstantsComeBack) {
    for (const Operand& o : operands()) {
        for (const double c : {1e-8, 1e-3, 1.0, 448.0, 6e4, -3.0}) {
            // 65 tokens, so that a mean is no sum of powers of two.
            const float value = bf16(c);
            const std::vector<float> x(65 * 17, value);
            const QuantisedHead h(o.r, o.mean_term, view_of(x, 65, 17));
            for (std::int64_t j = 0; j < 65; j++) {
                for (std::int64_t d = 0; d < 17; d++) {
                    if (o.r.center != QUATT_CENTER_NONE) {
                        ASSERT_EQ(h.value(j, d), static_cast<double>(value))
                            << o.name << ": the mean is the constant, the rest 0";
                    } else if (o.r.format == QUATT_FORMAT_F16) {
                        ASSERT_EQ(h.value(j, d),
                                  oracle::nearest(oracle::kF16, static_cast<double>(value)))
                            << o.name;
                    } else {
                        // The constant is the largest number of its group: full code, scale rounded
                        // (UE4M3: to 1 in 16).
                        const double tolerance =
                            o.r.scale_format == QUATT_SCALE_UE4M3 ? 1.0 / 16 : kScaleError;
                        ASSERT_NEAR(h.value(j, d) / static_cast<double>(value), 1, tolerance)
                            << o.name << " " << c;
                    }
                }
            }
        }
    }
}

// A channel of zeros beside others, and a zero block of tokens.
TEST(Quantize, ZeroChannelAndZeroBlock) {
    Random random(8);
    for (const Operand& o : operands()) {
        std::vector<float> x = random.normals(130 * 20);
        for (std::int64_t j = 0; j < 130; j++) {
            x[static_cast<std::size_t>(j * 20 + 3)] = 0;
        }
        std::fill(x.begin() + 64 * 20, x.begin() + 128 * 20, 0.0f);
        const QuantisedHead h(o.r, o.mean_term, view_of(x, 130, 20));
        ASSERT_TRUE(is_right(o, h, 130, 20, [&](std::int64_t j, std::int64_t d) {
            return static_cast<double>(x[static_cast<std::size_t>(j * 20 + d)]);
        }));
        for (std::int64_t j = 0; j < 130; j++) {
            ASSERT_EQ(h.value(j, 3), 0) << o.name << ", token " << j;
        }
        if (o.r.center == QUATT_CENTER_NONE) {
            for (std::int64_t j = 64; j < 128; j++) {
                ASSERT_EQ(h.value(j, 5), 0) << o.name << ", token " << j;
            }
        }
    }
}

// So small that a scale would not be normal: it is clamped, and its reciprocal is finite.
TEST(Quantize, SubnormalInputs) {
    for (const Operand& o : operands()) {
        for (const float tiny :
             {std::numeric_limits<float>::denorm_min(), 0x1p-140f, 0x1p-127f, 0x1p-120f}) {
            std::vector<float> x(70 * 20);
            for (std::size_t i = 0; i < x.size(); i++) {
                x[i] = i % 2 == 0 ? tiny : -tiny;
            }
            const QuantisedHead h(o.r, o.mean_term, view_of(x, 70, 20));
            if (o.r.scale_format == QUATT_SCALE_UE4M3) {
                // fp32 scales end before their targets do; norms are powers of two down to 2^-126.
                ASSERT_TRUE(is_right(o, h, 70, 20, [&](std::int64_t j, std::int64_t d) {
                    return static_cast<double>(x[static_cast<std::size_t>(j * 20 + d)]);
                })) << tiny;
            }
            for (std::int64_t j = 0; j < 70; j++) {
                for (std::int64_t d = 0; d < 20; d++) {
                    ASSERT_TRUE(std::isfinite(h.value(j, d))) << o.name << " " << tiny;
                    ASSERT_LE(std::fabs(h.value(j, d)), 1.1 * static_cast<double>(tiny) + 0x1p-130)
                        << o.name << " " << tiny;
                    if (o.r.scale_format == QUATT_SCALE_F32) {
                        ASSERT_EQ(h.scale(j, d), std::max(0x1p-126, h.scale(j, d)));
                    }
                }
            }
        }
    }
}

TEST(Quantize, LargestInputs) {
    // Sums and squares near the end of fp32 must not overflow on the way.
    for (const Operand& o : operands()) {
        if (o.r.format == QUATT_FORMAT_F16) {
            continue;  // becomes infinite, as f16 does
        }
        std::vector<float> x(70 * 20);
        for (std::size_t i = 0; i < x.size(); i++) {
            x[i] = i / 20 % 2 == 0 ? 0x1.FEp126f : -0x1.FEp126f;
        }
        const QuantisedHead h(o.r, o.mean_term, view_of(x, 70, 20));
        for (std::int64_t j = 0; j < 70; j++) {
            for (std::int64_t d = 0; d < 20; d++) {
                ASSERT_NEAR(
                    h.value(j, d) / static_cast<double>(x[static_cast<std::size_t>(j * 20 + d)]), 1,
                    1.0 / 16)
                    << o.name;
            }
        }
    }
}

// --------------------------------------------------------------------------- means and normaliser

TEST(Quantize, NormaliserIsTheHalfOpenRange) {
    const Operand& o = operand("nvfp4.v");
    for (const auto& [amax, norm] : std::vector<std::pair<float, float>>{{1344, 1},
                                                                         {2687.9998f, 1},
                                                                         {2688, 2},
                                                                         {1343.9999f, .5f},
                                                                         {1, 0x1p-11f},
                                                                         {1.3125f, 0x1p-10f},
                                                                         {1.3124999f, 0x1p-11f},
                                                                         {1e-3f, 0x1p-21f},
                                                                         {6e4f, 32}}) {
        const std::vector<float> x = {amax, -amax, 0, 1e-9f};
        const QuantisedHead h(o.r, false, view_of(x, 4, 1));
        EXPECT_EQ(h.head.norm[0], norm) << amax;
    }
}

// A block's mean row counts for its amax, and has scales of its own: a Q that is all mean keeps it.
TEST(Quantize, MeanRowOfQ) {
    const Operand& o = operand("nvfp4.q");
    Random random(6);
    std::vector<float> x(300 * 32), part;
    for (std::int64_t j = 0; j < 300; j++) {
        for (std::int64_t d = 0; d < 32; d++) {
            const double mean = j / 128 == 0 ? 100 : j / 128 == 1 ? d : 0;
            x[static_cast<std::size_t>(j * 32 + d)] = bf16(mean + random.normal());
        }
    }
    const QuantisedHead h(o.r, true, view_of(x, 300, 32));
    EXPECT_EQ(h.head.shape.mean_blocks, 3);
    EXPECT_EQ(h.head.shape.norm_blocks, 3);
    EXPECT_EQ(h.norm(0), 0x1p-4) << "of the mean row, 100, and not of the centred rows, about 4";
    EXPECT_NE(h.norm(0), h.norm(299));
    for (std::int64_t j = 0; j < 300; j++) {
        for (std::int64_t d = 0; d < 32; d++) {
            // An E2M1 code is off by 1/4 of the scale's 6 at most, and by 1/6 near it: 1/16 (scale)
            // + 1/6 covers both.
            ASSERT_NEAR(h.coded_mean(j, d) * h.norm(j), h.mean(j, d),
                        (1.0 / 6 + 1.0 / 16) * (j / 128 == 0   ? 100.5
                                                : j / 128 == 1 ? d / 16 * 16 + 16
                                                               : 1))
                << j << " " << d;
        }
    }
}

// Means of a tail block are over its real tokens only.
TEST(Quantize, TailBlock) {
    Operand o = operand("nvfp4.q");
    std::vector<float> x(130 * 16, 1.0f);
    std::fill(x.begin() + 128 * 16, x.end(), 5.0f);
    const QuantisedHead h(o.r, true, view_of(x, 130, 16));
    EXPECT_EQ(h.mean(127, 3), 1);
    EXPECT_EQ(h.mean(128, 3), 5);
}

// A V channel keeps a mean that is small beside it: then a key with V = 0 is exactly 0, which
// matters where a key dominates.
TEST(Quantize, SmallMeansOfVStay) {
    const Operand& o = operand("e4m3 V a channel, mean of the segment");
    // Channel 0: mean far below 1/64 of the amax; channel 1: just below it; channel 2: above it;
    // channel 3: all mean.
    const std::vector<float> means = {.001f, .015f, .018f, 4.0f};
    std::vector<float> x(64 * 4);
    for (std::size_t j = 0; j < 64; j++) {
        for (std::size_t d = 0; d < 4; d++) {
            x[j * 4 + d] = d == 3 ? means[d] : (j % 2 == 0 ? 1.0f : -1.0f) + means[d];
        }
    }
    const QuantisedHead h(o.r, false, view_of(x, 64, 4));
    EXPECT_EQ(h.mean(0, 0), 0);
    EXPECT_EQ(h.mean(0, 1), 0);
    EXPECT_NEAR(h.mean(0, 2), .018, .018 / 256);
    EXPECT_EQ(h.mean(0, 3), 4);
    EXPECT_NEAR(h.scale(0, 1), 1.015 / 448, 1e-8)
        << "amax of what is quantised: with the mean in it";
    EXPECT_NEAR(h.scale(0, 2), 1.0 / 448, 1e-6);
    EXPECT_EQ(h.scale(0, 3), 1);
    // In K it is always taken out: there it costs nothing.
    const QuantisedHead k(operand("e4m3 K, mean of the segment").r, false, view_of(x, 64, 4));
    EXPECT_NE(k.mean(0, 0), 0);
}

// ------------------------------------------------------------------------------- not finite, given

// What one value that is not finite may spoil: its scale group or mean group.
TEST(Quantize, PoisonStaysInItsGroup) {
    constexpr std::int64_t kTokens = 300, kChannels = 40;
    const auto spoils = [](const Operand& o, std::int64_t j, std::int64_t d, std::int64_t j2,
                           std::int64_t d2) {
        const quatt_operand_recipe& r = o.r;
        if (r.format == QUATT_FORMAT_BF16 || r.format == QUATT_FORMAT_F16 ||
            r.format == QUATT_FORMAT_F32) {
            return d == d2 &&
                   (j == j2 || (r.center != QUATT_CENTER_NONE && r.center != QUATT_CENTER_SAMPLE));
        }
        if (r.normalize == QUATT_NORMALIZE_SEGMENT) {
            return true;
        }
        if (r.normalize == QUATT_NORMALIZE_BLOCK) {
            return j / r.block_tokens == j2 / r.block_tokens;
        }
        if (r.group_channels == 1) {
            return d == d2;  // scale and mean of a channel
        }
        // A sample leaves the group of its tokens out that has the value.
        return (r.center != QUATT_CENTER_NONE && r.center != QUATT_CENTER_SAMPLE) ||
               r.group_tokens == 0 || j / r.group_tokens == j2 / r.group_tokens;
    };
    // What the value may reach without spoiling it: by the centre of its channel, and by its token,
    // which is far from a centre of V.
    const auto moves = [](const Operand& o, std::int64_t j, std::int64_t d, std::int64_t j2,
                          std::int64_t d2) {
        return o.r.center == QUATT_CENTER_SAMPLE &&
               (o.r.group_channels == 1                ? j == j2
                : o.r.scale_format == QUATT_SCALE_NONE ? d == d2
                                                       : true);
    };
    Random random(9);
    for (const Operand& o : operands()) {
        const std::vector<float> x = random.normals(kTokens * kChannels);
        const QuantisedHead plain(o.r, o.mean_term, view_of(x, kTokens, kChannels));
        for (const float poison : {kNaN, kInf, -kInf}) {
            const std::int64_t j = random.integer(0, kTokens - 1),
                               d = random.integer(0, kChannels - 1);
            std::vector<float> y = x;
            y[static_cast<std::size_t>(j * kChannels + d)] = poison;
            const QuantisedHead h(o.r, o.mean_term, view_of(y, kTokens, kChannels));
            EXPECT_TRUE(h.guards_are_whole()) << o.name;
            for (std::int64_t j2 = 0; j2 < kTokens; j2++) {
                for (std::int64_t d2 = 0; d2 < kChannels; d2++) {
                    const double v = h.value(j2, d2);
                    if (!spoils(o, j, d, j2, d2) && moves(o, j, d, j2, d2)) {
                        // Half an ulp of E4M3 or INT8 beside 4.5 is less.
                        const auto want =
                            static_cast<double>(x[static_cast<std::size_t>(j2 * kChannels + d2)]);
                        ASSERT_NEAR(v, want, .07 * std::fabs(want) + .03) << o.name;
                    } else if (!spoils(o, j, d, j2, d2)) {
                        ASSERT_EQ(v, plain.value(j2, d2))
                            << o.name << ": (" << j << ", " << d << ") reached (" << j2 << ", "
                            << d2 << ")";
                    } else if (o.r.scale_format != QUATT_SCALE_NONE ||
                               (o.r.center != QUATT_CENTER_NONE &&
                                o.r.center != QUATT_CENTER_SAMPLE) ||
                               std::isnan(poison)) {
                        ASSERT_TRUE(std::isnan(v)) << o.name << ": (" << j2 << ", " << d2 << ") is "
                                                   << v << " in the group of a " << poison;
                    } else {
                        ASSERT_EQ(v, static_cast<double>(poison)) << o.name;
                    }
                    if (o.mean_term) {
                        ASSERT_EQ(std::isnan(h.coded_mean(j2, d2) * h.norm(j2)),
                                  spoils(o, j, d, j2, d2))
                            << o.name;
                    }
                }
            }
        }
    }
}

// Finite numbers that round to infinity become NaN, so that no score is infinite by itself; and the
// caller is told.
TEST(Quantize, FiniteNumbersBeyond16BitsAreNaN) {
    struct Number {
        float x;
        bool beyond;
    };
    const float inf = std::numeric_limits<float>::infinity(),
                most = std::numeric_limits<float>::max();
    for (const char* name : {"f16", "bf16"}) {
        const quatt_operand_recipe& r = find_recipe(name)->k;
        const bool is_f16 = r.format == QUATT_FORMAT_F16;
        const std::vector<Number> numbers =
            is_f16 ? std::vector<Number>{{65504, false}, {std::nextafter(65520.0f, 0.0f), false},
                                         {65520, true},  {1e30f, true},
                                         {most, true},   {inf, false}}
                   : std::vector<Number>{{65520, false},
                                         {0x1.FEp127f, false},
                                         {std::nextafter(0x1.FFp127f, 0.0f), false},
                                         {0x1.FFp127f, true},
                                         {most, true},
                                         {inf, false}};
        for (const Number& number : numbers) {
            for (const float sign : {1.0f, -1.0f}) {
                const std::vector<float> x = {1, 2, sign * number.x, 3, 4, 5};
                const HeadView view = support::view_of(x, 2, 3);
                const QuantisedHead h(r, false, view);
                EXPECT_EQ(quantize(r, view, h.head), number.beyond ? QUATT_DATA_OVERFLOW : 0)
                    << number.x;
                for (std::int64_t j = 0; j < 2; j++) {
                    for (std::int64_t d = 0; d < 3; d++) {
                        const bool it = j == 0 && d == 2;
                        const double y = h.value(j, d);
                        EXPECT_EQ(std::isnan(y), it && number.beyond) << name << " " << number.x;
                        EXPECT_EQ(std::isinf(y), it && number.x == inf) << name;
                    }
                }
            }
        }
    }
}

TEST(Quantize, GivenCodesAreTakenOver) {
    const Operand& o = operand("fp8_head.k");
    EXPECT_TRUE(takes_given_codes(o.r));
    std::vector<std::uint8_t> codes(300 * 5);
    for (std::size_t i = 0; i < codes.size(); i++) {
        codes[i] = static_cast<std::uint8_t>(i);  // all of them: -0, subnormals, NaN
    }
    for (const float descale : {1.0f, .37f, 1e-30f, 3e30f}) {
        const HeadView x{.data = reinterpret_cast<const std::byte*>(codes.data()),
                         .dtype = QUATT_E4M3,
                         .tokens = 100,
                         .channels = 5,
                         .token_stride = 15,
                         .channel_stride = 3,
                         .descale = descale};
        const QuantisedHead h(o.r, false, x);
        EXPECT_TRUE(h.guards_are_whole());
        EXPECT_EQ(h.head.scales[0], descale);
        for (std::int64_t j = 0; j < 100; j++) {
            for (std::int64_t d = 0; d < 5; d++) {
                ASSERT_EQ(static_cast<std::uint8_t>(h.head.codes[j * 5 + d]),
                          codes[static_cast<std::size_t>(j * 15 + d * 3)]);
            }
        }
    }
}

// ------------------------------------------------------------------------------- what readers see

TEST(Quantize, RowsDecodeToCodesTimesUe4m3Scales) {
    Random random(10);
    for (const Operand& o : operands()) {
        const std::vector<float> x = random.normals(150 * 37);
        const QuantisedHead h(o.r, o.mean_term, view_of(x, 150, 37));
        const bool fp4 = o.r.scale_format == QUATT_SCALE_UE4M3;
        std::vector<float> row(kMaxHeadDim), channels(kMaxHeadDim);
        channel_factors(o.r, h.head, channels.data());
        for (std::int64_t j = 0; j < 150; j++) {
            decode_row(o.r, h.head, j, row.data());
            for (std::int64_t d = 0; d < 37; d++) {
                // A product of E2M1 and UE4M3 has 6 bits, so it is exact; fp32 scales are left to
                // the factors.
                ASSERT_EQ(static_cast<double>(row[static_cast<std::size_t>(d)]),
                          h.code(j, d) * (fp4 ? h.scale(j, d) : 1))
                    << o.name;
                // A scale a channel is no factor of the row but of the channel.
                const bool row_scales = o.r.group_channels != 1;
                const double factor =
                    static_cast<double>(row_scales ? row_factor(o.r, h.head, j)
                                                   : channels[static_cast<std::size_t>(d)]);
                ASSERT_EQ(factor, static_cast<double>(
                                      static_cast<float>((fp4 ? 1 : h.scale(j, d)) * h.norm(j))))
                    << o.name;
            }
            if (o.mean_term) {
                decode_mean_row(o.r, h.head, j / o.r.block_tokens, row.data());
                for (std::int64_t d = 0; d < 37; d++) {
                    ASSERT_EQ(static_cast<double>(row[static_cast<std::size_t>(d)]),
                              h.coded_mean(j, d))
                        << o.name;
                }
            }
        }
    }
}

}  // namespace
}  // namespace quatt::recipe
