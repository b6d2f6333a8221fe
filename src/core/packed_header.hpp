// What packed K and V in memory of the caller begin with, on host devices. A GPU leaves these bytes
// as they are: the host could not read them without waiting for it.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>

#include "core/kernel.hpp"
#include "core/text.hpp"

namespace quatt::core {

inline constexpr std::size_t kPackedHeaderBytes = 256;

// What the layout behind it depends on.
struct PackedHeader {
    std::array<char, 8> magic;
    std::uint32_t version;
    quatt_backend device;
    std::array<char, 32> kernel;
    std::array<char, 24> recipe;  // by name: kernels that pack take named recipes as they are
    std::int32_t is_stream;       // k is [Tk, Hkv, D], else [B, Sk, Hkv, D]
    std::int32_t data_bits;       // QUATT_DATA_* of K and V, by the kernel
    std::int64_t segments, tokens, heads, head_dim, head_dim_v;
    std::array<std::byte, 136> later;
};
static_assert(sizeof(PackedHeader) == kPackedHeaderBytes);

// What lies behind the header; null in a run.
[[nodiscard]] inline std::byte* packed_body(const Request& r) {
    return r.packed.empty() ? nullptr : r.packed.data() + kPackedHeaderBytes;
}

// All but data_bits.
void write_header(PackedHeader& header, const Plan& plan);
// By what name it differs from the plan's; empty: the plan may read what lies behind it.
[[nodiscard]] Reasons check_header(const PackedHeader& header, const Plan& plan);

}  // namespace quatt::core
