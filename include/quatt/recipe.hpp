// Recipes as C++ values: named ones, and what of their fields is changed (docs/recipes.md gives
// formulas and sources).
#pragma once
#include <quatt/quatt.h>
#include <quatt/status.hpp>

#include <cstddef>
#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

namespace quatt {

struct Recipe : quatt_recipe {
    Recipe(const quatt_recipe& r) : quatt_recipe(r) {}

    // bf16 f16 fp8 fp8_head int8_fp8 nvfp4 nvfp4_fp8; throws quatt::Error for any other name.
    explicit Recipe(const std::string& recipe_name) : quatt_recipe{} {
        if (const quatt_status s =
                quatt_recipe_init_sized(this, sizeof(quatt_recipe), recipe_name.c_str());
            s != QUATT_OK) {
            throw Error(Status::from_c(s));
        }
    }

    // Of all named recipes.
    static std::vector<std::string> names() {
        std::vector<std::string> all;
        all.reserve(static_cast<std::size_t>(quatt_recipe_count()));
        for (std::int32_t i = 0; i < quatt_recipe_count(); i++) {
            all.emplace_back(quatt_recipe_name(i));
        }
        return all;
    }
};

inline std::ostream& operator<<(std::ostream& out, const Recipe& r) {
    return out << r.name;
}

}  // namespace quatt
