// The rules that every recipe, named or made by a caller, must keep.
#pragma once
#include <quatt/quatt.h>

#include <string>
#include <vector>

namespace quatt::recipe {

// What is wrong with a recipe, one message a fault; empty where it can be computed.
[[nodiscard]] std::vector<std::string> check_recipe(const quatt_recipe& r);

}  // namespace quatt::recipe
