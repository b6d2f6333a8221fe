// The named recipes and the rules that every recipe, named or made by a caller, must keep.
// docs/recipes.md has the formulas.
#pragma once
#include <quatt/quatt.h>

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace quatt::recipe {

[[nodiscard]] std::span<const quatt_recipe> named_recipes();

// Null where there is no recipe of that name.
[[nodiscard]] const quatt_recipe* find_recipe(std::string_view name);

// Same arithmetic; struct_size, name and published errors do not count.
[[nodiscard]] bool same_arithmetic(const quatt_recipe& a, const quatt_recipe& b);

// What is wrong with a recipe, one message a fault; empty where it can be computed.
[[nodiscard]] std::vector<std::string> check_recipe(const quatt_recipe& r);

[[nodiscard]] const char* format_name(quatt_format format);

// Codes of this operand are taken over from E4M3 inputs as they are, with the given descale as
// their scale.
[[nodiscard]] bool takes_given_codes(const quatt_operand_recipe& operand);

}  // namespace quatt::recipe
