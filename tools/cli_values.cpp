#include "cli_values.hpp"

#include <quatt/quatt.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace quatt::tools {

void bad_value(const std::string& flag, const std::string& text, const std::string& allowed) {
    throw UsageError(flag + " is " + in_quotes(text) + "; allowed is " + allowed);
}

std::int64_t integer_value(const std::string& flag, const std::string& text, std::int64_t min,
                           std::int64_t max) {
    const auto value = parse_number<std::int64_t>(text);
    if (!value || *value < min || *value > max) {
        bad_value(flag, text,
                  "an integer from " + std::to_string(min) + " to " + std::to_string(max));
    }
    return *value;
}

double real_value(const std::string& flag, const std::string& text,
                  const std::function<bool(double)>& allowed, const std::string& allowed_text) {
    const auto value = parse_number<double>(text);
    if (!value || !std::isfinite(*value) || !allowed(*value)) {
        bad_value(flag, text, allowed_text);
    }
    return *value;
}

double scale_value(const std::string& flag, const std::string& text) {
    return real_value(
        flag, text,
        [](double x) {
            return x <= std::numeric_limits<float>::max() && static_cast<float>(x) > 0;
        },
        "a number > 0 that a float can hold");
}

Window window_value(const std::string& flag, const std::string& text) {
    const auto window = parse_window(text);
    if (!window) {
        bad_value(flag, text, std::string(kWindowAllowed));
    }
    return *window;
}

std::vector<std::string> recipe_names() {
    std::vector<std::string> names;
    names.reserve(static_cast<std::size_t>(quatt_recipe_count()));
    for (std::int32_t i = 0; i < quatt_recipe_count(); ++i) {
        names.emplace_back(quatt_recipe_name(i));
    }
    return names;
}

std::vector<std::string> kernel_names() {
    std::vector<std::string> names;
    for (std::int32_t i = 0; i < quatt_kernel_count(); ++i) {
        quatt_kernel_info info{};
        info.struct_size = sizeof(info);
        if (quatt_kernel_get_info(i, &info) != QUATT_OK) {
            throw Error(quatt_last_error());
        }
        if (std::ranges::find(names, info.name) == names.end()) {
            names.emplace_back(info.name);
        }
    }
    return names;
}

namespace {

std::string one_of(const std::string& flag, const std::string& text,
                   const std::vector<std::string>& names) {
    if (std::ranges::find(names, text) == names.end()) {
        bad_value(flag, text, "one of " + join(names));
    }
    return text;
}

}  // namespace

std::string recipe_value(const std::string& flag, const std::string& text) {
    return one_of(flag, text, recipe_names());
}

std::string kernel_value(const std::string& flag, const std::string& text) {
    return one_of(flag, text, kernel_names());
}

std::string device_value(const std::string& flag, const std::string& text) {
    quatt_device device{};
    const bool is_text = text.find('\0') == std::string::npos;
    if (quatt_device_init(&device, is_text ? text.c_str() : "") != QUATT_OK) {
        const std::string message = quatt_last_error(), before = "it must be ";
        const std::size_t at = message.rfind(before);
        bad_value(flag, text,
                  at == std::string::npos ? message : message.substr(at + before.size()));
    }
    return text;
}

std::vector<std::string> list_value(const std::string& flag, const std::string& text) {
    std::vector<std::string> parts = split(text);
    for (std::size_t i = 0; i < parts.size(); ++i) {
        if (parts[i].empty() ||
            std::find(parts.begin(), parts.begin() + static_cast<std::ptrdiff_t>(i), parts[i]) !=
                parts.begin() + static_cast<std::ptrdiff_t>(i)) {
            bad_value(flag, text, "a list A,B,C without empty or repeated entries");
        }
    }
    return parts;
}

std::vector<std::int64_t> lengths_value(const std::string& flag, const std::string& text) {
    std::vector<std::int64_t> lengths;
    for (const std::string& part : split(text)) {
        const auto length = parse_number<std::int64_t>(part);
        if (!length || *length < 0 || *length > std::numeric_limits<std::int32_t>::max()) {
            bad_value(flag, text, "a list of lengths A,B,C, each from 0 to 2^31 - 1");
        }
        lengths.push_back(*length);
    }
    return lengths;
}

BenchShape shape_value(const std::string& flag, const std::string& text) {
    std::vector<std::int64_t> extents;
    std::int64_t elements = 1;
    for (const std::string& part : split(text, 'x')) {
        const auto extent = parse_number<std::int64_t>(part);
        if (!extent || *extent < 1 || __builtin_mul_overflow(elements, *extent, &elements) ||
            elements > kMaxTokens) {
            extents.clear();
            break;
        }
        extents.push_back(*extent);
    }
    if (extents.size() != 4) {
        bad_value(flag, text, "BxSxHxD, as 1x4096x8x128: batch, tokens, heads, head size");
    }
    return {.batch = extents[0], .tokens = extents[1], .heads = extents[2], .head_dim = extents[3]};
}

}  // namespace quatt::tools
