// Texts that are made of the program's own flags, so that none can go stale: help, shell completion
// and the manual page.
#pragma once

#include <CLI/CLI.hpp>
#include <array>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace quatt::tools {

// Usage, description, options by group, and the examples of the footer.
[[nodiscard]] std::shared_ptr<CLI::FormatterBase> help_formatter();

inline constexpr std::array<std::string_view, 3> kShells = {"bash", "zsh", "fish"};

// What a shell may put where an option's value is due.
struct Words {
    std::vector<std::string> words;
    bool is_list = false;  // several, with commas between them
};
// Of those that have a choice. Options whose type names a file are completed by files.
using Completions = std::map<const CLI::Option*, Words>;

// A script for one of kShells.
[[nodiscard]] std::string completion_script(const CLI::App& program, const Completions& completions,
                                            std::string_view shell);

// In roff, for section 1.
[[nodiscard]] std::string manual_page(const CLI::App& program);

}  // namespace quatt::tools
