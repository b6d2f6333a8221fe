// quatt.h in a program that is C++17 and must stay so.
#include <quatt/quatt.h>

#include <cstdio>

static_assert(__cplusplus == 201703L, "using quatt has changed the standard of this program");

int main() {
    quatt_recipe recipe;
    if (quatt_recipe_init(&recipe, "fp8") != QUATT_OK) {
        std::fprintf(stderr, "%s\n", quatt_last_error());
        return 1;
    }
    std::printf("C++17: recipe %s of quatt %s\n", recipe.name, quatt_version());
    return 0;
}
