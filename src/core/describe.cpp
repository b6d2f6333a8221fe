#include "core/describe.hpp"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "core/problem.hpp"
#include "core/tensor_view.hpp"
#include "core/text.hpp"

namespace quatt::core {

std::string describe(const quatt_tensor& t) {
    if (!present(t)) {
        return "absent";
    }
    std::string shape, strides;
    for (int i = 0; i < std::clamp(t.rank, 0, 4); i++) {
        shape += (i > 0 ? "," : "") + std::to_string(t.extent[i]);
        strides += (i > 0 ? "," : "") + std::to_string(t.stride[i]);
    }
    return text(quatt_dtype_name(t.dtype), " [", shape, "]",
                t.rank > 0 ? text(" strides [", strides, "]") : "");
}

std::string describe(const quatt_problem& p) {
    const std::string_view name(p.recipe.name, ::strnlen(p.recipe.name, sizeof p.recipe.name));
    std::string all =
        text("recipe ", name.empty() ? "(unnamed)" : name, ", softmax_scale ", p.softmax_scale);
    if (p.causal != 0) {
        all += ", causal";
    }
    if (p.window_left != -1 || p.window_right != -1) {
        all += text(", window (", p.window_left, ", ", p.window_right, ")");
    }
    if (p.zero_tail != 0) {
        all += ", zero_tail";
    }
    if (p.key_tile != 0) {
        all += text(", key_tile ", p.key_tile);
    }
    if (p.splits != 0) {
        all += text(", splits ", p.splits);
    }
    if (p.row_count != 0) {
        all += text(", ", p.row_count, " rows");
    }
    for (const Field& f : kFields) {
        if (present(p.tensors.*f.member)) {
            all += text("\n  ", f.name, ": ", describe(p.tensors.*f.member));
        }
    }
    return all;
}

}  // namespace quatt::core
