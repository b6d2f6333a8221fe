#include "recipe/recipes.hpp"

#include <array>
#include <cmath>
#include <cstring>
#include <limits>

namespace quatt::recipe {
namespace {

constexpr int kPlainBlock = 128;  // tokens of a Q block that shares a mean (nvfp4)

constexpr quatt_operand_recipe plain(quatt_format format) {
    return {.format = format,
            .scale_format = QUATT_SCALE_NONE,
            .group_tokens = 0,
            .group_channels = 0,
            .key_groups = 0,
            .center = QUATT_CENTER_NONE,
            .normalize = QUATT_NORMALIZE_NONE,
            .block_tokens = 0,
            .amax_target = 1.0f};
}

constexpr quatt_operand_recipe scaled(quatt_format format, int group_tokens, int group_channels,
                                      float amax_target, int center = QUATT_CENTER_NONE) {
    quatt_operand_recipe r = plain(format);
    r.scale_format = QUATT_SCALE_F32;
    r.group_tokens = group_tokens;
    r.group_channels = group_channels;
    r.amax_target = amax_target;
    r.center = center;
    return r;
}

constexpr quatt_operand_recipe fp4(int group_tokens, int group_channels) {
    quatt_operand_recipe r = plain(QUATT_FORMAT_E2M1);
    r.scale_format = QUATT_SCALE_UE4M3;
    r.group_tokens = group_tokens;
    r.group_channels = group_channels;
    r.amax_target = 6.0f;
    r.normalize = QUATT_NORMALIZE_SEGMENT;
    return r;
}

quatt_recipe base(const char* name, quatt_format p, int p_exponent, float rel_l2, float lse) {
    quatt_recipe r{};
    r.struct_size = sizeof r;
    std::strncpy(r.name, name, sizeof r.name - 1);
    r.p_format = p;
    r.p_overflow = p;
    r.p_exponent = p_exponent;
    r.overflow_code = 0x7E;
    r.interval_keys = 2304;
    r.look_rise = 8;
    r.fall_limit = 40;
    r.looks = 1;
    r.accumulator = QUATT_ACCUMULATOR_FP32;
    r.expected_rel_l2 = rel_l2;
    r.expected_lse_error = lse;
    return r;
}

std::array<quatt_recipe, 7> make_recipes() {
    constexpr int kAll = 0;
    quatt_recipe bf16 = base("bf16", QUATT_FORMAT_BF16, 0, .0023f, .005f);
    bf16.q = bf16.k = bf16.v = plain(QUATT_FORMAT_BF16);
    bf16.looks = 0;

    quatt_recipe f16 = base("f16", QUATT_FORMAT_F16, 8, .0003f, .005f);
    f16.q = f16.k = f16.v = plain(QUATT_FORMAT_F16);

    quatt_recipe fp8 = base("fp8", QUATT_FORMAT_E4M3, 6, .0533f, .03f);
    fp8.q = scaled(QUATT_FORMAT_E4M3, 1, kAll, 448.0f);
    fp8.k = scaled(QUATT_FORMAT_E4M3, 64, kAll, 448.0f, QUATT_CENTER_SEGMENT);
    fp8.v = scaled(QUATT_FORMAT_E4M3, kAll, 1, 448.0f, QUATT_CENTER_SEGMENT);
    fp8.promote = 1;

    quatt_recipe fp8_head = base("fp8_head", QUATT_FORMAT_E4M3, 6, .0535f, .03f);
    fp8_head.q = fp8_head.k = fp8_head.v = scaled(QUATT_FORMAT_E4M3, kAll, kAll, 448.0f);
    fp8_head.promote = 1;

    quatt_recipe int8_fp8 = base("int8_fp8", QUATT_FORMAT_E4M3, 6, .0392f, .007f);
    int8_fp8.q = scaled(QUATT_FORMAT_INT8, 32, kAll, 127.0f);
    int8_fp8.k = scaled(QUATT_FORMAT_INT8, 64, kAll, 127.0f, QUATT_CENTER_SEGMENT);
    int8_fp8.v = fp8.v;
    int8_fp8.promote = 1;

    quatt_recipe nvfp4 = base("nvfp4", QUATT_FORMAT_E2M1, 8, .190f, .10f);
    nvfp4.q = fp4(1, 16);
    nvfp4.q.center = QUATT_CENTER_BLOCK;
    nvfp4.q.normalize = QUATT_NORMALIZE_BLOCK;
    nvfp4.q.block_tokens = kPlainBlock;
    nvfp4.k = fp4(1, 16);
    nvfp4.k.center = QUATT_CENTER_SEGMENT;
    nvfp4.v = fp4(16, 1);
    nvfp4.v.key_groups = 1;
    nvfp4.q_mean_term = 1;

    quatt_recipe nvfp4_fp8 = base("nvfp4_fp8", QUATT_FORMAT_E4M3, 6, .142f, .10f);
    nvfp4_fp8.q = nvfp4.q;
    nvfp4_fp8.k = nvfp4.k;
    nvfp4_fp8.v = fp8.v;
    nvfp4_fp8.q_mean_term = 1;
    nvfp4_fp8.promote = 1;
    return {bf16, f16, fp8, fp8_head, int8_fp8, nvfp4, nvfp4_fp8};
}

const std::array<quatt_recipe, 7>& recipes() {
    static const std::array<quatt_recipe, 7> all = make_recipes();
    return all;
}

bool same_operand(const quatt_operand_recipe& a, const quatt_operand_recipe& b) {
    return a.format == b.format && a.scale_format == b.scale_format &&
           a.group_tokens == b.group_tokens && a.group_channels == b.group_channels &&
           a.key_groups == b.key_groups && a.center == b.center && a.normalize == b.normalize &&
           a.block_tokens == b.block_tokens && a.amax_target == b.amax_target;
}

class Checker {
public:
    std::vector<std::string> take() { return std::move(faults_); }

    void want(bool ok, const char* field, auto value, const char* allowed) {
        if (!ok) {
            faults_.push_back(prefix_ + field + " is " + std::to_string(value) + "; it must be " +
                              allowed);
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
        want(r.center >= 0 && r.center <= QUATT_CENTER_BLOCK, "center", r.center,
             "QUATT_CENTER_NONE, SEGMENT or BLOCK (0..2)");
        want(r.normalize >= 0 && r.normalize <= QUATT_NORMALIZE_BLOCK, "normalize", r.normalize,
             "QUATT_NORMALIZE_NONE, SEGMENT or BLOCK (0..2)");
        if (!is_q) {
            want(r.center != QUATT_CENTER_BLOCK, "center", r.center,
                 "NONE or SEGMENT: only Q can lose a mean per block");
            want(r.normalize != QUATT_NORMALIZE_BLOCK, "normalize", r.normalize,
                 "NONE or SEGMENT: only Q is normalised per block");
        } else {
            want(r.center != QUATT_CENTER_SEGMENT, "center", r.center, "NONE or BLOCK for Q");
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

std::span<const quatt_recipe> named_recipes() {
    return recipes();
}

const quatt_recipe* find_recipe(std::string_view name) {
    for (const quatt_recipe& r : recipes()) {
        if (name == r.name) {
            return &r;
        }
    }
    return nullptr;
}

bool same_arithmetic(const quatt_recipe& a, const quatt_recipe& b) {
    return same_operand(a.q, b.q) && same_operand(a.k, b.k) && same_operand(a.v, b.v) &&
           a.p_format == b.p_format && a.p_overflow == b.p_overflow &&
           a.p_exponent == b.p_exponent && a.overflow_code == b.overflow_code &&
           a.interval_keys == b.interval_keys && a.look_rise == b.look_rise &&
           a.fall_limit == b.fall_limit && a.looks == b.looks && a.accumulator == b.accumulator &&
           a.promote == b.promote && a.q_mean_term == b.q_mean_term;
}

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
    const bool o_known = r.p_overflow == QUATT_FORMAT_BF16 || r.p_overflow == QUATT_FORMAT_F16 ||
                         r.p_overflow == QUATT_FORMAT_E4M3 || r.p_overflow == QUATT_FORMAT_E2M1;
    c.want(o_known && (r.p_format == QUATT_FORMAT_F32 || r.p_overflow == r.p_format), "p_overflow",
           r.p_overflow, "p_format, or with p_format F32 one of BF16, F16, E4M3, E2M1");
    c.want(r.p_exponent >= 0 && r.p_exponent <= 14, "p_exponent", r.p_exponent, "0 to 14");
    c.want(r.overflow_code > 0 && r.overflow_code <= 0x7E, "overflow_code", r.overflow_code,
           "1 to 0x7E");
    c.want(r.interval_keys > 0 && r.interval_keys % 2304 == 0, "interval_keys", r.interval_keys,
           "a multiple of 2304 (a multiple of every key tile)");
    c.want(r.look_rise > 0, "look_rise", r.look_rise, "> 0");
    c.want(r.fall_limit >= 0 && r.fall_limit <= 100, "fall_limit", r.fall_limit, "0 to 100");
    c.want(r.looks == 0 || r.looks == 1, "looks", r.looks, "0 or 1");
    c.want(r.accumulator == QUATT_ACCUMULATOR_FP32 || r.accumulator == QUATT_ACCUMULATOR_HOPPER,
           "accumulator", r.accumulator,
           "QUATT_ACCUMULATOR_FP32 (0) or QUATT_ACCUMULATOR_HOPPER (1)");
    c.want(r.promote == 0 || r.promote == 1, "promote", r.promote, "0 or 1");
    c.want(r.q_mean_term == 0 ||
               (r.q_mean_term == 1 && r.q.format == QUATT_FORMAT_E2M1 &&
                r.q.center == QUATT_CENTER_BLOCK && r.q.normalize == QUATT_NORMALIZE_BLOCK),
           "q_mean_term", r.q_mean_term,
           "0, or 1 where q is E2M1 with center and normalize per block");
    return c.take();
}

const char* format_name(quatt_format format) {
    switch (format) {
        case QUATT_FORMAT_F32:
            return "f32";
        case QUATT_FORMAT_BF16:
            return "bf16";
        case QUATT_FORMAT_F16:
            return "f16";
        case QUATT_FORMAT_E4M3:
            return "e4m3";
        case QUATT_FORMAT_INT8:
            return "int8";
        case QUATT_FORMAT_E2M1:
            return "e2m1";
        default:
            return "unknown";
    }
}

bool takes_given_codes(const quatt_operand_recipe& o) {
    return o.format == QUATT_FORMAT_E4M3 && o.scale_format == QUATT_SCALE_F32 &&
           o.group_tokens == 0 && o.group_channels == 0 && o.center == QUATT_CENTER_NONE;
}

}  // namespace quatt::recipe
