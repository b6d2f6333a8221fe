// Which struct_size is accepted, as quatt.h states it. No struct of the interface has grown yet, so
// there is no older size that counts as known.
#pragma once
#include <cstddef>
#include <string>

namespace quatt::core {

// A size that nobody's struct has: a struct that was never initialised must not send us far through
// memory.
inline constexpr std::size_t kMaxStructBytes = std::size_t{1} << 14;

// What is wrong with the size of a struct that the caller passes by pointer; "" where nothing is.
// `known` is our sizeof. Bytes behind it, up to the caller's size, must be 0: nobody asked for what
// we do not know. `remedy` says what sets the size.
[[nodiscard]] std::string wrong_input_size(const char* name, const void* data, std::size_t size,
                                           std::size_t known, const char* remedy);

// Of a struct inside another one: the next field begins where ours ends, so only the same size will
// do.
[[nodiscard]] std::string wrong_inner_size(const char* name, std::size_t size, std::size_t known,
                                           const char* remedy);

// Of a struct that we fill. A longer one is fine; clear_beyond sets what we do not know to 0.
// `what` is the field or the argument that holds the size.
[[nodiscard]] std::string wrong_output_size(const char* what, std::size_t size, std::size_t known);
void clear_beyond(void* data, std::size_t size, std::size_t known);

}  // namespace quatt::core
