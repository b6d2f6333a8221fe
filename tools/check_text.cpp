// The report of `quatt check` for people.
#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <utility>

#include "check.hpp"
#include "table.hpp"

namespace quatt::tools {
namespace {

struct RecipeRow {
    std::string_view name;
    // Dearer recipes have larger numbers: bits of the operands, in the order of tensor-core rates.
    // fp8 and fp8_head differ in their scales only.
    int cost;
    std::string_view about;
};
constexpr std::array<RecipeRow, 7> kRecipes = {
    {{.name = "nvfp4",
      .cost = 0,
      .about = "4-bit floating point for all: Q and K with a scale for each 16 channels, P (the "
               "softmax weights) and V with a scale for each 16 keys"},
     {.name = "nvfp4_fp8",
      .cost = 1,
      .about = "Q and K as 4-bit floating point with a scale for each 16 channels, P (the softmax "
               "weights) and V as 8-bit floating point (E4M3)"},
     {.name = "fp8",
      .cost = 2,
      .about = "8-bit floating point (E4M3) for all: a scale for each token of Q, for each 64 "
               "tokens of K and for each channel of V"},
     {.name = "fp8_head",
      .cost = 2,
      .about =
          "8-bit floating point (E4M3) for all, with one scale for a whole head of Q, K and V"},
     {.name = "int8_fp8",
      .cost = 3,
      .about = "Q and K as 8-bit integers with a scale for each 32 or 64 tokens, P (the softmax "
               "weights) and V as 8-bit floating point (E4M3)"},
     {.name = "bf16",
      .cost = 4,
      .about = "nothing is quantised: 16-bit bfloat16 for all, as most models are run"},
     {.name = "f16", .cost = 4, .about = "nothing is quantised: 16-bit IEEE half for all"}}};

double worst_error(const RecipeResult& recipe) {
    return recipe.heads[recipe.worst_heads().front()].rel_l2;
}

// Four decimals, so that columns line up; more where they would show nothing, an exponent where
// they would be many.
std::string number(double value) {
    return value < 5e-4   ? format_significant(value, 2)
           : value >= 1e6 ? format_significant(value, 5)
                          : format_fixed(value, 4);
}

std::string worst_text(const RecipeResult& recipe) {
    return "worst head " + std::to_string(recipe.worst_heads().front()) + ": " +
           number(worst_error(recipe));
}

// Lines that hold for all layers stand once.
std::string grouped(const CheckReport& report, std::string (*line_of)(const LayerResult&)) {
    const bool same = std::ranges::all_of(report.layers, [&](const LayerResult& layer) {
        return line_of(layer) == line_of(report.layers.front());
    });
    std::string out;
    for (const LayerResult& layer : report.layers) {
        out += (same ? "" : layer_title(layer.name) + ": ") + line_of(layer) + "\n";
        if (same) {
            break;
        }
    }
    return out;
}

std::string error_table(const CheckReport& report) {
    Table table({{"layer", Align::kLeft},
                 {"recipe", Align::kLeft},
                 {"rel-L2"},
                 {"worst head"},
                 {"worst heads", Align::kLeft},
                 {"cosine"},
                 {"max error"},
                 {"LSE error"},
                 {"ms"}});
    for (const LayerResult& layer : report.layers) {
        if (table.rows() > 0) {
            table.add_rule();
        }
        for (const RecipeResult& recipe : layer.recipes) {
            const HeadErrors all = recipe.over_heads();
            std::string worst;
            const std::vector<std::size_t> order = recipe.worst_heads();
            for (std::size_t i = 0; i < std::min<std::size_t>(order.size(), 3); ++i) {
                worst += (i == 0 ? "" : " ") + std::to_string(order[i]);
            }
            table.add_row({layer_title(layer.name), recipe.recipe, number(all.rel_l2),
                           number(worst_error(recipe)), worst, format_fixed(all.cosine, 6),
                           number(all.max_error), number(all.lse_error),
                           format_fixed(recipe.time_ms, 1)});
        }
    }
    return table.text();
}

std::string light_table(const CheckReport& report) {
    Table table(
        {{"layer", Align::kLeft}, {"mean"}, {"worst head"}, {"head"}, {"largest row"}, {"head"}});
    for (const LayerResult& layer : report.layers) {
        std::size_t worst = 0;
        std::size_t largest = 0;
        for (std::size_t h = 0; h < layer.heads(); ++h) {
            worst = layer.exact[h].light.mean > layer.exact[worst].light.mean ? h : worst;
            largest = layer.exact[h].light.max > layer.exact[largest].light.max ? h : largest;
        }
        table.add_row({layer_title(layer.name), number(layer.exact_over_heads().light.mean),
                       number(layer.exact[worst].light.mean), std::to_string(worst),
                       number(layer.exact[largest].light.max), std::to_string(largest)});
    }
    return table.text();
}

Recommendation none(const std::string& reason) {
    return {
        .index = std::nullopt, .sentence = "no recommendation, because " + reason, .rejected = {}};
}

// Where there is nothing that a recipe could be close to, why; else "".
std::string nothing_to_compare(const LayerResult& layer) {
    for (std::size_t h = 0; h < layer.heads(); ++h) {
        if (layer.exact[h].rows == 0) {
            return "the exact result of head " + std::to_string(h) +
                   " is not finite in any row compared.";
        }
    }
    return layer.exact_over_heads().largest > 0.0
               ? ""
               : "there is nothing to compare: the exact result is 0 in every row compared.";
}

Recommendation recommend_by_error(const LayerResult& layer, double bound) {
    const std::string limit = shortest(bound);
    std::optional<std::size_t> best;
    std::optional<std::size_t> closest;
    for (std::size_t i = 0; i < layer.recipes.size(); ++i) {
        const double error = worst_error(layer.recipes[i]);
        const auto before = [&](std::size_t other) {
            return std::pair(cost_of(layer.recipes[i].recipe), error) <
                   std::pair(cost_of(layer.recipes[other].recipe),
                             worst_error(layer.recipes[other]));
        };
        if (std::isfinite(error) && (!closest || error < worst_error(layer.recipes[*closest]))) {
            closest = i;
        }
        if (error < bound && (!best || before(*best))) {
            best = i;
        }
    }
    if (best) {
        const RecipeResult& recipe = layer.recipes[*best];
        return {.index = best,
                .sentence = recipe.recipe +
                            " is the cheapest recipe checked whose rel-L2 stays below " + limit +
                            " in every head (" + worst_text(recipe) + ").",
                .rejected = {}};
    }
    if (closest) {
        const RecipeResult& recipe = layer.recipes[*closest];
        return {.index = std::nullopt,
                .sentence = "no recipe checked keeps rel-L2 below " + limit + " in every head; " +
                            recipe.recipe + " comes closest (" + worst_text(recipe) + ").",
                .rejected = {}};
    }
    return none("no recipe gives finite results in every head.");
}

}  // namespace

int cost_of(std::string_view recipe) {
    const auto* const found = std::ranges::find(kRecipes, recipe, &RecipeRow::name);
    return found == kRecipes.end() ? static_cast<int>(kRecipes.size()) : found->cost;
}

std::string_view about_recipe(std::string_view recipe) {
    const auto* const found = std::ranges::find(kRecipes, recipe, &RecipeRow::name);
    return found == kRecipes.end() ? "" : found->about;
}

Recommendation recommend(const LayerResult& layer, double bound) {
    const std::string nothing = nothing_to_compare(layer);
    Recommendation r = nothing.empty() ? recommend_by_error(layer, bound) : none(nothing);
    for (std::size_t i = 0; i < layer.recipes.size() && nothing.empty(); ++i) {
        if (!r.index ||
            cost_of(layer.recipes[i].recipe) < cost_of(layer.recipes[*r.index].recipe)) {
            r.rejected.push_back(i);
        }
    }
    std::ranges::stable_sort(r.rejected, [&](std::size_t a, std::size_t b) {
        return cost_of(layer.recipes[a].recipe) < cost_of(layer.recipes[b].recipe);
    });
    if (!layer.finite_inputs) {
        r.sentence += " The inputs are not finite (see the notes).";
    }
    return r;
}

std::string check_text(const CheckReport& report) {
    const LayerResult& first = report.layers.front();
    std::string out = printable(report.file, 200) + "\n";
    out += grouped(report, [](const LayerResult& layer) { return layer.shape_text; });
    out += grouped(report, [](const LayerResult& layer) { return layer.semantics.text(); });
    std::vector<std::string> notes = report.notes;
    for (const LayerResult& layer : report.layers) {
        notes.insert(notes.end(), layer.notes.begin(), layer.notes.end());
    }
    std::set<std::string> seen;  // what holds for all layers stands once
    for (const std::string& note : notes) {
        out += seen.insert(note).second ? "note: " + note + "\n" : "";
    }
    out += "device " + report.device + ", " + std::to_string(first.recipes.front().plan.threads) +
           " threads; compared with exact attention (fp64), rows chosen with seed " +
           std::to_string(report.seed) + "\n";
    out += grouped(report, [](const LayerResult& layer) {
        return std::to_string(layer.rows_compared) + " of " +
               std::to_string(layer.tokens_q * layer.batch) + " query rows compared in each head";
    });
    out += "\n";
    out += error_table(report);
    out +=
        "\nrel-L2, cosine: mean over heads. worst head: the largest rel-L2; behind it, the worst "
        "heads.\n"
        "max error, LSE error: the largest of all. ms: all rows of the layer on this device.\n";
    out += grouped(report, [](const LayerResult& layer) {
        const ExactHead exact = layer.exact_over_heads();
        return "The exact results, for comparison with max error: rms " + number(exact.rms) +
               ", largest " + number(exact.largest) + ".";
    });
    out +=
        "\n"
        "Share of a row's mass in light keys, 2^-11 or more below the largest of their 64 keys, "
        "which\nFP8 P keeps badly:\n";
    out += light_table(report);
    out +=
        "\nFrom cheap to dear: nvfp4, nvfp4_fp8, fp8 = fp8_head, int8_fp8, bf16 = f16. Bound "
        "(--bound): "
        "rel-L2 " +
        shortest(report.bound) + ".\n";
    for (const LayerResult& layer : report.layers) {
        out += layer_title(layer.name) + ": " + recommend(layer, report.bound).sentence + "\n";
    }
    for (const FailedLayer& layer : report.failed) {
        for (const std::string& reason : layer.reasons) {
            out += layer_title(layer.name) + ": not checked: " + reason + "\n";
        }
    }
    return out;
}

}  // namespace quatt::tools
