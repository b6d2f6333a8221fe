// Aligned text tables, and numbers as they stand in them.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace quatt::tools {

enum class Align { kLeft, kRight };

// Columns are as wide as their widest cell, two spaces apart; lines have no spaces at their end.
// All cells pass through printable(), so the text is ASCII.
class Table {
public:
    struct Column {
        std::string title;
        Align align = Align::kRight;
    };

    explicit Table(std::vector<Column> columns);

    // Missing cells at the end are empty; too many are a std::logic_error.
    void add_row(std::vector<std::string> cells);
    // A line between the rows.
    void add_rule();

    [[nodiscard]] std::size_t rows() const noexcept;
    // Titles, a rule, the rows; each line with its newline.
    [[nodiscard]] std::string text() const;

private:
    std::vector<Column> columns_;
    std::vector<std::vector<std::string>> rows_;  // an empty one is a rule
};

// With `digits` significant digits, in plain notation from 1e-4 to 1e6 and with an exponent
// outside; "nan", "inf", "-inf", "0". Never depends on the locale.
[[nodiscard]] std::string format_significant(double value, int digits);
// With `decimals` digits behind the point.
[[nodiscard]] std::string format_fixed(double value, int decimals);

}  // namespace quatt::tools
