// What both sides of test_native.cpp read and write; no view in sight.
#pragma once

#include <cstdint>
#include <vector>

namespace quatt::test {

struct Recording {
    unsigned warps = 0;
    std::vector<std::uint8_t> bytes;
    std::vector<float> floats;
    std::vector<std::uint32_t> exact;
    std::vector<float> sums, approximate;
};

// Runs the kernel on the current GPU; false where there is none.
bool record_on_gpu(Recording& recording);

}  // namespace quatt::test
