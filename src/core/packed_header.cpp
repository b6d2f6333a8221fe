#include "core/packed_header.hpp"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "core/device.hpp"

namespace quatt::core {
namespace {

constexpr std::array<char, 8> kMagic = {'q', 'u', 'a', 't', 't', 'K', 'V', 0};
constexpr std::uint32_t kVersion = 1;

template <std::size_t N>
std::array<char, N> name(std::string_view s) {
    std::array<char, N> to{};
    s.copy(to.data(), N - 1);
    return to;
}

template <std::size_t N>
std::string name(const std::array<char, N>& s) {
    return {s.begin(), std::find(s.begin(), s.end(), '\0')};
}

}  // namespace

void write_header(PackedHeader& header, const Plan& plan) {
    const Shape& s = plan.shape;
    header = {.magic = kMagic,
              .version = kVersion,
              .device = plan.backend->device,
              .kernel = name<32>(plan.kernel->name),
              .recipe = name<24>(plan.problem.recipe.name),
              .is_stream = s.packed ? 1 : 0,
              .data_bits = header.data_bits,
              .segments = s.segments,
              .tokens = s.tokens_k,
              .heads = s.heads_kv,
              .head_dim = s.head_dim,
              .head_dim_v = s.head_dim_v,
              .later = {}};
}

Reasons check_header(const PackedHeader& header, const Plan& plan) {
    if (header.magic != kMagic) {
        return {"packed does not begin as quatt_quantize leaves it; it must hold what that wrote"};
    }
    if (header.version != kVersion) {
        return {text("packed has version ", header.version, "; this library reads ", kVersion)};
    }
    PackedHeader planned{};
    write_header(planned, plan);
    Reasons reasons;
    const auto equal = [&](const char* what, const auto& is, const auto& must_be) {
        if (is != must_be) {
            reasons.push_back(
                text("packed was made with ", what, " ", is, "; the plan has ", must_be));
        }
    };
    const auto device = [](quatt_backend b) {
        return b >= QUATT_BACKEND_CPU && b <= QUATT_BACKEND_EMU ? std::string(backend_name(b))
                                                                : text("number ", b);
    };
    const auto layout = [](std::int32_t is_stream) {
        return std::string(is_stream != 0 ? "[Tk,Hkv,D]" : "[B,Sk,Hkv,D]");
    };
    equal("device", device(header.device), device(planned.device));
    equal("kernel", name(header.kernel), name(planned.kernel));
    equal("recipe", name(header.recipe), name(planned.recipe));
    equal("k as", layout(header.is_stream), layout(planned.is_stream));
    equal("segments", header.segments, planned.segments);
    equal("tokens of k", header.tokens, planned.tokens);
    equal("heads of k", header.heads, planned.heads);
    equal("head dim of k", header.head_dim, planned.head_dim);
    equal("head dim of v", header.head_dim_v, planned.head_dim_v);
    return reasons;
}

}  // namespace quatt::core
