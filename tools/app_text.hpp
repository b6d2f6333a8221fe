// Texts that are made of the program's own flags, so that none can go stale: help, shell completion
// and the manual page.
#pragma once

#include <CLI/CLI.hpp>
#include <array>
#include <memory>
#include <string>
#include <string_view>

namespace quatt::tools {

// Usage, description, options by group, and the examples of the footer.
[[nodiscard]] std::shared_ptr<CLI::FormatterBase> help_formatter();

inline constexpr std::array<std::string_view, 3> kShells = {"bash", "zsh", "fish"};

// A script for one of kShells.
[[nodiscard]] std::string completion_script(const CLI::App& program, std::string_view shell);

// In roff, for section 1.
[[nodiscard]] std::string manual_page(const CLI::App& program);

}  // namespace quatt::tools
