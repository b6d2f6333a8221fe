// What `quatt check` measured, apart from how it is shown.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "commands.hpp"
#include "input_stats.hpp"
#include "layer.hpp"

namespace quatt::tools {

// Of the rows compared, all channels together. o: the recipe, r: the fp64 reference.
struct HeadErrors {
    double rel_l2 = 0.0;     // |o - r| / |r|
    double cosine = 1.0;     // o.r / (|o| |r|)
    double max_error = 0.0;  // largest |o - r| of an element
    double lse_error = 0.0;  // largest |lse - lse of r| of a row
};

// The relative L2 errors of single rows, of all heads: whether a few rows are wrong, or all a bit.
struct RowErrors {
    static constexpr int kPerDecade = 4;
    static constexpr int kFirstDecade = -5;
    static constexpr int kLastDecade = 1;
    static constexpr std::size_t kEdges = kPerDecade * (kLastDecade - kFirstDecade) + 1;
    // counts[0]: below edge(0); counts[i]: from edge(i - 1) to edge(i); the last: edge(kEdges - 1)
    // and more, and NaN.
    [[nodiscard]] static double edge(std::size_t index);

    std::array<std::int64_t, kEdges + 1> counts{};
    double median = 0.0;
    double p95 = 0.0;  // 95 % of the rows have this error or a smaller one
    double max = 0.0;

    // NaN counts as largest.
    [[nodiscard]] static RowErrors of(std::vector<double> errors);
};

struct RecipeResult {
    std::string recipe;
    PlanInfo plan;
    double time_ms = 0.0;           // all rows, not only those compared
    std::vector<HeadErrors> heads;  // [query head]
    RowErrors rows;

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

// What is known of a head's exact result, over the rows compared where that is finite.
struct ExactHead {
    std::int64_t rows = 0;
    double rms = 0.0;
    double largest = 0.0;  // |x| of an element
    LightMass light;
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
    Layout layout = Layout::kTokensFirst;
    Semantics semantics;
    std::vector<std::string> notes;
    bool finite_inputs = true;
    std::int64_t rows_compared = 0;  // in each head, less those that ExactHead::rows leaves out
    std::vector<ExactHead> exact;    // [query head]
    InputStats inputs;
    std::vector<RecipeResult> recipes;

    [[nodiscard]] std::size_t heads() const noexcept { return exact.size(); }
    // Of all heads.
    [[nodiscard]] ExactHead exact_over_heads() const;
};

struct Recommendation {
    std::optional<std::size_t> index;  // into LayerResult::recipes
    std::string sentence;              // without the layer's name
    // What is cheaper than it, or, without a recommendation, everything: each with the worst head.
    std::vector<std::size_t> rejected;
};
// Dearer recipes have larger numbers, equally dear ones the same.
[[nodiscard]] int cost_of(std::string_view recipe);
// What a recipe does, for readers who never saw its name; "" where that is not known here.
[[nodiscard]] std::string_view about_recipe(std::string_view recipe);

inline constexpr double kUsualBound = 0.06;

// The cheapest recipe that stays below `bound` in every head, if there is one.
[[nodiscard]] Recommendation recommend(const LayerResult& layer, double bound);

// A layer that could not be checked, with all reasons.
struct FailedLayer {
    std::string name;
    std::vector<std::string> reasons;
};

struct CheckReport {
    std::vector<std::string> command;
    std::string created;  // 2026-11-29T23:00:00Z
    std::string file;
    std::string device;
    std::uint64_t seed = 0;
    std::int64_t rows_asked = 0;
    double bound = 0.0;
    bool is_usual_bound = true;
    std::vector<std::string> notes;  // on the file
    std::vector<LayerResult> layers;
    std::vector<FailedLayer> failed;
};

[[nodiscard]] std::string check_text(const CheckReport& report);
// docs/check.md describes it. Everything that is shown elsewhere comes from here.
[[nodiscard]] nlohmann::ordered_json check_data(const CheckReport& report);
[[nodiscard]] std::string check_json(const CheckReport& report);
// One HTML file that needs nothing else: the data, and what draws it (tools/report/).
[[nodiscard]] std::string check_html(const CheckReport& report);

}  // namespace quatt::tools
