// The command line of the program quatt.
#pragma once

namespace quatt::tools {

// Returns the exit status: 0, 1 (failure) or 2 (usage). Throws nothing.
[[nodiscard]] int run_cli(int argc, const char* const* argv) noexcept;

}  // namespace quatt::tools
