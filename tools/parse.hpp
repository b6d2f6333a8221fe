// Numbers and lists out of text: flags and metadata are read by the same rules.
#pragma once

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
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

// Letters to insert, delete, replace or swap with their neighbour until the texts are equal.
[[nodiscard]] inline std::size_t edit_distance(std::string_view a, std::string_view b) {
    std::vector<std::vector<std::size_t>> d(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
    for (std::size_t i = 0; i <= a.size(); ++i) {
        for (std::size_t j = 0; j <= b.size(); ++j) {
            if (i == 0 || j == 0) {
                d[i][j] = i + j;
                continue;
            }
            d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1,
                                d[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0U : 1U)});
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
                d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
            }
        }
    }
    return d[a.size()][b.size()];
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
