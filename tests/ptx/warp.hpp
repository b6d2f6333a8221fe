// Runs a function as one warp, or a few, and expects no report.
#pragma once

#include <gtest/gtest.h>

#include <random>

#include "cuda/ptx/ptx.hpp"
#include "simt/launch.hpp"

namespace quatt::test {

using namespace quatt::ptx;

template <class Kernel>
void run_warp(const Kernel& kernel, std::uint32_t shared_bytes = 0, simt::Dim3 threads = {32}) {
    for (std::uint64_t seed = 0; seed < 3; seed++) {
        const simt::Result result =
            simt::launch({"test", {1}, threads, shared_bytes}, {.seed = seed}, kernel);
        EXPECT_TRUE(result.ok()) << "seed " << seed << "\n" << result.summary();
    }
}

inline std::uint32_t bits(float x) {
    return formats::bit_cast<std::uint32_t>(x);
}

}  // namespace quatt::test
