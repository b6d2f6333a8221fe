// The report of `quatt check` for programs; docs/check.md describes the fields.
#include <cmath>
#include <nlohmann/json.hpp>

#include "check.hpp"

namespace quatt::tools {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kVersion = 1;

// JSON has no NaN and no infinity: they are strings, which float() of Python and C can read.
Json number(double value) {
    if (std::isnan(value)) {
        return "NaN";
    }
    if (std::isinf(value)) {
        return value > 0 ? "Infinity" : "-Infinity";
    }
    return value;
}

Json errors_of(const HeadErrors& errors) {
    return {{"rel_l2", number(errors.rel_l2)},
            {"cosine", number(errors.cosine)},
            {"max_error", number(errors.max_error)},
            {"lse_error", number(errors.lse_error)}};
}

Json recipe_of(const RecipeResult& recipe) {
    Json json = {{"recipe", recipe.recipe},          {"kernel", recipe.plan.kernel},
                 {"key_tile", recipe.plan.key_tile}, {"splits", recipe.plan.splits},
                 {"threads", recipe.plan.threads},   {"time_ms", number(recipe.time_ms)}};
    json.update(errors_of(recipe.over_heads()));
    const std::vector<std::size_t> order = recipe.worst_heads();
    json["worst_rel_l2"] = number(recipe.heads[order.front()].rel_l2);
    json["worst_heads"] = order;
    json["heads"] = Json::array();
    for (const HeadErrors& head : recipe.heads) {
        json["heads"].push_back(errors_of(head));
    }
    return json;
}

Json layer_of(const LayerResult& layer, double bound) {
    const Semantics& s = layer.semantics;
    Json json;
    json["layer"] = layer.name;
    json["shape"] = {{"packed", layer.packed},         {"batch", layer.batch},
                     {"segments", layer.segments},     {"tokens_q", layer.tokens_q},
                     {"tokens_k", layer.tokens_k},     {"heads", layer.light.size()},
                     {"heads_kv", layer.heads_kv},     {"head_dim", layer.head_dim},
                     {"head_dim_v", layer.head_dim_v}, {"text", layer.shape_text}};
    json["softmax_scale"] = {{"value", number(double{s.softmax_scale.value})},
                             {"source", s.softmax_scale.source}};
    json["causal"] = {{"value", s.causal.value}, {"source", s.causal.source}};
    json["window"] = {{"value", {s.window.value.left, s.window.value.right}},
                      {"source", s.window.source}};
    json["rows_compared"] = layer.rows_compared;
    json["light_mass"] = Json::array();
    for (const LightMass& head : layer.light) {
        json["light_mass"].push_back({{"mean", number(head.mean)}, {"max", number(head.max)}});
    }
    json["recipes"] = Json::array();
    for (const RecipeResult& recipe : layer.recipes) {
        json["recipes"].push_back(recipe_of(recipe));
    }
    const Recommendation r = recommend(layer, bound);
    json["recommendation"] = {
        {"recipe", r.index ? Json(layer.recipes[*r.index].recipe) : Json(nullptr)},
        {"sentence", r.sentence}};
    json["notes"] = layer.notes;
    return json;
}

}  // namespace

std::string check_json(const CheckReport& report) {
    Json json = {{"schema", "quatt.check"},
                 {"version", kVersion},
                 {"quatt_version", quatt_version()},
                 {"file", report.file},
                 {"device", report.device},
                 {"seed", report.seed},
                 {"rows", report.rows_asked},
                 {"bound", number(report.bound)},
                 {"notes", report.notes},
                 {"layers", Json::array()}};
    for (const LayerResult& layer : report.layers) {
        json["layers"].push_back(layer_of(layer, report.bound));
    }
    // Names may hold any bytes, JSON only UTF-8.
    return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace quatt::tools
