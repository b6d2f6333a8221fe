// A problem's tensors by name, and its extents. Nothing here knows a kernel or a device.
#pragma once
#include <quatt/quatt.h>

#include <array>
#include <cstdint>

namespace quatt::core {

// What a call does: all of it, or one half of it, with K and V packed in memory of the caller in
// between.
enum class Work { kRun, kQuantize, kAttend };

struct Field {
    const char* name;
    quatt_tensor quatt_tensors::*member;
    bool output;
    // Which halves touch its data. Quantising also reads cu_seqlens_q where it holds for the keys.
    bool quantize, attend;
};

inline constexpr std::array kFields = {
    Field{"q", &quatt_tensors::q, false, false, true},
    Field{"k", &quatt_tensors::k, false, true, false},
    Field{"v", &quatt_tensors::v, false, true, false},
    Field{"out", &quatt_tensors::out, true, false, true},
    Field{"lse", &quatt_tensors::lse, true, false, true},
    Field{"cu_seqlens_q", &quatt_tensors::cu_seqlens_q, false, false, true},
    Field{"cu_seqlens_k", &quatt_tensors::cu_seqlens_k, false, true, true},
    Field{"kv_lens", &quatt_tensors::kv_lens, false, true, true},
    Field{"q_descale", &quatt_tensors::q_descale, false, false, true},
    Field{"k_descale", &quatt_tensors::k_descale, false, true, false},
    Field{"v_descale", &quatt_tensors::v_descale, false, true, false},
    Field{"sink", &quatt_tensors::sink, false, false, true},
    Field{"block_table", &quatt_tensors::block_table, false, false, true},
    Field{"status_word", &quatt_tensors::status_word, true, true, true},
    Field{"light_mass", &quatt_tensors::light_mass, true, false, true},
};

// Extents of a well-formed problem.
struct Shape {
    bool packed = false;
    std::int64_t segments = 0;  // batch items, or segments of the packed stream
    std::int64_t tokens_q = 0;  // Sq, or the capacity Tq of the packed stream
    std::int64_t tokens_k = 0;
    std::int64_t heads_q = 0, heads_kv = 0, head_dim = 0, head_dim_v = 0;

    // Rows of Q, or tokens of K and V, over all segments: an upper bound where lengths are device
    // data.
    [[nodiscard]] std::int64_t total_q() const { return packed ? tokens_q : segments * tokens_q; }
    [[nodiscard]] std::int64_t total_k() const { return packed ? tokens_k : segments * tokens_k; }
    [[nodiscard]] std::int64_t max_k() const { return tokens_k; }
};

[[nodiscard]] Shape shape_of(const quatt_problem& p);

[[nodiscard]] bool is_touched(const Field& f, const quatt_tensors& t, Work work);
// Without the data that is not touched: it may be freed, or something else by now.
[[nodiscard]] quatt_tensors touched(const quatt_tensors& t, Work work);

}  // namespace quatt::core
