// Where the program's text goes.
#pragma once

#include <string_view>

#include "error.hpp"

namespace quatt::tools {

// To standard output, at once. Throws Error where not all of it could be written; where nobody
// reads any more, that waits for finish_streams, so that files are written all the same.
void print(std::string_view text);

// To standard error: each line of the message behind "quatt: ".
void print_error(std::string_view message);

// Makes sure that the three standard streams exist. Without this, a file opened later might become
// standard output.
void prepare_streams();

// The exit status, given that of the work. Where the reader of standard output went away, the
// program ends by SIGPIPE as other filters do, or, where its parent ignores that, with a message.
[[nodiscard]] int finish_streams(int status);

}  // namespace quatt::tools
