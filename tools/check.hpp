// What `quatt check` measured, apart from how it is shown.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "commands.hpp"
#include "layer.hpp"

namespace quatt::tools {

// Of the rows compared, all channels together. o: the recipe, r: the fp64 reference.
struct HeadErrors {
    double rel_l2 = 0.0;     // |o - r| / |r|
    double cosine = 1.0;     // o.r / (|o| |r|)
    double max_error = 0.0;  // largest |o - r| of an element
    double lse_error = 0.0;  // largest |lse - lse of r| of a row
};

struct RecipeResult {
    std::string recipe;
    PlanInfo plan;
    double time_ms = 0.0;           // all rows, not only those compared
    std::vector<HeadErrors> heads;  // [query head]

    // Mean of rel_l2 and cosine over the heads, largest of the others.
    [[nodiscard]] HeadErrors over_heads() const;
    // Heads by rel_l2, largest first; NaN counts as largest.
    [[nodiscard]] std::vector<std::size_t> worst_heads() const;
};

// Share of a row's mass in light keys, over the rows compared of a head.
struct LightMass {
    double mean = 0.0;
    double max = 0.0;
};

struct LayerResult {
    std::string name;
    std::string shape_text;
    std::int64_t batch = 1;  // 1 where packed
    std::int64_t segments = 1;
    std::int64_t tokens_q = 0;  // of a batch item, or of the packed stream
    std::int64_t tokens_k = 0;
    std::int64_t heads_kv = 0;
    std::int64_t head_dim = 0;
    std::int64_t head_dim_v = 0;
    bool packed = false;
    Semantics semantics;
    std::vector<std::string> notes;
    bool finite_inputs = true;
    bool zero_reference = true;  // in all rows compared: there is nothing to be close to
    std::int64_t rows_compared = 0;
    std::vector<LightMass> light;  // [query head]
    std::vector<RecipeResult> recipes;
};

struct Recommendation {
    std::optional<std::size_t> index;  // into LayerResult::recipes
    std::string sentence;              // without the layer's name
};
// The cheapest recipe that stays below `bound` in every head, if there is one.
[[nodiscard]] Recommendation recommend(const LayerResult& layer, double bound);

struct CheckReport {
    std::string file;
    std::string device;
    std::uint64_t seed = 0;
    std::int64_t rows_asked = 0;
    double bound = 0.0;
    std::vector<std::string> notes;  // on the file
    std::vector<LayerResult> layers;
};

[[nodiscard]] std::string check_text(const CheckReport& report);
// docs/check.md describes it.
[[nodiscard]] std::string check_json(const CheckReport& report);

}  // namespace quatt::tools
