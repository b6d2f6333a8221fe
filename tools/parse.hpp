// Numbers and lists out of text: flags and metadata are read by the same rules.
#pragma once

#include <array>
#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace quatt::tools {

// The whole text as a number; nothing where it is none, or does not fit. Never depends on the
// locale.
template <class T>
[[nodiscard]] std::optional<T> parse_number(std::string_view text) {
    T value{};
    const char* end = text.data() + text.size();
    const auto result = std::from_chars(text.data(), end, value);
    if (text.empty() || result.ec != std::errc() || result.ptr != end) {
        return std::nullopt;
    }
    return value;
}

// The shortest text that reads back as the same number.
template <class T>
[[nodiscard]] std::string shortest(T value) {
    std::array<char, 64> buffer{};
    const auto result = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value);
    return {buffer.data(), result.ptr};
}

// "a,b" -> a, b. An empty text is one empty part.
[[nodiscard]] inline std::vector<std::string> split(std::string_view text, char separator = ',') {
    std::vector<std::string> parts;
    while (true) {
        const auto at = text.find(separator);
        parts.emplace_back(text.substr(0, at));
        if (at == std::string_view::npos) {
            return parts;
        }
        text.remove_prefix(at + 1);
    }
}

template <class Item>
[[nodiscard]] std::string join(const std::vector<Item>& items, std::string_view separator = ", ") {
    std::string out;
    for (const Item& item : items) {
        out += out.empty() ? "" : separator;
        out += item;
    }
    return out;
}

// Keys that a query sees: `left` before and `right` behind its diagonal; -1 is open.
struct Window {
    std::int64_t left = -1;
    std::int64_t right = -1;
};

// "127,0"
[[nodiscard]] inline std::optional<Window> parse_window(std::string_view text) {
    const std::vector<std::string> parts = split(text);
    if (parts.size() != 2) {
        return std::nullopt;
    }
    const auto left = parse_number<std::int64_t>(parts[0]);
    const auto right = parse_number<std::int64_t>(parts[1]);
    if (!left || !right || *left < -1 || *right < -1) {
        return std::nullopt;
    }
    return Window{*left, *right};
}

inline constexpr std::string_view kWindowAllowed =
    "two integers LEFT,RIGHT, each >= 0, or -1 for open";

}  // namespace quatt::tools
