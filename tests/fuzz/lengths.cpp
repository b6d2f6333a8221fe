// The bytes are cu_seqlens, kv_lens and their host copies, over tensors of a few tokens. Good ones
// must run and write every row, bad ones must be refused before anything is written.
#include <array>
#include <cmath>
#include <vector>

#include "bytes.hpp"

using namespace quatt::fuzz;

namespace {

constexpr std::int64_t kTokens = 12, kHeads = 2, kDim = 3;
constexpr std::int32_t kUnwritten = 0x7FC12345;  // a NaN that no kernel makes

// Mostly lengths that may be right; 255 asks for any number.
std::int32_t number(Bytes& in) {
    const auto b = in.take<std::uint8_t>();
    return b == 255 ? in.take<std::int32_t>() : b % 16;
}

// A strided vector of exact reach.
struct Vector {
    std::vector<std::int32_t> values;
    Block block;
    quatt_tensor tensor{};

    Vector(Bytes& in, std::int64_t count, bool ascending) {
        std::int32_t last = 0;
        for (std::int64_t i = 0; i < count; i++) {
            const std::int32_t n = number(in);
            // Sums of small numbers, so that most inputs rise; else taken as they are.
            values.push_back(!ascending || n < 0 || n > 15 ? n
                             : i == 0 && n < 12            ? 0
                                                           : last + n % 5);
            last = values.back() < 0 || values.back() > 1000 ? 0 : values.back();
        }
        static constexpr std::array<std::int64_t, 3> kStrides = {1, 2, -1};
        const std::int64_t stride = kStrides[static_cast<std::size_t>(in.below(3))];
        const std::int64_t reach = count > 1 ? (count - 1) * stride : 0;
        const std::int64_t elements = count == 0 ? 0 : std::abs(reach) + 1;
        block = block_of(static_cast<std::size_t>(elements) * sizeof(std::int32_t));
        auto* base = reinterpret_cast<std::int32_t*>(block.get()) + (reach < 0 ? -reach : 0);
        for (std::int64_t i = 0; i < count; i++) {
            base[i * stride] = values[static_cast<std::size_t>(i)];
        }
        tensor = quatt_tensor_contiguous(base, QUATT_I32, 1, &count);
        tensor.stride[0] = stride;
    }
};

bool good(const std::vector<std::int32_t>& cu) {
    bool ok = cu[0] == 0 && cu.back() <= kTokens;
    for (std::size_t i = 1; i < cu.size(); i++) {
        ok = ok && cu[i] >= cu[i - 1];
    }
    return ok;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    Bytes in(data, size);
    static constexpr std::array kDevices = {"cpu", "reference", "emulate"};
    const char* device_name = kDevices[static_cast<std::size_t>(in.below(3))];
    const std::int32_t recipe = in.below(quatt_recipe_count());
    const auto flags = in.take<std::uint8_t>();
    const bool packed = (flags & 1) != 0, own_k = (flags & 2) != 0, with_kv = (flags & 4) != 0,
               host_q = (flags & 8) != 0, host_k = (flags & 16) != 0, zero_tail = (flags & 32) != 0;
    const std::int64_t segments = in.below(6);

    quatt_problem p;
    quatt_problem_init(&p);
    (void)quatt_recipe_init(&p.recipe, quatt_recipe_name(recipe));
    p.softmax_scale = 0.5f;
    p.causal = (flags & 64) != 0 ? 1 : 0;
    p.threads = 1;
    p.zero_tail = packed && zero_tail ? 1 : 0;

    const std::int64_t batch = packed ? 1 : segments, rows = batch * kTokens * kHeads;
    const std::array<std::int64_t, 4> extent = {batch, kTokens, kHeads, kDim},
                                      lse_extent = {batch, kHeads, kTokens, 0};
    const int skip = packed ? 1 : 0;
    const auto floats = static_cast<std::size_t>(rows * kDim);
    const Block q = block_of(floats * sizeof(float)), out = block_of(floats * sizeof(float)),
                lse = block_of(static_cast<std::size_t>(rows) * sizeof(float));
    for (std::size_t i = 0; i < floats; i++) {
        const float x = static_cast<float>(i % 7) - 3;
        std::memcpy(q.get() + i * sizeof x, &x, sizeof x);
        std::memcpy(out.get() + i * sizeof x, &kUnwritten, sizeof x);
    }
    p.tensors.q = p.tensors.k = p.tensors.v =
        quatt_tensor_contiguous(q.get(), QUATT_F32, 4 - skip, extent.data() + skip);
    p.tensors.out = quatt_tensor_contiguous(out.get(), QUATT_F32, 4 - skip, extent.data() + skip);
    p.tensors.lse =
        quatt_tensor_contiguous(lse.get(), QUATT_F32, 3 - skip, lse_extent.data() + skip);

    const Vector cu_q(in, segments + 1, true), cu_k(in, segments + 1, true),
        kv(in, segments, false);
    std::vector<std::int32_t> copy_q = cu_q.values, copy_k = own_k ? cu_k.values : cu_q.values;
    bool expected = true, same = true;
    if (packed) {
        p.tensors.cu_seqlens_q = cu_q.tensor;
        if (own_k) {
            p.tensors.cu_seqlens_k = cu_k.tensor;
        }
        if (host_q || host_k) {
            const auto at = static_cast<std::size_t>(in.below(8));
            const std::int32_t n = number(in);
            for (std::vector<std::int32_t>* copy : {&copy_q, &copy_k}) {
                if (at < copy->size()) {
                    same = same && ((copy == &copy_q ? !host_q : !host_k) || (*copy)[at] == n);
                    (*copy)[at] = n;
                }
            }
            p.tensors.cu_seqlens_q_host = host_q ? copy_q.data() : nullptr;
            p.tensors.cu_seqlens_k_host = host_k ? copy_k.data() : nullptr;
        }
        expected = good(cu_q.values) && (!own_k || good(cu_k.values)) && same;
    }
    if (with_kv) {
        p.tensors.kv_lens = kv.tensor;
        const std::vector<std::int32_t>& cu = own_k ? cu_k.values : cu_q.values;
        for (std::size_t b = 0; expected && b < kv.values.size(); b++) {
            const std::int64_t most = packed ? cu[b + 1] - cu[b] : kTokens;
            expected = kv.values[b] >= 0 && kv.values[b] <= most;
        }
    }

    quatt_device device{};
    require(quatt_device_init(&device, device_name) == QUATT_OK, "a host device is unknown");
    const quatt_status status = quatt_attention(&p, &device);
    require(status == (expected ? QUATT_OK : QUATT_INVALID_ARGUMENT),
            expected ? "good lengths are refused" : "bad lengths are taken");
    for (std::int64_t token = 0; token < batch * kTokens; token++) {
        for (std::int64_t i = 0; i < kHeads * kDim; i++) {
            std::int32_t code = 0;
            float value = 0;
            const auto* at = out.get() + (token * kHeads * kDim + i) * 4;
            std::memcpy(&code, at, sizeof code);
            std::memcpy(&value, at, sizeof value);
            const bool row = expected && (!packed || token < cu_q.values.back());
            const bool zero = expected && !row && p.zero_tail != 0;
            require(row    ? std::isfinite(value)
                    : zero ? value == 0
                           : code == kUnwritten,
                    "a row is not as its segment says");
        }
    }
    return 0;
}
