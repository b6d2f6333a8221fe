// The report of `quatt check` for programs; docs/check.md describes the fields.
#include <sys/utsname.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "check.hpp"
#include "table.hpp"

namespace quatt::tools {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kVersion = 1;
// Digits of numbers that are there to be drawn.
constexpr int kDrawnDigits = 5;
constexpr int kChannelDigits = 3;
// Up to so many heads in all layers, every head's channels are written: a report stays below 1 MB.
constexpr std::size_t kHeadsWithChannels = 64;

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

Json rounded(double value, int digits = kDrawnDigits) {
    if (!std::isfinite(value)) {
        return number(value);
    }
    return number(*parse_number<double>(format_significant(value, digits)));
}

template <class Values>
Json rounded_all(const Values& values, int digits = kDrawnDigits) {
    Json all = Json::array();
    for (const auto value : values) {
        all.push_back(rounded(value, digits));
    }
    return all;
}

Json errors_of(const HeadErrors& errors) {
    return {{"rel_l2", number(errors.rel_l2)},
            {"cosine", number(errors.cosine)},
            {"max_error", number(errors.max_error)},
            {"lse_error", number(errors.lse_error)}};
}

Json recipe_of(const RecipeResult& recipe) {
    Json json = {{"recipe", recipe.recipe},          {"about", about_recipe(recipe.recipe)},
                 {"cost", cost_of(recipe.recipe)},   {"kernel", recipe.plan.kernel},
                 {"key_tile", recipe.plan.key_tile}, {"splits", recipe.plan.splits},
                 {"threads", recipe.plan.threads},   {"time_ms", number(recipe.time_ms)}};
    json.update(errors_of(recipe.over_heads()));
    const std::vector<std::size_t> order = recipe.worst_heads();
    json["worst_rel_l2"] = number(recipe.heads[order.front()].rel_l2);
    json["worst_heads"] = order;
    const RowErrors& rows = recipe.rows;
    json["row_errors"] = {{"median", rounded(rows.median)},
                          {"p95", rounded(rows.p95)},
                          {"max", rounded(rows.max)},
                          {"counts", rows.counts}};
    json["heads"] = Json::array();
    for (const HeadErrors& head : recipe.heads) {
        json["heads"].push_back(errors_of(head));
    }
    return json;
}

// The heads of q that explain something: of each recipe the worst, and, to compare with, the middle
// one of the first recipe.
std::vector<std::size_t> chosen_heads(const LayerResult& layer, bool all) {
    std::vector<std::size_t> heads;
    for (std::size_t h = 0; h < layer.heads() && all; ++h) {
        heads.push_back(h);
    }
    for (const RecipeResult& recipe : layer.recipes) {
        heads.push_back(recipe.worst_heads().front());
    }
    heads.push_back(layer.recipes.front().worst_heads()[layer.heads() / 2]);
    std::ranges::sort(heads);
    heads.erase(std::unique(heads.begin(), heads.end()), heads.end());
    return heads;
}

// `group`: query heads that share a head of this operand.
Json operand_of(const OperandStats& stats, const std::vector<std::size_t>& heads,
                std::size_t group) {
    Json json = {
        {"min", rounded_all(stats.min)},         {"max", rounded_all(stats.max)},
        {"rms", rounded_all(stats.rms)},         {"mean_share", rounded_all(stats.mean_share)},
        {"outlier", rounded_all(stats.outlier)}, {"channels", Json::array()}};
    std::optional<std::size_t> last;
    for (const std::size_t query_head : heads) {
        const std::size_t head = query_head / group;
        if (last == head) {
            continue;
        }
        last = head;
        const ChannelStats& channels = stats.channels[head];
        json["channels"].push_back({{"head", head},
                                    {"min", rounded_all(channels.min, kChannelDigits)},
                                    {"max", rounded_all(channels.max, kChannelDigits)},
                                    {"mean", rounded_all(channels.mean, kChannelDigits)}});
    }
    return json;
}

Json layer_of(const LayerResult& layer, double bound, bool all_channels) {
    const Semantics& s = layer.semantics;
    Json json;
    json["layer"] = layer.name;
    json["shape"] = {{"packed", layer.packed},         {"batch", layer.batch},
                     {"segments", layer.segments},     {"tokens_q", layer.tokens_q},
                     {"tokens_k", layer.tokens_k},     {"heads", layer.heads()},
                     {"heads_kv", layer.heads_kv},     {"head_dim", layer.head_dim},
                     {"head_dim_v", layer.head_dim_v}, {"layout", layout_name(layer.layout)},
                     {"text", layer.shape_text}};
    json["softmax_scale"] = {{"value", number(double{s.softmax_scale.value})},
                             {"source", s.softmax_scale.source}};
    json["causal"] = {{"value", s.causal.value}, {"source", s.causal.source}};
    json["window"] = {{"value", {s.window.value.left, s.window.value.right}},
                      {"source", s.window.source}};
    json["rows_compared"] = layer.rows_compared;
    json["rows_left_out"] = Json::array();
    json["light_mass"] = Json::array();
    for (const ExactHead& head : layer.exact) {
        json["rows_left_out"].push_back(layer.rows_compared - head.rows);
        json["light_mass"].push_back(
            {{"mean", number(head.light.mean)}, {"max", number(head.light.max)}});
    }
    const ExactHead exact = layer.exact_over_heads();
    json["exact"] = {{"rms", rounded(exact.rms)}, {"largest", rounded(exact.largest)}};
    const std::vector<std::size_t> heads = chosen_heads(layer, all_channels);
    const std::size_t group = layer.heads() / layer.inputs.k.heads();
    json["inputs"] = {{"q", operand_of(layer.inputs.q, heads, 1)},
                      {"k", operand_of(layer.inputs.k, heads, group)},
                      {"v", operand_of(layer.inputs.v, heads, group)}};
    json["recipes"] = Json::array();
    for (const RecipeResult& recipe : layer.recipes) {
        json["recipes"].push_back(recipe_of(recipe));
    }
    const Recommendation r = recommend(layer, bound);
    Json rejected = Json::array();
    for (const std::size_t index : r.rejected) {
        const RecipeResult& recipe = layer.recipes[index];
        const std::size_t head = recipe.worst_heads().front();
        rejected.push_back({{"recipe", recipe.recipe},
                            {"head", head},
                            {"rel_l2", number(recipe.heads[head].rel_l2)}});
    }
    json["recommendation"] = {
        {"recipe", r.index ? Json(layer.recipes[*r.index].recipe) : Json(nullptr)},
        {"sentence", r.sentence},
        {"rejected", rejected}};
    json["notes"] = layer.notes;
    return json;
}

// "model name : ..." of the first processor; "" where the system does not say.
std::string cpu_model() {
    std::ifstream stream("/proc/cpuinfo");
    for (std::string line; std::getline(stream, line);) {
        const auto colon = line.find(": ");
        if (line.starts_with("model name") && colon != std::string::npos) {
            return line.substr(colon + 2);
        }
    }
    return "";
}

Json machine() {
    utsname system{};
    const bool known = ::uname(&system) == 0;
    return {{"cpu", cpu_model()},
            {"cores", quatt_cpu_count()},
            {"features", quatt_cpu_features()},
            {"system", known ? std::string(system.sysname) + " " + system.release : ""},
            {"architecture", known ? std::string(system.machine) : ""}};
}

std::string compiler() {
#if defined(__clang__)
    return std::string("Clang ") + __clang_version__;
#else
    return std::string("GCC ") + __VERSION__;
#endif
}

bool is_flat(const Json& json) {
    return json.is_array() &&
           std::ranges::none_of(json, [](const Json& item) { return item.is_structured(); });
}

// Indented by two, but a list of numbers on one line: channels would be a line each.
void dump(const Json& json, std::size_t indent, std::string& out) {
    // Names may hold any bytes, JSON only UTF-8.
    const auto flat = [](const Json& item) {
        return item.dump(-1, ' ', false, Json::error_handler_t::replace);
    };
    if (!json.is_structured() || json.empty() || is_flat(json)) {
        out += flat(json);
        return;
    }
    const std::string margin(indent + 2, ' ');
    const char* separator = "";
    out += json.is_array() ? "[" : "{";
    for (const auto& item : json.items()) {
        out += separator;
        out += "\n" + margin;
        out += json.is_array() ? "" : flat(item.key()) + ": ";
        dump(item.value(), indent + 2, out);
        separator = ",";
    }
    out += "\n" + std::string(indent, ' ') + (json.is_array() ? "]" : "}");
}

}  // namespace

Json check_data(const CheckReport& report) {
    Json edges = Json::array();
    for (std::size_t i = 0; i < RowErrors::kEdges; ++i) {
        edges.push_back(rounded(RowErrors::edge(i)));
    }
    Json json = {{"schema", "quatt.check"},
                 {"version", kVersion},
                 {"quatt_version", quatt_version()},
                 {"compiler", compiler()},
                 {"machine", machine()},
                 {"command", report.command},
                 {"created", report.created},
                 {"file", report.file},
                 {"device", report.device},
                 {"seed", report.seed},
                 {"rows", report.rows_asked},
                 {"bound", number(report.bound)},
                 {"bound_source", report.is_usual_bound ? "default" : "flag"},
                 {"row_error_edges", edges},
                 {"notes", report.notes},
                 {"failed", Json::array()},
                 {"layers", Json::array()}};
    for (const FailedLayer& layer : report.failed) {
        json["failed"].push_back({{"layer", layer.name}, {"reasons", layer.reasons}});
    }
    std::size_t heads = 0;
    for (const LayerResult& layer : report.layers) {
        heads += layer.heads();
    }
    for (const LayerResult& layer : report.layers) {
        json["layers"].push_back(layer_of(layer, report.bound, heads <= kHeadsWithChannels));
    }
    return json;
}

std::string check_json(const CheckReport& report) {
    std::string out;
    dump(check_data(report), 0, out);
    return out + "\n";
}

}  // namespace quatt::tools
