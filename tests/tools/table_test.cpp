#include "table.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <stdexcept>

#include "error.hpp"

namespace quatt::tools {
namespace {

TEST(Table, AlignsColumns) {
    Table table({{"recipe", Align::kLeft}, {"rel-L2"}, {"note", Align::kLeft}});
    table.add_row({"fp8", "0.0533", "ok"});
    table.add_rule();
    table.add_row({"nvfp4_fp8", "12.1"});
    EXPECT_EQ(table.text(),
              "recipe     rel-L2  note\n"
              "---------  ------  ----\n"
              "fp8        0.0533  ok\n"
              "---------  ------  ----\n"
              "nvfp4_fp8    12.1\n");
    EXPECT_EQ(table.rows(), 2u);
}

TEST(Table, PrintsTitlesWithoutRows) {
    EXPECT_EQ(Table({{"a"}, {"bc"}}).text(), "a  bc\n-  --\n");
    EXPECT_EQ(Table({}).text(), "\n\n");
}

TEST(Table, EscapesWhatATerminalWouldObey) {
    Table table({{"layer", Align::kLeft}, {"n"}});
    table.add_row({"\x1b[31mred\n", "1"});
    EXPECT_EQ(table.text(),
              "layer            n\n"
              "---------------  -\n"
              "\\x1b[31mred\\x0a  1\n");
}

TEST(Table, RefusesTooManyCells) {
    Table table({{"a"}});
    EXPECT_THROW(table.add_row({"1", "2"}), std::logic_error);
}

TEST(Numbers, SignificantDigits) {
    const auto text = [](double value) { return format_significant(value, 3); };
    EXPECT_EQ(text(0.0), "0");
    EXPECT_EQ(text(-0.0), "0");
    EXPECT_EQ(text(0.05334), "0.0533");
    EXPECT_EQ(text(0.09996), "0.100");
    EXPECT_EQ(text(1.0), "1.00");
    EXPECT_EQ(text(-2.345), "-2.35");
    EXPECT_EQ(text(999.6), "1000");
    EXPECT_EQ(text(12345.0), "12345");
    EXPECT_EQ(text(1e-4), "0.000100");
    EXPECT_EQ(text(9.994e-5), "9.99e-05");
    EXPECT_EQ(text(1234567.0), "1.23e+06");
    EXPECT_EQ(text(std::numeric_limits<double>::denorm_min()), "4.94e-324");
    EXPECT_EQ(text(std::numeric_limits<double>::max()), "1.80e+308");
    EXPECT_EQ(text(std::numeric_limits<double>::quiet_NaN()), "nan");
    EXPECT_EQ(text(-std::numeric_limits<double>::infinity()), "-inf");
    EXPECT_EQ(format_significant(12.0, 1), "12");
}

TEST(Numbers, FixedDecimals) {
    EXPECT_EQ(format_fixed(1.0 / 3.0, 4), "0.3333");
    EXPECT_EQ(format_fixed(-0.5, 0), "-0");
    EXPECT_EQ(format_fixed(99.95, 1), "100.0");
    EXPECT_EQ(format_fixed(std::numeric_limits<double>::max(), 2).size(), 312u);
    EXPECT_EQ(format_fixed(std::numeric_limits<double>::infinity(), 2), "inf");
}

TEST(Printable, CutsAndEscapes) {
    EXPECT_EQ(printable("plain text"), "plain text");
    EXPECT_EQ(printable(std::string("a\0\x7F\xFF", 4)), "a\\x00\\x7f\\xff");
    EXPECT_EQ(printable("abcdef", 3), "abc...");
    EXPECT_EQ(in_quotes("q"), "'q'");
}

}  // namespace
}  // namespace quatt::tools
