// The one exception of the tools, and text that is safe to print.
#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>
#include <string_view>

namespace quatt::tools {

// A failure whose message is meant for the user: it names the file or argument, the value found and
// what is allowed. The program prints it and exits with 1.
class Error : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

// `text` in printable ASCII, cut after `max_bytes`. Names and values that come out of a file may
// hold anything, terminal escape sequences included, so messages and tables never print them raw.
[[nodiscard]] inline std::string printable(std::string_view text, std::size_t max_bytes = 80) {
    constexpr std::string_view kHex = "0123456789abcdef";
    std::string out;
    for (const char c : text.substr(0, max_bytes)) {
        const auto byte = static_cast<unsigned char>(c);
        if (byte >= 0x20 && byte < 0x7F) {
            out += c;
        } else {
            out += "\\x";
            out += kHex[byte >> 4];
            out += kHex[byte & 15u];
        }
    }
    if (text.size() > max_bytes) {
        out += "...";
    }
    return out;
}

[[nodiscard]] inline std::string in_quotes(std::string_view text) {
    return '\'' + printable(text) + '\'';
}

}  // namespace quatt::tools
