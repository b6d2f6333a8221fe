// What attention kernels need to know of a recipe, as types made of its value. A kernel asks for
// these traits one by one, never which recipe it has.
#pragma once

#include <type_traits>

#include "cuda/softmax/probabilities.cuh"
#include "recipe/recipes.hpp"
#include "recipe/softmax_policy.hpp"

namespace quatt::softmax {
inline namespace QUATT_ABI {

template <const quatt_recipe& R>
struct RecipeTraits {
    static constexpr const quatt_recipe& kRecipe = R;
    static constexpr recipe::SoftmaxPolicy kPolicy = recipe::softmax_policy(R);
    static constexpr quatt_format kQFormat = R.q.format;
    using Probabilities = std::conditional_t<
        R.p_format == QUATT_FORMAT_E4M3, E4m3Probabilities,
        std::conditional_t<R.p_format == QUATT_FORMAT_F16, F16Probabilities, Bf16Probabilities>>;
    // Q, K and V are codes in packed tiles, with a scale a row of Q, a tile of K and a channel of
    // V; else rows of 16-bit numbers.
    static constexpr bool kIsPacked = R.k.scale_format != QUATT_SCALE_NONE;
    static constexpr u32 kElementBytes = kIsPacked ? 1 : 2;  // of Q, K, V and P
    static constexpr bool kIsCentred = R.v.center != QUATT_CENTER_NONE;
    static constexpr bool kKeepsFarTokens = recipe::keeps_far_tokens(R.v);
};

struct Fp8 : RecipeTraits<recipe::kFp8> {};
struct Bf16 : RecipeTraits<recipe::kBf16> {};
struct F16 : RecipeTraits<recipe::kF16> {};

}  // namespace QUATT_ABI
}  // namespace quatt::softmax
