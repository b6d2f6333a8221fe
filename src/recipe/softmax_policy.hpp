// What of a recipe decides on the running max of a row and on P: a value that a kernel can take as
// a template argument. docs/recipes.md, section 2, has the rule.
// NOTE: a __global__ template itself cannot take it with nvcc 13.0, whose host stubs misspell class
// values; it takes a type that holds one, and device functions and classes take the value.
#pragma once
#include <quatt/quatt.h>

#include "formats/platform.hpp"

namespace quatt::recipe {

struct SoftmaxPolicy {
    int exponent_bias;       // w in p = 2^(t - m + w)
    int p_format;            // QUATT_FORMAT_*; F32: P is not rounded
    int overflow_format;     // format whose overflow raises m: p_format where P is rounded
    int overflow_code;       // E4M3: a code of P, E2M1: of a scale, that reaches it is an overflow
    int refresh_rise;        // a rise of m by so much asks for a refresh in the next tile
    int max_drop;            // m never drops more than this below its highest value
    int promotion_interval;  // keys between promotions, and between refreshes
    bool refreshes;          // false: m moves by overflows only
    bool promotes;           // O is added to a promoted accumulator once an interval

    [[nodiscard]] friend constexpr bool operator==(const SoftmaxPolicy&,
                                                   const SoftmaxPolicy&) = default;
};

[[nodiscard]] QUATT_HD constexpr SoftmaxPolicy softmax_policy(const quatt_recipe& r) {
    return {.exponent_bias = r.exponent_bias,
            .p_format = r.p_format,
            .overflow_format = r.overflow_format,
            .overflow_code = r.overflow_code,
            .refresh_rise = r.refresh_rise,
            .max_drop = r.max_drop,
            .promotion_interval = r.promotion_interval,
            .refreshes = r.refreshes != 0,
            .promotes = r.promotes != 0};
}

}  // namespace quatt::recipe
