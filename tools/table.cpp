#include "table.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <stdexcept>
#include <utility>

#include "error.hpp"

namespace quatt::tools {
namespace {

constexpr std::size_t kGap = 2;

std::string chars(double value, std::chars_format format, int precision) {
    std::array<char, 512> buffer{};  // the longest double in plain notation has 309 + decimals
    const auto result = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, format,
                                      std::clamp(precision, 0, 100));
    return {buffer.data(), result.ptr};
}

}  // namespace

Table::Table(std::vector<Column> columns) : columns_(std::move(columns)) {
    for (Column& column : columns_) {
        column.title = printable(column.title);
    }
}

void Table::add_row(std::vector<std::string> cells) {
    if (cells.size() > columns_.size()) {
        throw std::logic_error("Table: more cells than columns");
    }
    cells.resize(columns_.size());
    for (std::string& cell : cells) {
        cell = printable(cell);
    }
    rows_.push_back(std::move(cells));
}

void Table::add_rule() {
    rows_.emplace_back();
}

std::size_t Table::rows() const noexcept {
    return static_cast<std::size_t>(
        std::ranges::count_if(rows_, [](const auto& row) { return !row.empty(); }));
}

std::string Table::text() const {
    std::vector<std::size_t> widths;
    for (std::size_t c = 0; c < columns_.size(); ++c) {
        widths.push_back(columns_[c].title.size());
        for (const auto& row : rows_) {
            widths[c] = std::max(widths[c], row.empty() ? 0 : row[c].size());
        }
    }
    std::string out;
    const auto add_line = [&](const auto& cell_of) {
        std::string line;
        for (std::size_t c = 0; c < columns_.size(); ++c) {
            const std::string cell = cell_of(c);
            const std::string padding(widths[c] - cell.size(), ' ');
            line += c == 0 ? "" : std::string(kGap, ' ');
            line += columns_[c].align == Align::kRight ? padding + cell : cell + padding;
        }
        line.erase(line.find_last_not_of(' ') + 1);
        out += line + '\n';
    };
    const auto rule = [&](std::size_t c) { return std::string(widths[c], '-'); };

    add_line([&](std::size_t c) { return columns_[c].title; });
    add_line(rule);
    for (const auto& row : rows_) {
        if (row.empty()) {
            add_line(rule);
        } else {
            add_line([&](std::size_t c) { return row[c]; });
        }
    }
    return out;
}

std::string format_significant(double value, int digits) {
    if (!std::isfinite(value)) {
        return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
    }
    if (value == 0.0) {
        return "0";
    }
    digits = std::max(digits, 1);
    // Rounded first, because rounding may carry into the next decade (0.09996 to 0.100).
    std::string scientific = chars(value, std::chars_format::scientific, digits - 1);
    const int exponent = std::stoi(scientific.substr(scientific.find('e') + 1));
    if (exponent < -4 || exponent >= 6) {
        return scientific;
    }
    return chars(value, std::chars_format::fixed, std::max(digits - 1 - exponent, 0));
}

std::string format_fixed(double value, int decimals) {
    if (!std::isfinite(value)) {
        return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
    }
    return chars(value, std::chars_format::fixed, decimals);
}

}  // namespace quatt::tools
