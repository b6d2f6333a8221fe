// What the values of q, k and v are like, head by head: it explains why a recipe fails there.
#pragma once

#include <cstddef>
#include <vector>

#include "layer.hpp"

namespace quatt::tools {

// Of one head, over the tokens that belong to a segment (of k and v: that kv_lens leaves).
struct ChannelStats {
    std::vector<float> min, max, mean;  // [channel]
};

// Of q or of k or v: one entry a head of its own. Values are those that attention sees, descales
// applied. NaN where a value is.
struct OperandStats {
    std::vector<double> min, max, rms;
    // Share of the power (mean square) that is the channels' means, 0 to 1.
    std::vector<double> mean_share;
    // Largest |x| of the channel that has the largest, over that of the median channel.
    std::vector<double> outlier;
    std::vector<ChannelStats> channels;

    [[nodiscard]] std::size_t heads() const noexcept { return min.size(); }
};

struct InputStats {
    OperandStats q, k, v;
};

[[nodiscard]] InputStats input_stats(const LayerInput& layer);

}  // namespace quatt::tools
