// The schedule under test, and its instances with parts exchanged. The same tests are built for
// warp_mma and for wgmma.
#pragma once
#include "attention/stages.hpp"

namespace quatt::test {

#if defined(QUATT_TEST_WGMMA)
inline const bool kIsThere = use("simt:sm_90", "wgmma");
template <class Recipe>
using Whole = wgmma::Parts<Recipe>;
template <class Recipe, class Parts>
constexpr schedule::Attend kInstance = wgmma::attend<wgmma::Config<Recipe, 64, Parts>>;
#else
inline const bool kIsThere = use("simt:sm_120", "warp_mma");
template <class Recipe>
using Whole = warp_mma::Parts<Recipe>;
template <class Recipe, class Parts>
constexpr schedule::Attend kInstance =
    warp_mma::attend<warp_mma::Config<Recipe, 64, 1, warp_mma::Instruction::kNative, Parts>>;
#endif

// The instance of a recipe's name.
template <template <class> class Parts>
[[nodiscard]] schedule::Attend instance([[maybe_unused]] const char* recipe) {
#if !defined(QUATT_TEST_WGMMA)
    if (is(recipe, "bf16")) {
        return kInstance<softmax::Bf16, Parts<softmax::Bf16>>;
    }
    if (is(recipe, "f16")) {
        return kInstance<softmax::F16, Parts<softmax::F16>>;
    }
#endif
    return kInstance<softmax::Fp8, Parts<softmax::Fp8>>;
}

}  // namespace quatt::test
