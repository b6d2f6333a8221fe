// Recipes as values: the named ones are those of docs/recipes.md, what cannot be computed is
// refused by name, equality is of arithmetic.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "recipe/check_recipe.hpp"
#include "recipe/recipes.hpp"
#include "recipe/softmax_policy.hpp"

namespace quatt::recipe {
namespace {

using Change = std::function<void(quatt_recipe&)>;

const quatt_recipe& named(const char* name) {
    return *find_recipe(name);
}

// ------------------------------------------------------------------------------------ named ones

TEST(Recipes, Names) {
    std::vector<std::string> names;
    for (const quatt_recipe& r : kNamedRecipes) {
        names.emplace_back(r.name);
        EXPECT_EQ(find_recipe(r.name), &r);
        EXPECT_EQ(r.struct_size, sizeof(quatt_recipe));
        EXPECT_TRUE(check_recipe(r).empty()) << r.name;
        EXPECT_GT(r.expected_rel_l2, 0);
        EXPECT_GT(r.expected_lse_error, 0);
    }
    EXPECT_EQ(names, (std::vector<std::string>{"bf16", "f16", "fp8", "fp8_head", "int8_fp8",
                                               "nvfp4", "nvfp4_fp8"}));
    for (const char* other : {"", "FP8", "fp8 ", "fp", "fp88", "nvfp4_fp8_"}) {
        EXPECT_EQ(find_recipe(other), nullptr) << other;
    }
}

void expect_operand(const quatt_operand_recipe& r, const char* what, quatt_format format, int scale,
                    int tokens, int channels, int center, int normalize, int block, int key_groups,
                    float target) {
    EXPECT_EQ(r.format, format) << what;
    EXPECT_EQ(r.scale_format, scale) << what;
    EXPECT_EQ(r.group_tokens, tokens) << what;
    EXPECT_EQ(r.group_channels, channels) << what;
    EXPECT_EQ(r.center, center) << what;
    EXPECT_EQ(r.normalize, normalize) << what;
    EXPECT_EQ(r.block_tokens, block) << what;
    EXPECT_EQ(r.key_groups, key_groups) << what;
    EXPECT_EQ(r.amax_target, target) << what;
}

// The table of docs/recipes.md, field by field.
TEST(Recipes, FieldsOfTheTable) {
    constexpr int kNone = QUATT_SCALE_NONE, kF32 = QUATT_SCALE_F32, kUe = QUATT_SCALE_UE4M3,
                  kSegment = QUATT_CENTER_SEGMENT, kSample = QUATT_CENTER_SAMPLE;
    for (const auto& [name, format] :
         {std::pair{"bf16", QUATT_FORMAT_BF16}, {"f16", QUATT_FORMAT_F16}}) {
        for (const quatt_operand_recipe* o : {&named(name).q, &named(name).k, &named(name).v}) {
            expect_operand(*o, name, format, kNone, 0, 0, 0, 0, 0, 0, 1);
        }
    }
    expect_operand(named("fp8").q, "fp8.q", QUATT_FORMAT_E4M3, kF32, 1, 0, 0, 0, 0, 0, 448);
    expect_operand(named("fp8").k, "fp8.k", QUATT_FORMAT_E4M3, kF32, 64, 0, kSample, 0, 0, 0, 448);
    for (const char* name : {"fp8", "int8_fp8", "nvfp4_fp8"}) {
        expect_operand(named(name).v, name, QUATT_FORMAT_E4M3, kF32, 0, 1, kSample, 0, 0, 0, 448);
    }
    for (const quatt_operand_recipe* o :
         {&named("fp8_head").q, &named("fp8_head").k, &named("fp8_head").v}) {
        expect_operand(*o, "fp8_head", QUATT_FORMAT_E4M3, kF32, 0, 0, 0, 0, 0, 0, 448);
    }
    expect_operand(named("int8_fp8").q, "int8_fp8.q", QUATT_FORMAT_INT8, kF32, 32, 0, 0, 0, 0, 0,
                   127);
    expect_operand(named("int8_fp8").k, "int8_fp8.k", QUATT_FORMAT_INT8, kF32, 64, 0, kSample, 0, 0,
                   0, 127);
    for (const char* name : {"nvfp4", "nvfp4_fp8"}) {
        expect_operand(named(name).q, name, QUATT_FORMAT_E2M1, kUe, 1, 16, QUATT_CENTER_BLOCK,
                       QUATT_NORMALIZE_BLOCK, 128, 0, 6);
        expect_operand(named(name).k, name, QUATT_FORMAT_E2M1, kUe, 1, 16, kSegment,
                       QUATT_NORMALIZE_SEGMENT, 0, 0, 6);
        EXPECT_EQ(named(name).q_mean_term, 1);
    }
    expect_operand(named("nvfp4").v, "nvfp4.v", QUATT_FORMAT_E2M1, kUe, 16, 1, 0,
                   QUATT_NORMALIZE_SEGMENT, 0, 1, 6);
}

TEST(Recipes, FieldsOfTheLaw) {
    for (const quatt_recipe& r : kNamedRecipes) {
        const std::string name = r.name;
        const bool wide = name == "bf16" || name == "f16";
        EXPECT_EQ(r.p_format, name == "bf16"    ? QUATT_FORMAT_BF16
                              : name == "f16"   ? QUATT_FORMAT_F16
                              : name == "nvfp4" ? QUATT_FORMAT_E2M1
                                                : QUATT_FORMAT_E4M3)
            << name;
        EXPECT_EQ(r.overflow_format, r.p_format) << name;
        EXPECT_EQ(r.exponent_bias, name == "bf16"                     ? 0
                                   : name == "f16" || name == "nvfp4" ? 8
                                                                      : 6)
            << name;
        EXPECT_EQ(r.overflow_code, 0x7E) << name;
        EXPECT_EQ(r.promotion_interval, 2304) << name;
        EXPECT_EQ(r.refresh_rise, 8) << name;
        EXPECT_EQ(r.max_drop, 40) << name;
        EXPECT_EQ(r.refreshes, name == "bf16" ? 0 : 1) << name;
        EXPECT_EQ(r.accumulator, QUATT_ACCUMULATOR_FP32) << name;
        EXPECT_EQ(r.promotes, wide || name == "nvfp4" ? 0 : 1) << name;
    }
    for (const int tile : {64, 96, 128, 192, 256}) {
        EXPECT_EQ(2304 % tile, 0);
    }
}

// What a kernel takes as a template argument.
template <SoftmaxPolicy kPolicy>
struct PolicyOf {
    static constexpr SoftmaxPolicy kValue = kPolicy;
};

TEST(Recipes, SoftmaxPoliciesAreTemplateArguments) {
    constexpr SoftmaxPolicy kE4m3 = {.exponent_bias = 6,
                                     .p_format = QUATT_FORMAT_E4M3,
                                     .overflow_format = QUATT_FORMAT_E4M3,
                                     .overflow_code = 0x7E,
                                     .refresh_rise = 8,
                                     .max_drop = 40,
                                     .promotion_interval = 2304,
                                     .refreshes = true,
                                     .promotes = true};
    static_assert(PolicyOf<softmax_policy(kFp8)>::kValue == kE4m3);
    static_assert(softmax_policy(kFp8Head) == kE4m3 && softmax_policy(kInt8Fp8) == kE4m3 &&
                  softmax_policy(kNvfp4Fp8) == kE4m3);
    constexpr SoftmaxPolicy kBf16Policy = softmax_policy(kBf16), kF16Policy = softmax_policy(kF16),
                            kNvfp4Policy = softmax_policy(kNvfp4);
    static_assert(kBf16Policy.exponent_bias == 0 && kF16Policy.exponent_bias == 8 &&
                  kNvfp4Policy.exponent_bias == 8);
    static_assert(!kBf16Policy.refreshes && kF16Policy.refreshes && kNvfp4Policy.refreshes);
    static_assert(!kBf16Policy.promotes && !kF16Policy.promotes && !kNvfp4Policy.promotes);
    static_assert(kBf16Policy.p_format == QUATT_FORMAT_BF16 &&
                  kBf16Policy.overflow_format == QUATT_FORMAT_BF16 &&
                  kF16Policy.p_format == QUATT_FORMAT_F16 &&
                  kNvfp4Policy.p_format == QUATT_FORMAT_E2M1);
    EXPECT_EQ(kNamedRecipes.size(), 7U);
}

// Each field of a policy follows its own field of a recipe, and no other.
TEST(Recipes, FieldsOfAPolicy) {
    quatt_recipe r = kFp8;
    r.exponent_bias = 1;
    r.p_format = QUATT_FORMAT_F32;
    r.overflow_format = QUATT_FORMAT_E2M1;
    r.overflow_code = 0x70;
    r.refresh_rise = 3;
    r.max_drop = 4;
    r.promotion_interval = 4608;
    r.refreshes = 0;
    r.promotes = 1;
    constexpr SoftmaxPolicy kWant = {.exponent_bias = 1,
                                     .p_format = QUATT_FORMAT_F32,
                                     .overflow_format = QUATT_FORMAT_E2M1,
                                     .overflow_code = 0x70,
                                     .refresh_rise = 3,
                                     .max_drop = 4,
                                     .promotion_interval = 4608,
                                     .refreshes = false,
                                     .promotes = true};
    EXPECT_EQ(softmax_policy(r), kWant);
    r.refreshes = 1;
    r.promotes = 0;
    EXPECT_TRUE(softmax_policy(r).refreshes);
    EXPECT_FALSE(softmax_policy(r).promotes);
}

// ----------------------------------------------------------------------------------- refusals

struct Fault {
    const char* base;
    const char* field;  // as the message must name it
    Change change;
};

std::vector<Fault> faults() {
    std::vector<Fault> all;
    // Fields that every operand has, in q, k and v alike.
    const auto each = [&](const char* base, const char* field,
                          const std::function<void(quatt_operand_recipe&)>& change) {
        static std::vector<std::string> names;  // keeps the texts that c_str() points into
        names.reserve(1000);
        names.push_back(std::string("recipe.q.") + field);
        all.push_back({base, names.back().c_str(), [change](quatt_recipe& r) { change(r.q); }});
        names.push_back(std::string("recipe.k.") + field);
        all.push_back({base, names.back().c_str(), [change](quatt_recipe& r) { change(r.k); }});
        names.push_back(std::string("recipe.v.") + field);
        all.push_back({base, names.back().c_str(), [change](quatt_recipe& r) { change(r.v); }});
    };
    for (const int format : {0, 7, -1, 1000}) {
        each("bf16", "format", [format](quatt_operand_recipe& o) { o.format = format; });
    }
    each("bf16", "scale_format", [](quatt_operand_recipe& o) { o.scale_format = QUATT_SCALE_F32; });
    each("f16", "scale_format",
         [](quatt_operand_recipe& o) { o.scale_format = QUATT_SCALE_UE4M3; });
    each("fp8", "scale_format", [](quatt_operand_recipe& o) { o.scale_format = QUATT_SCALE_NONE; });
    each("fp8", "scale_format",
         [](quatt_operand_recipe& o) { o.scale_format = QUATT_SCALE_UE4M3; });
    each("nvfp4", "scale_format",
         [](quatt_operand_recipe& o) { o.scale_format = QUATT_SCALE_F32; });
    each("nvfp4", "scale_format", [](quatt_operand_recipe& o) { o.scale_format = 3; });
    each("nvfp4", "group_tokens", [](quatt_operand_recipe& o) { o.group_tokens = 32; });
    each("nvfp4", "group_channels", [](quatt_operand_recipe& o) { o.group_channels = 32; });
    each("nvfp4", "normalize", [](quatt_operand_recipe& o) { o.normalize = QUATT_NORMALIZE_NONE; });
    each("nvfp4", "normalize", [](quatt_operand_recipe& o) { o.normalize = 3; });
    each("fp8", "normalize",
         [](quatt_operand_recipe& o) { o.normalize = QUATT_NORMALIZE_SEGMENT; });
    each("fp8", "group_tokens", [](quatt_operand_recipe& o) { o.group_tokens = -1; });
    each("fp8", "group_channels", [](quatt_operand_recipe& o) { o.group_channels = 2; });
    each("fp8", "key_groups", [](quatt_operand_recipe& o) { o.key_groups = 1; });
    each("nvfp4", "key_groups", [](quatt_operand_recipe& o) { o.key_groups = 2; });
    each("fp8", "center", [](quatt_operand_recipe& o) { o.center = 4; });
    each("fp8", "center", [](quatt_operand_recipe& o) { o.center = -1; });
    each("fp8", "block_tokens", [](quatt_operand_recipe& o) { o.block_tokens = 128; });
    for (const float target :
         {0.0f, -1.0f, 1e-30f, 449.0f, 1e30f, std::numeric_limits<float>::infinity(),
          std::numeric_limits<float>::quiet_NaN()}) {
        each("fp8", "amax_target", [target](quatt_operand_recipe& o) { o.amax_target = target; });
    }
    const auto add = [&](const char* base, const char* field, const Change& change) {
        all.push_back({base, field, change});
    };
    add("fp8", "recipe.v.group_tokens", [](quatt_recipe& r) { r.v.group_tokens = 64; });
    add("nvfp4", "recipe.q.key_groups", [](quatt_recipe& r) { r.q.key_groups = 1; });
    add("fp8", "recipe.q.center", [](quatt_recipe& r) { r.q.center = QUATT_CENTER_SEGMENT; });
    add("nvfp4", "recipe.q.block_tokens", [](quatt_recipe& r) { r.q.block_tokens = 0; });
    add("nvfp4", "recipe.q.block_tokens", [](quatt_recipe& r) { r.q.block_tokens = -128; });
    add("fp8", "recipe.q.center", [](quatt_recipe& r) { r.q.center = QUATT_CENTER_SAMPLE; });
    add("fp8", "recipe.v.center", [](quatt_recipe& r) { r.v.group_channels = 0; });
    add("fp8", "recipe.v.center", [](quatt_recipe& r) {
        r.v.format = QUATT_FORMAT_INT8;
        r.v.amax_target = 127;
    });
    add("nvfp4", "recipe.v.center", [](quatt_recipe& r) { r.v.center = QUATT_CENTER_SAMPLE; });
    add("bf16", "recipe.v.center", [](quatt_recipe& r) { r.v.center = QUATT_CENTER_SAMPLE; });
    add("fp8", "recipe.k.center", [](quatt_recipe& r) { r.k.center = QUATT_CENTER_BLOCK; });
    add("fp8", "recipe.v.center", [](quatt_recipe& r) { r.v.center = QUATT_CENTER_BLOCK; });
    add("nvfp4", "recipe.k.normalize",
        [](quatt_recipe& r) { r.k.normalize = QUATT_NORMALIZE_BLOCK; });
    add("nvfp4", "recipe.v.normalize",
        [](quatt_recipe& r) { r.v.normalize = QUATT_NORMALIZE_BLOCK; });
    for (const int format : {0, 7, static_cast<int>(QUATT_FORMAT_INT8)}) {
        add("fp8", "recipe.p_format",
            [format](quatt_recipe& r) { r.p_format = r.overflow_format = format; });
    }
    add("fp8", "recipe.overflow_format",
        [](quatt_recipe& r) { r.overflow_format = QUATT_FORMAT_E2M1; });
    add("fp8", "recipe.overflow_format",
        [](quatt_recipe& r) { r.p_format = r.overflow_format = QUATT_FORMAT_F32; });
    add("bf16", "recipe.overflow_format",
        [](quatt_recipe& r) { r.overflow_format = QUATT_FORMAT_F16; });
    for (const int w : {-1, 15}) {
        add("fp8", "recipe.exponent_bias", [w](quatt_recipe& r) { r.exponent_bias = w; });
    }
    for (const int code : {0, -1, 0x7F, 0x80}) {
        add("fp8", "recipe.overflow_code", [code](quatt_recipe& r) { r.overflow_code = code; });
    }
    for (const int keys : {0, -2304, 64, 2305, 1152}) {
        add("fp8", "recipe.promotion_interval",
            [keys](quatt_recipe& r) { r.promotion_interval = keys; });
    }
    for (const int rise : {0, -8}) {
        add("fp8", "recipe.refresh_rise", [rise](quatt_recipe& r) { r.refresh_rise = rise; });
    }
    for (const int limit : {-1, 101}) {
        add("fp8", "recipe.max_drop", [limit](quatt_recipe& r) { r.max_drop = limit; });
    }
    for (const int value : {-1, 2}) {
        add("fp8", "recipe.refreshes", [value](quatt_recipe& r) { r.refreshes = value; });
        add("fp8", "recipe.accumulator", [value](quatt_recipe& r) { r.accumulator = value; });
        add("fp8", "recipe.promotes", [value](quatt_recipe& r) { r.promotes = value; });
        add("nvfp4", "recipe.q_mean_term", [value](quatt_recipe& r) { r.q_mean_term = value; });
    }
    add("fp8", "recipe.q_mean_term", [](quatt_recipe& r) { r.q_mean_term = 1; });
    add("nvfp4", "recipe.q_mean_term", [](quatt_recipe& r) {
        r.q.normalize = QUATT_NORMALIZE_SEGMENT;  // blocks of mean and norm must be the same
    });
    return all;
}

TEST(CheckRecipe, NamesEachBrokenField) {
    for (const Fault& f : faults()) {
        quatt_recipe r = named(f.base);
        f.change(r);
        const std::vector<std::string> messages = check_recipe(r);
        const auto names_it = [&](const std::string& m) {
            return m.rfind(std::string(f.field) + " is ", 0) == 0;
        };
        EXPECT_TRUE(std::any_of(messages.begin(), messages.end(), names_it))
            << f.field << " of " << f.base << " broken; " << messages.size() << " messages"
            << (messages.empty() ? "" : ": " + messages[0]);
        for (const std::string& m : messages) {
            EXPECT_NE(m.find("; it must be "), std::string::npos) << m << ": says what is allowed";
        }
    }
}

TEST(CheckRecipe, NamesAllFaultsAtOnce) {
    quatt_recipe r = named("fp8");
    r.q.format = 99;
    r.k.amax_target = -3;
    r.overflow_code = 0;
    r.promotes = 5;
    std::string all;
    for (const std::string& m : check_recipe(r)) {
        all += m + "\n";
    }
    for (const char* part : {"recipe.q.format is 99", "recipe.k.amax_target is -3",
                             "recipe.overflow_code is 0", "recipe.promotes is 5"}) {
        EXPECT_NE(all.find(part), std::string::npos) << part << " in\n" << all;
    }
}

TEST(CheckRecipe, TakesWhatCanBeComputed) {
    const std::vector<std::pair<const char*, Change>> fine = {
        {"fp8", [](quatt_recipe& r) { r.p_format = QUATT_FORMAT_F32; }},
        {"nvfp4", [](quatt_recipe& r) { r.p_format = QUATT_FORMAT_F32; }},
        {"bf16", [](quatt_recipe& r) { r.p_format = QUATT_FORMAT_F32; }},
        {"fp8", [](quatt_recipe& r) { r.accumulator = QUATT_ACCUMULATOR_HOPPER; }},
        {"fp8", [](quatt_recipe& r) { r.v.center = QUATT_CENTER_NONE; }},
        {"fp8", [](quatt_recipe& r) { r.k.group_tokens = 7; }},
        {"fp8", [](quatt_recipe& r) { r.promotion_interval = 4608; }},
        {"fp8",
         [](quatt_recipe& r) {
             r.v.center = QUATT_CENTER_SEGMENT;
             r.v.group_channels = 0;
         }},
        {"fp8", [](quatt_recipe& r) { r.k.center = r.v.center = QUATT_CENTER_SEGMENT; }},
        {"nvfp4", [](quatt_recipe& r) { r.k.center = QUATT_CENTER_SAMPLE; }},
        {"bf16", [](quatt_recipe& r) { r.k.center = QUATT_CENTER_SAMPLE; }},
        {"nvfp4", [](quatt_recipe& r) { r.q_mean_term = 0; }},
        {"nvfp4", [](quatt_recipe& r) { r.q.block_tokens = 64; }},
        {"nvfp4", [](quatt_recipe& r) { r.v.center = QUATT_CENTER_SEGMENT; }},
        {"bf16", [](quatt_recipe& r) { r.q.format = r.k.format = r.v.format = QUATT_FORMAT_F32; }},
        {"bf16", [](quatt_recipe& r) { r.k.center = QUATT_CENTER_SEGMENT; }},
    };
    for (std::size_t i = 0; i < fine.size(); i++) {
        quatt_recipe r = named(fine[i].first);
        fine[i].second(r);
        const std::vector<std::string> messages = check_recipe(r);
        EXPECT_TRUE(messages.empty()) << "change " << i << " of " << fine[i].first << ": "
                                      << (messages.empty() ? "" : messages[0]);
    }
}

// ------------------------------------------------------------------------------------- equality

TEST(SameArithmetic, CountsEveryFieldThatComputes) {
    std::vector<std::pair<std::string, Change>> changes;
    const auto operand = [&](const std::string& name, quatt_operand_recipe quatt_recipe::*o) {
        const auto field = [&](const std::string& f, auto quatt_operand_recipe::*member) {
            changes.emplace_back(name + "." + f,
                                 [o, member](quatt_recipe& r) { r.*o.*member += 1; });
        };
        field("format", &quatt_operand_recipe::format);
        field("scale_format", &quatt_operand_recipe::scale_format);
        field("group_tokens", &quatt_operand_recipe::group_tokens);
        field("group_channels", &quatt_operand_recipe::group_channels);
        field("key_groups", &quatt_operand_recipe::key_groups);
        field("center", &quatt_operand_recipe::center);
        field("normalize", &quatt_operand_recipe::normalize);
        field("block_tokens", &quatt_operand_recipe::block_tokens);
        field("amax_target", &quatt_operand_recipe::amax_target);
    };
    operand("q", &quatt_recipe::q);
    operand("k", &quatt_recipe::k);
    operand("v", &quatt_recipe::v);
    for (const auto& [name, member] :
         std::vector<std::pair<const char*, std::int32_t quatt_recipe::*>>{
             {"p_format", &quatt_recipe::p_format},
             {"overflow_format", &quatt_recipe::overflow_format},
             {"exponent_bias", &quatt_recipe::exponent_bias},
             {"overflow_code", &quatt_recipe::overflow_code},
             {"promotion_interval", &quatt_recipe::promotion_interval},
             {"refresh_rise", &quatt_recipe::refresh_rise},
             {"max_drop", &quatt_recipe::max_drop},
             {"refreshes", &quatt_recipe::refreshes},
             {"accumulator", &quatt_recipe::accumulator},
             {"promotes", &quatt_recipe::promotes},
             {"q_mean_term", &quatt_recipe::q_mean_term}}) {
        changes.emplace_back(name, [member = member](quatt_recipe& r) { r.*member += 1; });
    }
    for (const quatt_recipe& r : kNamedRecipes) {
        EXPECT_TRUE(same_arithmetic(r, r));
        for (const auto& [name, change] : changes) {
            quatt_recipe other = r;
            change(other);
            EXPECT_FALSE(same_arithmetic(r, other)) << name;
            EXPECT_FALSE(same_arithmetic(other, r)) << name;
        }
        quatt_recipe other = r;
        std::strcpy(other.name, "mine");
        other.expected_rel_l2 *= 2;
        other.expected_lse_error *= 2;
        other.struct_size += 8;
        EXPECT_TRUE(same_arithmetic(r, other)) << "a name and what is published compute nothing";
    }
    for (const quatt_recipe& a : kNamedRecipes) {
        for (const quatt_recipe& b : kNamedRecipes) {
            EXPECT_EQ(same_arithmetic(a, b), &a == &b) << a.name << " and " << b.name;
        }
    }
    // A field that is added to the struct must enter this test: the fields above are all there are.
    EXPECT_EQ(sizeof(quatt_operand_recipe), 9 * 4U);
    EXPECT_EQ(sizeof(quatt_recipe),
              sizeof(std::size_t) + 24 + 3 * sizeof(quatt_operand_recipe) + 13 * 4U);
}

TEST(Recipes, OnlyWholeHeadE4m3TakesGivenCodes) {
    for (const quatt_recipe& r : kNamedRecipes) {
        for (const quatt_operand_recipe* o : {&r.q, &r.k, &r.v}) {
            EXPECT_EQ(takes_given_codes(*o), std::string(r.name) == "fp8_head") << r.name;
        }
    }
    quatt_operand_recipe o = named("fp8_head").v;
    o.center = QUATT_CENTER_SEGMENT;
    EXPECT_FALSE(takes_given_codes(o)) << "given codes cannot be centred";
}

}  // namespace
}  // namespace quatt::recipe
