// A problem's extents, its well-formedness, and its text. Nothing here knows a kernel or a device.
#pragma once
#include <quatt/quatt.h>

#include <cstdint>
#include <string>

#include "core/text.hpp"

namespace quatt::core {

// Extents of a well-formed problem.
struct Shape {
    bool packed = false;
    std::int64_t segments = 0;  // batch items, or segments of the packed stream
    std::int64_t tokens_q = 0;  // Sq, or the capacity Tq of the packed stream
    std::int64_t tokens_k = 0;
    std::int64_t heads_q = 0, heads_kv = 0, head_dim = 0, head_dim_v = 0;

    // Rows of Q, or tokens of K and V, over all segments: an upper bound where lengths are device
    // data.
    [[nodiscard]] std::int64_t total_q() const { return packed ? tokens_q : segments * tokens_q; }
    [[nodiscard]] std::int64_t total_k() const { return packed ? tokens_k : segments * tokens_k; }
    [[nodiscard]] std::int64_t max_k() const { return tokens_k; }
};

// All that is wrong with a problem by itself, data pointers included where they are set. Empty:
// shape_of may be asked.
[[nodiscard]] Reasons check_problem(const quatt_problem& p);

// cu_seqlens: starts at 0, never falls, ends within the tensor's tokens.
[[nodiscard]] Reasons check_cu_seqlens(const char* name, const std::int32_t* values,
                                       std::int64_t stride, std::int64_t segments,
                                       std::int64_t capacity);

[[nodiscard]] Shape shape_of(const quatt_problem& p);

// What differs between the layouts of a call's tensors and those its plan was made for, and what is
// wrong with its pointers.
[[nodiscard]] Reasons check_call(const quatt_problem& planned, const quatt_tensors& given);

// Which of a call's tensors share bytes with its workspace.
[[nodiscard]] Reasons check_workspace(const quatt_tensors& given, const void* workspace,
                                      std::size_t bytes);

[[nodiscard]] std::string describe(const quatt_problem& p);
[[nodiscard]] std::string describe(const quatt_tensor& t);

}  // namespace quatt::core
