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

struct WgmmaRecording {
    unsigned blocks = 0;
    std::vector<std::uint8_t> a, b;
    std::vector<float> c, out;
};

struct ClusterRecording {
    unsigned blocks = 0, tiles = 0;
    std::vector<std::uint8_t> in;
    std::vector<std::uint32_t> out;
};

// Run the kernels on the current GPU; false where there is none, or not one that can.
bool record_on_gpu(Recording& recording);
bool record_wgmma_on_gpu(WgmmaRecording& recording);
bool record_cluster_on_gpu(ClusterRecording& recording);

}  // namespace quatt::test
