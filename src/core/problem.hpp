// A problem's tensors by name, and its extents. Nothing here knows a kernel or a device.
#pragma once
#include <quatt/quatt.h>

#include <array>
#include <cstdint>

namespace quatt::core {

struct Field {
    const char* name;
    quatt_tensor quatt_tensors::*member;
    bool output;
};

inline constexpr std::array kFields = {
    Field{"q", &quatt_tensors::q, false},
    Field{"k", &quatt_tensors::k, false},
    Field{"v", &quatt_tensors::v, false},
    Field{"out", &quatt_tensors::out, true},
    Field{"lse", &quatt_tensors::lse, true},
    Field{"cu_seqlens_q", &quatt_tensors::cu_seqlens_q, false},
    Field{"cu_seqlens_k", &quatt_tensors::cu_seqlens_k, false},
    Field{"kv_lens", &quatt_tensors::kv_lens, false},
    Field{"q_descale", &quatt_tensors::q_descale, false},
    Field{"k_descale", &quatt_tensors::k_descale, false},
    Field{"v_descale", &quatt_tensors::v_descale, false},
    Field{"sink", &quatt_tensors::sink, false},
    Field{"block_table", &quatt_tensors::block_table, false},
    Field{"status_word", &quatt_tensors::status_word, true},
    Field{"light_mass", &quatt_tensors::light_mass, true},
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

}  // namespace quatt::core
