// What a file's metadata and the flags say of the computation.
#include <algorithm>
#include <array>
#include <cmath>

#include "layer.hpp"

namespace quatt::tools {
namespace {

// --- Metadata under other names ---------------------------------------------------------------

constexpr std::array<std::string_view, 5> kKnownKeys = {"softmax_scale", "causal", "window",
                                                        "window_left", "window_right"};

// The key that the file may mean; "" where it is one of ours, or looks like none.
std::string_view meant_by(std::string_view key) {
    constexpr std::size_t kLongestTypo = 40;
    const std::string name = lower(key);
    if (std::ranges::find(kKnownKeys, key) != kKnownKeys.end()) {
        return "";
    }
    for (const std::string_view known : kKnownKeys) {
        if (name.size() <= kLongestTypo && edit_distance(name, known) <= 2) {
            return known;
        }
    }
    constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kParts = {
        {{"causal", "causal"},
         {"window", "window"},
         {"scale", "softmax_scale"},
         {"scaling", "softmax_scale"}}};
    for (const auto& [part, known] : kParts) {
        if (name.find(part) != std::string::npos) {
            return known;
        }
    }
    return "";
}

// Whether the text says what holds anyway.
bool says_nothing_new(std::string_view known, const std::string& text, const Semantics& s) {
    const std::string value = lower(text);
    if (value.empty() || value == "none" || value == "null") {
        return true;
    }
    if (known == "causal") {
        return (value == "false" || value == "0") != s.causal.value;
    }
    if (known == "softmax_scale") {
        const auto number = parse_number<double>(value);
        return number && std::fabs(*number / double{s.softmax_scale.value} - 1.0) < 1e-5;
    }
    return value == "-1" || value == "-1,-1" || value == "open";
}

void note_unread(const SafetensorsFile& file, const std::vector<std::string>& levels,
                 Semantics& s) {
    for (const auto& [key, value] : file.metadata()) {
        const auto [level, name] = split_name(key);
        const std::string_view known = meant_by(name);
        const bool is_scale = known == "softmax_scale";
        const std::string& source = is_scale            ? s.softmax_scale.source
                                    : known == "causal" ? s.causal.source
                                                        : s.window.source;
        if (known.empty() || source != "default" || says_nothing_new(known, value, s) ||
            std::ranges::find(levels, level) == levels.end()) {
            continue;
        }
        s.notes.push_back("metadata " + in_quotes(key) + " is " + in_quotes(value) +
                          ", and nothing reads it; if it means " + std::string(known) +
                          ", give it that name, or the flag " +
                          (is_scale            ? "--softmax-scale"
                           : known == "causal" ? "--causal"
                                               : "--window"));
    }
}

}  // namespace

std::string window_text(const Window& window) {
    return window.left == -1 && window.right == -1
               ? "open"
               : std::to_string(window.left) + "," + std::to_string(window.right);
}

std::string Semantics::text() const {
    return "softmax_scale " + shortest(softmax_scale.value) + " (" + softmax_scale.source +
           "), causal " + (causal.value ? "yes" : "no") + " (" + causal.source + "), window " +
           window_text(window.value) + " (" + window.source + ")";
}

Semantics resolve_semantics(const SafetensorsFile& file, const LayerInput& layer,
                            const ProblemOptions& options) {
    const std::vector<std::string> levels = levels_of(layer.name());
    const auto metadata = [&](std::string_view key) { return find_metadata(file, levels, key); };
    const auto bad = [&](std::string_view key, const std::string& value,
                         std::string_view allowed) -> Error {
        return Error(printable(file.path(), 200) + ": metadata " + in_quotes(key) + " is " +
                     in_quotes(value) + "; allowed is " + std::string(allowed));
    };
    Semantics s;
    s.softmax_scale.value = 1.0F / std::sqrt(static_cast<float>(layer.head_dim()));
    if (options.softmax_scale) {
        s.softmax_scale = {static_cast<float>(*options.softmax_scale), "flag"};
    } else if (const std::string* text = metadata("softmax_scale")) {
        const auto value = parse_number<double>(*text);
        if (!value || !std::isfinite(*value) || *value <= 0.0) {
            throw bad("softmax_scale", *text, "a number > 0");
        }
        s.softmax_scale = {static_cast<float>(*value), "metadata"};
    }
    if (options.causal) {
        s.causal = {*options.causal, "flag"};
    } else if (const std::string* text = metadata("causal")) {
        const std::string value = lower(*text);
        if (value != "true" && value != "1" && value != "false" && value != "0") {
            throw bad("causal", *text, "true or false");
        }
        s.causal = {value == "true" || value == "1", "metadata"};
    }
    if (options.window) {
        s.window = {*options.window, "flag"};
    } else if (const std::string* text = metadata("window")) {
        const auto value = parse_window(*text);
        if (!value) {
            throw bad("window", *text, kWindowAllowed);
        }
        s.window = {*value, "metadata"};
    } else {
        for (const auto& [key, side] :
             {std::pair{"window_left", &Window::left}, std::pair{"window_right", &Window::right}}) {
            if (const std::string* side_text = metadata(key)) {
                const auto value = parse_number<std::int64_t>(*side_text);
                if (!value || *value < -1) {
                    throw bad(key, *side_text, "an integer >= 0, or -1 for open");
                }
                s.window.value.*side = *value;
                s.window.source = "metadata";
            }
        }
    }
    note_unread(file, levels, s);
    return s;
}

}  // namespace quatt::tools
