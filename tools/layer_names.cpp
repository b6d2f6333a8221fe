#include "layer_names.hpp"

#include <algorithm>
#include <cctype>
#include <map>
#include <set>

#include "parse.hpp"

namespace quatt::tools {
namespace {

bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

// Runs of digits compare as numbers, the rest as bytes.
bool natural_less(std::string_view a, std::string_view b) {
    std::size_t i = 0;
    std::size_t j = 0;
    const auto number = [](std::string_view text, std::size_t& at) {
        while (at + 1 < text.size() && text[at] == '0' && is_digit(text[at + 1])) {
            ++at;
        }
        const std::size_t begin = at;
        while (at < text.size() && is_digit(text[at])) {
            ++at;
        }
        return text.substr(begin, at - begin);
    };
    while (i < a.size() && j < b.size()) {
        if (is_digit(a[i]) && is_digit(b[j])) {
            const std::string_view x = number(a, i);
            const std::string_view y = number(b, j);
            if (x != y) {
                return x.size() != y.size() ? x.size() < y.size() : x < y;
            }
        } else if (a[i] != b[j]) {
            return a[i] < b[j];
        } else {
            ++i;
            ++j;
        }
    }
    return a.size() - i != b.size() - j ? a.size() - i < b.size() - j : a < b;
}

}  // namespace

std::pair<std::string_view, std::string_view> split_name(std::string_view name) {
    const auto dot = name.rfind('.');
    if (dot == std::string_view::npos) {
        return {"", name};
    }
    return {name.substr(0, dot), name.substr(dot + 1)};
}

std::string lower(std::string_view text) {
    std::string out(text);
    for (char& c : out) {
        c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
    return out;
}

std::vector<std::string> levels_of(const std::string& layer) {
    std::vector<std::string> levels = {layer};
    while (!levels.back().empty()) {
        levels.emplace_back(split_name(levels.back()).first);
    }
    return levels;
}

const std::string* find_metadata(const SafetensorsFile& file,
                                 const std::vector<std::string>& levels, std::string_view key) {
    for (const std::string& level : levels) {
        const auto found = file.metadata().find(tensor_name(level, key));
        if (found != file.metadata().end()) {
            return &found->second;
        }
    }
    return nullptr;
}

std::string tensor_name(std::string_view layer, std::string_view name) {
    return layer.empty() ? std::string(name) : std::string(layer) + "." + std::string(name);
}

std::string layer_where(const SafetensorsFile& file, const std::string& layer) {
    return printable(file.path(), 200) + (layer.empty() ? "" : ": layer " + printable(layer));
}

std::vector<std::string> find_layers(const SafetensorsFile& file) {
    std::vector<std::string> layers;
    for (const TensorView& tensor : file.tensors()) {
        const auto [prefix, name] = split_name(tensor.name);
        if (name == "q" && file.find(tensor_name(prefix, "k")) != nullptr &&
            file.find(tensor_name(prefix, "v")) != nullptr) {
            layers.emplace_back(prefix);
        }
    }
    std::sort(layers.begin(), layers.end(), natural_less);
    return layers;
}

std::string incomplete_note(const SafetensorsFile& file) {
    constexpr std::size_t kListed = 20;
    std::map<std::string, std::set<std::string>, bool (*)(std::string_view, std::string_view)>
        prefixes(natural_less);
    for (const TensorView& tensor : file.tensors()) {
        const auto [prefix, name] = split_name(tensor.name);
        if (name == "q" || name == "k" || name == "v") {
            prefixes[std::string(prefix)].emplace(name);
        }
    }
    std::erase_if(prefixes, [](const auto& entry) { return entry.second.size() == 3; });
    std::vector<std::string> parts;
    for (const auto& [prefix, found] : prefixes) {
        if (parts.size() == kListed) {
            parts.emplace_back("...");
            break;
        }
        std::vector<std::string> missing;
        for (const std::string name : {"q", "k", "v"}) {
            if (!found.contains(name)) {
                missing.push_back(printable(tensor_name(prefix, name)));
            }
        }
        parts.push_back(layer_title(prefix) + " (no " + join(missing) + ")");
    }
    return parts.empty() ? "" : "left out, because tensors are missing: " + join(parts);
}

std::string layer_title(const std::string& layer) {
    return layer.empty() ? "(q, k, v)" : printable(layer);
}

}  // namespace quatt::tools
