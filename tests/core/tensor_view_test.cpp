// How a tensor of the caller's is read.
#include "core/tensor_view.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <limits>

namespace quatt::core {
namespace {

quatt_tensor tensor(void* data, std::int32_t rank, std::array<std::int64_t, 4> extent,
                    std::array<std::int64_t, 4> stride) {
    quatt_tensor t{};
    t.data = data;
    t.dtype = QUATT_F32;
    t.rank = rank;
    for (std::size_t i = 0; i < 4; i++) {
        t.extent[i] = extent[i];
        t.stride[i] = stride[i];
    }
    return t;
}

// Fields of an absent tensor may hold anything.
TEST(TensorView, OfAnAbsentTensorHasNoDataAndNoStrides) {
    float x = 0;
    quatt_tensor t =
        tensor(&x, std::numeric_limits<std::int32_t>::max(), {2, 2, 2, 2}, {9, 9, 9, 9});
    t.dtype = QUATT_NONE;
    const TensorView v(t);
    EXPECT_FALSE(v.present());
    EXPECT_EQ(v.data<float>(), nullptr);
    for (int axis = -1; axis < 5; axis++) {
        EXPECT_EQ(v.stride(axis), 0);
    }
    EXPECT_EQ(v.stride_from_last(0), 0);
}

TEST(TensorView, IgnoresStridesThatAreNeverUsed) {
    float x = 0;
    const quatt_tensor t = tensor(&x, 4, {3, 1, 0, 5}, {7, -8, 9, 2});
    const TensorView v(t);
    EXPECT_TRUE(v.present());
    EXPECT_EQ(v.data<float>(), &x);
    const std::array<std::int64_t, 4> used = {7, 0, 0, 2};
    for (int axis = 0; axis < 4; axis++) {
        EXPECT_EQ(v.stride(axis), used[static_cast<std::size_t>(axis)]) << axis;
        EXPECT_EQ(v.stride_from_last(3 - axis), used[static_cast<std::size_t>(axis)]) << axis;
    }
    EXPECT_EQ(v.stride(-1), 0);
    EXPECT_EQ(v.stride(4), 0);
    EXPECT_EQ(v.stride_from_last(4), 0);
}

TEST(TensorView, ReadsVectors) {
    std::array<float, 6> x = {0, 1, 2, 3, 4, 5};
    EXPECT_EQ(TensorView(tensor(x.data(), 1, {3, 0, 0, 0}, {2, 0, 0, 0})).at<float>(2), 4.0f);
    EXPECT_EQ(TensorView(tensor(&x[5], 1, {3, 0, 0, 0}, {-2, 0, 0, 0})).at<float>(2), 1.0f);
    EXPECT_EQ(TensorView(tensor(x.data(), 1, {1, 0, 0, 0}, {99, 0, 0, 0})).at<float>(0), 0.0f);
}

TEST(TensorView, StridesOfHeadsAndRowsHaveNames) {
    HeadStrides s = strides_of_heads(tensor(nullptr, 4, {2, 3, 4, 5}, {60, 20, 5, 1}));
    EXPECT_EQ(s.batch, 60);
    EXPECT_EQ(s.token, 20);
    EXPECT_EQ(s.head, 5);
    EXPECT_EQ(s.channel, 1);
    s = strides_of_heads(tensor(nullptr, 3, {3, 4, 5, 0}, {20, 5, 1, 0}));
    EXPECT_EQ(s.batch, 0);
    EXPECT_EQ(s.token, 20);
    EXPECT_EQ(s.head, 5);
    EXPECT_EQ(s.channel, 1);
    s = strides_of_rows(tensor(nullptr, 3, {2, 4, 3, 0}, {12, 3, 1, 0}));
    EXPECT_EQ(s.batch, 12);
    EXPECT_EQ(s.head, 3);
    EXPECT_EQ(s.token, 1);
    s = strides_of_rows(tensor(nullptr, 2, {4, 3, 0, 0}, {3, 1, 0, 0}));
    EXPECT_EQ(s.batch, 0);
    EXPECT_EQ(s.head, 3);
    EXPECT_EQ(s.token, 1);
}

}  // namespace
}  // namespace quatt::core
