// Problems and tensors as text.
#pragma once
#include <quatt/quatt.h>

#include <string>

namespace quatt::core {

[[nodiscard]] std::string describe(const quatt_problem& p);
[[nodiscard]] std::string describe(const quatt_tensor& t);

}  // namespace quatt::core
