#include "elements.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace quatt::tools {
namespace {

TEST(Elements, OfEachType) {
    const std::vector<float> values = {0.0f, -1.5f, 448.0f, 0.25f};
    for (const Dtype dtype : {Dtype::kF32, Dtype::kF16, Dtype::kBf16, Dtype::kF8E4M3}) {
        std::vector<std::byte> bytes = from_floats(dtype, values);
        ASSERT_EQ(bytes.size() * 8, values.size() * static_cast<std::size_t>(dtype_bits(dtype)));
        EXPECT_EQ(to_floats(dtype, bytes), values);
        // A file does not promise alignment.
        bytes.insert(bytes.begin(), std::byte{0});
        EXPECT_EQ(to_floats(dtype, std::span(bytes).subspan(1)), values);
        EXPECT_EQ(file_dtype(library_dtype(dtype).value()), dtype);
    }
}

// The library's own tests are of every code; here, that the right type is asked for.
TEST(Elements, RoundAsTheirTypeDoes) {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    const std::vector<float> values = {1.00390625f, 65520.0f, 1e9f, nan};
    const auto through = [&](Dtype dtype) { return to_floats(dtype, from_floats(dtype, values)); };
    const float inf = std::numeric_limits<float>::infinity();
    const auto expect = [](const std::vector<float>& got, const std::vector<float>& wanted) {
        for (std::size_t i = 0; i < wanted.size(); ++i) {
            EXPECT_EQ(got[i], wanted[i]);
        }
        EXPECT_TRUE(std::isnan(got.back()));
    };
    expect(through(Dtype::kBf16), {1.0f, 65536.0f, 998244352.0f});
    expect(through(Dtype::kF16), {1.00390625f, inf, inf});
    expect(through(Dtype::kF8E4M3), {1.0f, 448.0f, 448.0f});
    expect(through(Dtype::kF32), {1.00390625f, 65520.0f, 1e9f});
}

TEST(Elements, OtherTypesAreRefused) {
    const std::vector<std::byte> bytes(8);
    EXPECT_THROW((void)to_floats(Dtype::kI32, bytes), Error);
    EXPECT_THROW((void)from_floats(Dtype::kF4, std::vector<float>(2)), Error);
    // Nothing to convert is no reason to accept it.
    EXPECT_THROW((void)to_floats(Dtype::kI64, {}), Error);
}

}  // namespace
}  // namespace quatt::tools
