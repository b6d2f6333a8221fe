// What is wrong with a problem, a call and its workspace by themselves. Nothing here knows a kernel
// or a device.
#pragma once
#include <quatt/quatt.h>

#include <cstddef>
#include <cstdint>

#include "core/problem.hpp"
#include "core/text.hpp"

namespace quatt::core {

// The struct and those in it have the sizes that we know: its fields may be read. Where they do
// not, check_problem says so and nothing else.
[[nodiscard]] bool has_known_fields(const quatt_problem& p);

// All that is wrong with a problem by itself, data pointers included where they are set. Empty:
// shape_of may be asked.
[[nodiscard]] Reasons check_problem(const quatt_problem& p);

// cu_seqlens: starts at 0, never falls, ends within the tensor's tokens.
[[nodiscard]] Reasons check_cu_seqlens(const char* name, const std::int32_t* values,
                                       std::int64_t stride, std::int64_t segments,
                                       std::int64_t capacity);

// What differs between the layouts of a call's tensors and those its plan was made for, and what is
// wrong with the pointers that its work touches.
[[nodiscard]] Reasons check_call(const quatt_problem& planned, const quatt_tensors& given,
                                 Work work);

// Memory that a call gets beside its tensors.
struct Memory {
    const char* name;
    const void* data;
    std::size_t bytes;
};
// Which of a call's tensors share bytes with it.
[[nodiscard]] Reasons check_overlap(const quatt_tensors& given, const Memory& memory);

}  // namespace quatt::core
