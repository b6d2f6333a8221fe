// quatt info: what this library and this machine can do.
#include <quatt/quatt.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "commands.hpp"
#include "output.hpp"
#include "table.hpp"

namespace quatt::tools {
namespace {

// Breaks a text between words into lines of at most `width` characters.
std::vector<std::string> wrap(const std::string& text, std::size_t width) {
    std::vector<std::string> lines(1);
    for (const std::string& word : split(text, ' ')) {
        if (!lines.back().empty() && lines.back().size() + 1 + word.size() > width) {
            lines.emplace_back();
        }
        lines.back() += (lines.back().empty() ? "" : " ") + word;
    }
    return lines;
}

// What the NVIDIA driver says of itself in /proc: no CUDA library is needed to read it.
std::vector<std::string> gpu_lines() {
    namespace fs = std::filesystem;
    const fs::path root = "/proc/driver/nvidia/gpus";
    std::vector<std::string> lines;
    std::error_code error;
    for (fs::directory_iterator it(root, error), end; !error && it != end; it.increment(error)) {
        std::ifstream stream(it->path() / "information");
        std::string model = "unknown model";
        for (std::string line; std::getline(stream, line);) {
            if (line.rfind("Model:", 0) == 0) {
                const auto begin = line.find_first_not_of(" \t", 6);
                model = begin == std::string::npos ? model : line.substr(begin);
            }
        }
        lines.push_back(printable(model) + " at PCI " + printable(it->path().filename().string()));
    }
    std::sort(lines.begin(), lines.end());
    if (lines.empty()) {
        lines.emplace_back(
            "none found (looked for an NVIDIA driver in /proc/driver/nvidia/gpus only)");
    }
    return lines;
}

std::string field(const std::string& title, const std::string& text) {
    return title + std::string(9 - title.size(), ' ') + text + "\n";
}

}  // namespace

int run_info() {
    std::string out = field("quatt", quatt_version());
    const std::string features = quatt_cpu_features();
    out += field("cpu", std::to_string(quatt_cpu_count()) + " cores; " +
                            (features.empty() ? "no vector features known" : features));
    std::string title = "gpus";
    for (const std::string& line : gpu_lines()) {
        out += field(title, line);
        title.clear();
    }

    std::vector<std::string> recipes;
    recipes.reserve(static_cast<std::size_t>(quatt_recipe_count()));
    for (std::int32_t i = 0; i < quatt_recipe_count(); ++i) {
        recipes.emplace_back(quatt_recipe_name(i));
    }
    out += field("recipes", join(recipes, " "));

    out += "\nKernels, in order of preference:\n";
    Table table({{"kernel", Align::kLeft},
                 {"device", Align::kLeft},
                 {"recipes", Align::kLeft},
                 {"head size", Align::kLeft},
                 {"types", Align::kLeft},
                 {"features", Align::kLeft}});
    for (std::int32_t i = 0; i < quatt_kernel_count(); ++i) {
        quatt_kernel_info info{};
        info.struct_size = sizeof(info);
        if (quatt_kernel_get_info(i, &info) != QUATT_OK) {
            throw Error(quatt_last_error());
        }
        const std::vector<std::vector<std::string>> cells = {
            {info.name},
            wrap(std::string(info.device) + " " + info.compute, 9),
            wrap(info.recipes, 20),
            wrap(info.head_dims, 12),
            wrap(info.dtypes, 26),
            wrap(info.features, 30)};
        std::size_t lines = 0;
        for (const auto& cell : cells) {
            lines = std::max(lines, cell.size());
        }
        if (i > 0) {
            table.add_rule();
        }
        for (std::size_t line = 0; line < lines; ++line) {
            std::vector<std::string> row;
            row.reserve(cells.size());
            for (const auto& cell : cells) {
                row.push_back(line < cell.size() ? cell[line] : "");
            }
            table.add_row(std::move(row));
        }
    }
    print(out + table.text());
    return kExitOk;
}

}  // namespace quatt::tools
