// Values of flags, out of text: every message says what is allowed.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "commands.hpp"

namespace quatt::tools {

inline constexpr std::int64_t kMaxTokens = std::int64_t{1} << 40;

// Throws the UsageError "FLAG is 'TEXT'; allowed is ALLOWED".
[[noreturn]] void bad_value(const std::string& flag, const std::string& text,
                            const std::string& allowed);

// All of these throw it where the text is no such value; `flag` is for the message.

[[nodiscard]] std::int64_t integer_value(const std::string& flag, const std::string& text,
                                         std::int64_t min, std::int64_t max);
[[nodiscard]] double real_value(const std::string& flag, const std::string& text,
                                const std::function<bool(double)>& allowed,
                                const std::string& allowed_text);
[[nodiscard]] double scale_value(const std::string& flag, const std::string& text);
[[nodiscard]] Window window_value(const std::string& flag, const std::string& text);
[[nodiscard]] std::string recipe_value(const std::string& flag, const std::string& text);
[[nodiscard]] std::string kernel_value(const std::string& flag, const std::string& text);
[[nodiscard]] std::string device_value(const std::string& flag, const std::string& text);
// "A,B,C"
[[nodiscard]] std::vector<std::string> list_value(const std::string& flag, const std::string& text);
[[nodiscard]] std::vector<std::int64_t> lengths_value(const std::string& flag,
                                                      const std::string& text);
// "1x4096x8x128"
[[nodiscard]] BenchShape shape_value(const std::string& flag, const std::string& text);

// Names and what they stand for.
template <class Value, std::size_t N>
using Names = std::array<std::pair<const char*, Value>, N>;

template <class Value, std::size_t N>
[[nodiscard]] std::vector<std::string> names_of(const Names<Value, N>& table) {
    std::vector<std::string> names;
    for (const auto& [name, value] : table) {
        names.emplace_back(name);
    }
    return names;
}

template <class Value, std::size_t N>
[[nodiscard]] Value named_value(const std::string& flag, const std::string& text,
                                const Names<Value, N>& table) {
    for (const auto& [name, value] : table) {
        if (text == name) {
            return value;
        }
    }
    bad_value(flag, text, "one of " + join(names_of(table)));
}

// All there are; of kernels each name once, though several may share it.
[[nodiscard]] std::vector<std::string> recipe_names();
[[nodiscard]] std::vector<std::string> kernel_names();

}  // namespace quatt::tools
