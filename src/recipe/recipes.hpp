// The named recipes as values that a compiler knows, of the host and of a GPU: kernels take what
// they need from here. docs/recipes.md has the formulas.
#pragma once
#include <quatt/quatt.h>

#include <array>
#include <cstddef>
#include <string_view>

namespace quatt::recipe {

namespace detail {

inline constexpr int kAll = 0;  // tokens or channels that share a scale

[[nodiscard]] constexpr quatt_operand_recipe unscaled(quatt_format format) {
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

[[nodiscard]] constexpr quatt_operand_recipe scaled(quatt_format format, int group_tokens,
                                                    int group_channels, float amax_target,
                                                    int center = QUATT_CENTER_NONE) {
    quatt_operand_recipe r = unscaled(format);
    r.scale_format = QUATT_SCALE_F32;
    r.group_tokens = group_tokens;
    r.group_channels = group_channels;
    r.amax_target = amax_target;
    r.center = center;
    return r;
}

[[nodiscard]] constexpr quatt_operand_recipe fp4(int group_tokens, int group_channels) {
    quatt_operand_recipe r = unscaled(QUATT_FORMAT_E2M1);
    r.scale_format = QUATT_SCALE_UE4M3;
    r.group_tokens = group_tokens;
    r.group_channels = group_channels;
    r.amax_target = 6.0f;
    r.normalize = QUATT_NORMALIZE_SEGMENT;
    return r;
}

struct Published {
    float rel_l2, lse_error;
};

template <std::size_t kBytes>
[[nodiscard]] constexpr quatt_recipe base(const char (&name)[kBytes], quatt_format p,
                                          int exponent_bias, Published published) {
    quatt_recipe r{};
    static_assert(kBytes <= sizeof r.name);
    r.struct_size = sizeof r;
    for (std::size_t i = 0; i < kBytes; i++) {
        r.name[i] = name[i];
    }
    r.p_format = p;
    r.overflow_format = p;
    r.exponent_bias = exponent_bias;
    r.overflow_code = 0x7E;
    r.promotion_interval = 2304;
    r.refresh_rise = 8;
    r.max_drop = 40;
    r.refreshes = 1;
    r.accumulator = QUATT_ACCUMULATOR_FP32;
    r.expected_rel_l2 = published.rel_l2;
    r.expected_lse_error = published.lse_error;
    return r;
}

[[nodiscard]] constexpr quatt_recipe bf16() {
    quatt_recipe r = base("bf16", QUATT_FORMAT_BF16, 0, {.rel_l2 = .0023f, .lse_error = .005f});
    r.q = r.k = r.v = unscaled(QUATT_FORMAT_BF16);
    r.refreshes = 0;
    return r;
}

[[nodiscard]] constexpr quatt_recipe f16() {
    quatt_recipe r = base("f16", QUATT_FORMAT_F16, 8, {.rel_l2 = .0003f, .lse_error = .005f});
    r.q = r.k = r.v = unscaled(QUATT_FORMAT_F16);
    return r;
}

[[nodiscard]] constexpr quatt_recipe fp8() {
    quatt_recipe r = base("fp8", QUATT_FORMAT_E4M3, 6, {.rel_l2 = .0533f, .lse_error = .03f});
    r.q = scaled(QUATT_FORMAT_E4M3, 1, kAll, 448.0f);
    r.k = scaled(QUATT_FORMAT_E4M3, 64, kAll, 448.0f, QUATT_CENTER_SAMPLE);
    r.v = scaled(QUATT_FORMAT_E4M3, kAll, 1, 448.0f, QUATT_CENTER_SAMPLE);
    r.promotes = 1;
    return r;
}

[[nodiscard]] constexpr quatt_recipe fp8_head() {
    quatt_recipe r = base("fp8_head", QUATT_FORMAT_E4M3, 6, {.rel_l2 = .0535f, .lse_error = .03f});
    r.q = r.k = r.v = scaled(QUATT_FORMAT_E4M3, kAll, kAll, 448.0f);
    r.promotes = 1;
    return r;
}

[[nodiscard]] constexpr quatt_recipe int8_fp8() {
    quatt_recipe r = base("int8_fp8", QUATT_FORMAT_E4M3, 6, {.rel_l2 = .0392f, .lse_error = .007f});
    r.q = scaled(QUATT_FORMAT_INT8, 32, kAll, 127.0f);
    r.k = scaled(QUATT_FORMAT_INT8, 64, kAll, 127.0f, QUATT_CENTER_SAMPLE);
    r.v = fp8().v;
    r.promotes = 1;
    return r;
}

[[nodiscard]] constexpr quatt_recipe nvfp4() {
    quatt_recipe r = base("nvfp4", QUATT_FORMAT_E2M1, 8, {.rel_l2 = .190f, .lse_error = .10f});
    r.q = fp4(1, 16);
    r.q.center = QUATT_CENTER_BLOCK;
    r.q.normalize = QUATT_NORMALIZE_BLOCK;
    r.q.block_tokens = 128;
    r.k = fp4(1, 16);
    r.k.center = QUATT_CENTER_SEGMENT;
    r.v = fp4(16, 1);
    r.v.key_groups = 1;
    r.q_mean_term = 1;
    return r;
}

[[nodiscard]] constexpr quatt_recipe nvfp4_fp8() {
    quatt_recipe r = base("nvfp4_fp8", QUATT_FORMAT_E4M3, 6, {.rel_l2 = .142f, .lse_error = .10f});
    r.q = nvfp4().q;
    r.k = nvfp4().k;
    r.v = fp8().v;
    r.q_mean_term = 1;
    r.promotes = 1;
    return r;
}

[[nodiscard]] constexpr bool same_operand(const quatt_operand_recipe& a,
                                          const quatt_operand_recipe& b) {
    return a.format == b.format && a.scale_format == b.scale_format &&
           a.group_tokens == b.group_tokens && a.group_channels == b.group_channels &&
           a.key_groups == b.key_groups && a.center == b.center && a.normalize == b.normalize &&
           a.block_tokens == b.block_tokens && a.amax_target == b.amax_target;
}

}  // namespace detail

inline constexpr quatt_recipe kBf16 = detail::bf16();
inline constexpr quatt_recipe kF16 = detail::f16();
inline constexpr quatt_recipe kFp8 = detail::fp8();
inline constexpr quatt_recipe kFp8Head = detail::fp8_head();
inline constexpr quatt_recipe kInt8Fp8 = detail::int8_fp8();
inline constexpr quatt_recipe kNvfp4 = detail::nvfp4();
inline constexpr quatt_recipe kNvfp4Fp8 = detail::nvfp4_fp8();

inline constexpr std::array<quatt_recipe, 7> kNamedRecipes = {kBf16,    kF16,   kFp8,     kFp8Head,
                                                              kInt8Fp8, kNvfp4, kNvfp4Fp8};

// Null where there is no recipe of that name.
[[nodiscard]] inline const quatt_recipe* find_recipe(std::string_view name) {
    for (const quatt_recipe& r : kNamedRecipes) {
        if (name == r.name) {
            return &r;
        }
    }
    return nullptr;
}

// Struct_size, name and published errors do not count.
[[nodiscard]] constexpr bool same_arithmetic(const quatt_recipe& a, const quatt_recipe& b) {
    return detail::same_operand(a.q, b.q) && detail::same_operand(a.k, b.k) &&
           detail::same_operand(a.v, b.v) && a.p_format == b.p_format &&
           a.overflow_format == b.overflow_format && a.exponent_bias == b.exponent_bias &&
           a.overflow_code == b.overflow_code && a.promotion_interval == b.promotion_interval &&
           a.refresh_rise == b.refresh_rise && a.max_drop == b.max_drop &&
           a.refreshes == b.refreshes && a.accumulator == b.accumulator &&
           a.promotes == b.promotes && a.q_mean_term == b.q_mean_term;
}

// Codes of this operand are taken over from E4M3 inputs as they are, with the given descale as
// their scale.
[[nodiscard]] constexpr bool takes_given_codes(const quatt_operand_recipe& o) {
    return o.format == QUATT_FORMAT_E4M3 && o.scale_format == QUATT_SCALE_F32 &&
           o.group_tokens == 0 && o.group_channels == 0 && o.center == QUATT_CENTER_NONE;
}

// Tokens of V that are far from the centre are coded as they are.
[[nodiscard]] constexpr bool keeps_far_tokens(const quatt_operand_recipe& v) {
    return v.center == QUATT_CENTER_SAMPLE && v.group_channels == 1;
}

}  // namespace quatt::recipe
