// Where the program's text goes.
#pragma once

#include <string_view>

#include "error.hpp"

namespace quatt::tools {

// To standard output, at once. Throws Error where not all of it could be written.
void print(std::string_view text);

// To standard error: each line of the message behind "quatt: ".
void print_error(std::string_view message);

// Makes sure that the three standard streams exist and that a closed pipe is an error of the write
// and no signal. Without this, a file opened later might become standard output.
void prepare_streams();

}  // namespace quatt::tools
