#include "input_stats.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

namespace quatt::tools {
namespace {

struct Tokens {
    std::int64_t item = 0;  // of a batch; 0 where packed
    std::int64_t descale_item = 0;
    std::int64_t begin = 0;
    std::int64_t count = 0;
};

// A scalar, [heads] or [items, heads]; 1 where there is none.
float descale_of(const quatt_tensor& t, std::int64_t item, std::int64_t head) {
    if (t.dtype == QUATT_NONE) {
        return 1.0F;
    }
    std::int64_t offset = 0;
    for (int axis = 0; axis < t.rank; ++axis) {
        const std::int64_t index = axis == t.rank - 1 ? head : item;
        offset += std::min(index, t.extent[axis] - 1) * t.stride[axis];
    }
    return static_cast<const float*>(t.data)[offset];
}

// Running sums of all channels of all heads, [head x channel].
class Sums {
public:
    explicit Sums(std::size_t size)
        : min_(size, std::numeric_limits<float>::infinity()),
          max_(size, -std::numeric_limits<float>::infinity()),
          sum_(size),
          square_(size),
          nan_(size) {}

    void add(std::span<const float> row) {
        for (std::size_t i = 0; i < row.size(); ++i) {
            const float x = row[i];
            min_[i] = std::min(min_[i], x);
            max_[i] = std::max(max_[i], x);
            sum_[i] += x;
            square_[i] += static_cast<double>(x) * x;
            nan_[i] |= static_cast<unsigned char>(std::isnan(x));
        }
        ++count_;
    }

    // Appends the head of channels [begin, begin + dim).
    void finish(std::size_t begin, std::size_t dim, OperandStats& to) const {
        const double count = std::max(count_, 1.0);
        ChannelStats head;
        double power = 0.0;
        double mean_power = 0.0;
        std::vector<double> largest;
        for (std::size_t i = begin; i < begin + dim; ++i) {
            const bool nan = nan_[i] != 0;
            const float none = nan ? std::numeric_limits<float>::quiet_NaN() : 0.0F;
            const bool known = !nan && count_ > 0;
            head.min.push_back(known ? min_[i] : none);
            head.max.push_back(known ? max_[i] : none);
            const double mean = sum_[i] / count;
            head.mean.push_back(static_cast<float>(mean));
            power += square_[i] / count;
            mean_power += mean * mean;
            largest.push_back(
                std::max(std::fabs(double{head.min.back()}), std::fabs(double{head.max.back()})));
        }
        to.rms.push_back(std::sqrt(power / static_cast<double>(dim)));
        // NOTE: rounding can leave the sum of squares a little below the square of the sum.
        to.mean_share.push_back(power == 0.0 ? 0.0 : std::min(mean_power / power, 1.0));
        if (std::ranges::any_of(largest, [](double x) { return std::isnan(x); })) {
            const double nan = std::numeric_limits<double>::quiet_NaN();
            to.min.push_back(nan);
            to.max.push_back(nan);
            to.mean_share.back() = nan;
            to.outlier.push_back(nan);
        } else {
            to.min.push_back(*std::ranges::min_element(head.min));
            to.max.push_back(*std::ranges::max_element(head.max));
            std::ranges::sort(largest);
            const double median = largest[(largest.size() - 1) / 2];
            to.outlier.push_back(largest.back() == median ? 1.0 : largest.back() / median);
        }
        to.channels.push_back(std::move(head));
    }

private:
    std::vector<float> min_, max_;
    std::vector<double> sum_, square_;
    std::vector<unsigned char> nan_;
    double count_ = 0.0;
};

OperandStats operand_stats(const quatt_tensor& t, const quatt_tensor& descale,
                           std::int64_t heads_kv, const std::vector<Tokens>& ranges) {
    const std::int64_t heads = t.extent[t.rank - 2];
    const std::int64_t dim = t.extent[t.rank - 1];
    const std::int64_t group = std::max<std::int64_t>(heads / heads_kv, 1);
    const auto element_bytes = static_cast<std::int64_t>(quatt_dtype_bytes(t.dtype));
    std::vector<float> row(static_cast<std::size_t>(heads * dim));
    Sums sums(row.size());
    for (const Tokens& range : ranges) {
        for (std::int64_t token = range.begin; token < range.begin + range.count; ++token) {
            for (std::int64_t head = 0; head < heads; ++head) {
                const std::int64_t at = (t.rank == 4 ? range.item * t.stride[0] : 0) +
                                        token * t.stride[t.rank - 3] + head * t.stride[t.rank - 2];
                float* const to = row.data() + head * dim;
                if (quatt_convert(to, QUATT_F32,
                                  static_cast<const std::byte*>(t.data) + at * element_bytes,
                                  t.dtype, dim) != QUATT_OK) {
                    throw Error(quatt_last_error());
                }
                if (descale.dtype != QUATT_NONE) {
                    const float factor = descale_of(descale, range.descale_item, head / group);
                    for (std::int64_t c = 0; c < dim; ++c) {
                        to[c] *= factor;
                    }
                }
            }
            sums.add(row);
        }
    }
    OperandStats stats;
    for (std::int64_t head = 0; head < heads; ++head) {
        sums.finish(static_cast<std::size_t>(head * dim), static_cast<std::size_t>(dim), stats);
    }
    return stats;
}

}  // namespace

InputStats input_stats(const LayerInput& layer) {
    std::vector<Tokens> queries;
    std::vector<Tokens> keys;
    // Descales are of a batch item; of a packed stream's segments, where there is one a segment.
    std::int64_t index = 0;
    for (const Segment& s : layer.segments()) {
        queries.push_back(
            {.item = s.item, .descale_item = index, .begin = s.q_begin, .count = s.q_tokens});
        keys.push_back(
            {.item = s.item, .descale_item = index, .begin = s.k_begin, .count = s.k_tokens});
        ++index;
    }
    const Tensors& t = layer.tensors();
    return {.q = operand_stats(t.q, t.q_descale, layer.heads_kv(), queries),
            .k = operand_stats(t.k, t.k_descale, layer.heads_kv(), keys),
            .v = operand_stats(t.v, t.v_descale, layer.heads_kv(), keys)};
}

}  // namespace quatt::tools
