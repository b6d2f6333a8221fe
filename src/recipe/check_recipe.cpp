#include "recipe/check_recipe.hpp"

#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <utility>

namespace quatt::recipe {
namespace {

// As short as it can be, and the same in every locale, which std::to_string is not.
std::string number(auto value) {
    std::array<char, 32> digits{};
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
    return {digits.data(), end};
}

class Checker {
public:
    std::vector<std::string> take() { return std::move(faults_); }

    void want(bool ok, const char* field, auto value, const char* allowed) {
        if (!ok) {
            faults_.push_back(prefix_ + field + " is " + number(value) + "; it must be " + allowed);
        }
    }
    void operand(const char* name, const quatt_operand_recipe& r, bool is_v, bool is_q) {
        prefix_ = std::string("recipe.") + name + ".";
        const bool wide = r.format == QUATT_FORMAT_F32 || r.format == QUATT_FORMAT_BF16 ||
                          r.format == QUATT_FORMAT_F16;
        const bool narrow = r.format == QUATT_FORMAT_E4M3 || r.format == QUATT_FORMAT_INT8 ||
                            r.format == QUATT_FORMAT_E2M1;
        want(wide || narrow, "format", r.format,
             "one of QUATT_FORMAT_F32, BF16, F16, E4M3, INT8, E2M1");
        if (wide) {
            want(r.scale_format == QUATT_SCALE_NONE, "scale_format", r.scale_format,
                 "QUATT_SCALE_NONE (0) for a 16- or 32-bit format");
        } else if (r.format == QUATT_FORMAT_E2M1) {
            want(r.scale_format == QUATT_SCALE_UE4M3, "scale_format", r.scale_format,
                 "QUATT_SCALE_UE4M3 (2) for E2M1");
            want(r.group_channels == (is_v ? 1 : 16), "group_channels", r.group_channels,
                 is_v ? "1 (E2M1 V has a scale per 16 keys and channel)"
                      : "16 (E2M1 Q and K have a scale per token and 16 channels)");
            want(r.group_tokens == (is_v ? 16 : 1), "group_tokens", r.group_tokens,
                 is_v ? "16" : "1");
            want(r.normalize != QUATT_NORMALIZE_NONE, "normalize", r.normalize,
                 "QUATT_NORMALIZE_SEGMENT (1) or BLOCK (2) for E2M1");
        } else {
            want(r.scale_format == QUATT_SCALE_F32, "scale_format", r.scale_format,
                 "QUATT_SCALE_F32 (1) for E4M3 and INT8");
            want(r.normalize == QUATT_NORMALIZE_NONE, "normalize", r.normalize,
                 "QUATT_NORMALIZE_NONE (0) for a format with fp32 scales");
            if (is_v) {
                want(r.group_tokens == 0, "group_tokens", r.group_tokens,
                     "0: an fp32 scale of V is for the whole segment");
                want(r.group_channels == 0 || r.group_channels == 1, "group_channels",
                     r.group_channels, "0 (one scale a head) or 1 (one a channel)");
            } else {
                want(r.group_tokens >= 0, "group_tokens", r.group_tokens, ">= 0");
                want(r.group_channels == 0, "group_channels", r.group_channels,
                     "0: an fp32 scale of Q or K is for all channels");
            }
        }
        want(r.key_groups == 0 || (r.key_groups == 1 && is_v && r.format == QUATT_FORMAT_E2M1),
             "key_groups", r.key_groups, "0, or 1 for E2M1 V");
        want(r.center >= 0 && r.center <= QUATT_CENTER_SAMPLE, "center", r.center,
             "QUATT_CENTER_NONE, SEGMENT, BLOCK or SAMPLE (0..3)");
        want(r.normalize >= 0 && r.normalize <= QUATT_NORMALIZE_BLOCK, "normalize", r.normalize,
             "QUATT_NORMALIZE_NONE, SEGMENT or BLOCK (0..2)");
        if (!is_q) {
            want(r.center != QUATT_CENTER_BLOCK, "center", r.center,
                 "NONE, SEGMENT or SAMPLE: only Q can lose a mean per block");
            want(r.normalize != QUATT_NORMALIZE_BLOCK, "normalize", r.normalize,
                 "NONE or SEGMENT: only Q is normalised per block");
        } else {
            want(r.center != QUATT_CENTER_SEGMENT && r.center != QUATT_CENTER_SAMPLE, "center",
                 r.center, "NONE or BLOCK for Q");
        }
        if (is_v) {
            // The scale of a sample needs head-room, which costs a float nothing.
            want(r.center != QUATT_CENTER_SAMPLE ||
                     (r.format == QUATT_FORMAT_E4M3 && r.group_channels == 1),
                 "center", r.center,
                 "NONE or SEGMENT for V, or SAMPLE for E4M3 with a scale a channel");
        }
        const bool blocks = r.center == QUATT_CENTER_BLOCK || r.normalize == QUATT_NORMALIZE_BLOCK;
        want(blocks ? r.block_tokens > 0 : r.block_tokens == 0, "block_tokens", r.block_tokens,
             blocks ? "> 0 where center or normalize is per block"
                    : "0 where neither center nor normalize is per block");
        const float most = r.format == QUATT_FORMAT_E4M3   ? 448.0f
                           : r.format == QUATT_FORMAT_INT8 ? 127.0f
                           : r.format == QUATT_FORMAT_E2M1 ? 6.0f
                                                           : std::numeric_limits<float>::max();
        // Below 1 most values would round to 0.
        want(std::isfinite(r.amax_target) &&
                 r.amax_target >= (narrow ? 1.0f : std::numeric_limits<float>::min()) &&
                 r.amax_target <= most,
             "amax_target", r.amax_target,
             narrow ? "1 to the format's largest number (E4M3 448, INT8 127, E2M1 6)"
                    : "finite and > 0");
        prefix_ = "recipe.";
    }

private:
    std::string prefix_ = "recipe.";
    std::vector<std::string> faults_;
};

}  // namespace

std::vector<std::string> check_recipe(const quatt_recipe& r) {
    Checker c;
    c.operand("q", r.q, false, true);
    c.operand("k", r.k, false, false);
    c.operand("v", r.v, true, false);
    const bool p_known = r.p_format == QUATT_FORMAT_F32 || r.p_format == QUATT_FORMAT_BF16 ||
                         r.p_format == QUATT_FORMAT_F16 || r.p_format == QUATT_FORMAT_E4M3 ||
                         r.p_format == QUATT_FORMAT_E2M1;
    c.want(p_known, "p_format", r.p_format,
           "one of QUATT_FORMAT_F32 (not rounded), BF16, F16, E4M3, E2M1");
    const bool o_known =
        r.overflow_format == QUATT_FORMAT_BF16 || r.overflow_format == QUATT_FORMAT_F16 ||
        r.overflow_format == QUATT_FORMAT_E4M3 || r.overflow_format == QUATT_FORMAT_E2M1;
    c.want(o_known && (r.p_format == QUATT_FORMAT_F32 || r.overflow_format == r.p_format),
           "overflow_format", r.overflow_format,
           "p_format, or with p_format F32 one of BF16, F16, E4M3, E2M1");
    c.want(r.exponent_bias >= 0 && r.exponent_bias <= 14, "exponent_bias", r.exponent_bias,
           "0 to 14");
    c.want(r.overflow_code > 0 && r.overflow_code <= 0x7E, "overflow_code", r.overflow_code,
           "1 to 0x7E");
    c.want(r.promotion_interval > 0 && r.promotion_interval % 2304 == 0, "promotion_interval",
           r.promotion_interval, "a multiple of 2304 (a multiple of every key tile)");
    c.want(r.refresh_rise > 0, "refresh_rise", r.refresh_rise, "> 0");
    c.want(r.max_drop >= 0 && r.max_drop <= 100, "max_drop", r.max_drop, "0 to 100");
    c.want(r.refreshes == 0 || r.refreshes == 1, "refreshes", r.refreshes, "0 or 1");
    c.want(r.accumulator == QUATT_ACCUMULATOR_FP32 || r.accumulator == QUATT_ACCUMULATOR_HOPPER,
           "accumulator", r.accumulator,
           "QUATT_ACCUMULATOR_FP32 (0) or QUATT_ACCUMULATOR_HOPPER (1)");
    c.want(r.promotes == 0 || r.promotes == 1, "promotes", r.promotes, "0 or 1");
    c.want(r.q_mean_term == 0 ||
               (r.q_mean_term == 1 && r.q.format == QUATT_FORMAT_E2M1 &&
                r.q.center == QUATT_CENTER_BLOCK && r.q.normalize == QUATT_NORMALIZE_BLOCK),
           "q_mean_term", r.q_mean_term,
           "0, or 1 where q is E2M1 with center and normalize per block");
    return c.take();
}

}  // namespace quatt::recipe
