#include "core/host_call.hpp"

#include <cmath>
#include <limits>
#include <utility>

#include "core/check.hpp"
#include "core/packed_header.hpp"
#include "core/tensor_view.hpp"

namespace quatt::core {
namespace {

// Element i of a vector.
template <class T>
[[nodiscard]] T at(const quatt_tensor& t, std::int64_t i) {
    return TensorView(t).at<T>(i);
}

struct Lengths {
    const char* name;
    const quatt_tensor* values;
    std::int64_t capacity;
};

struct HostCopy {
    const char* name;
    const quatt_tensor* values;
    const std::int32_t* host;
};

constexpr float kInfinity = std::numeric_limits<float>::infinity();

const quatt_tensor& cu_seqlens_k(const quatt_tensors& t) {
    return present(t.cu_seqlens_k) ? t.cu_seqlens_k : t.cu_seqlens_q;
}

// Present, and touched by the call's work.
bool has_data(const quatt_tensor& t) {
    return TensorView(t).data<void>() != nullptr;
}

}  // namespace

void check_host_copies(const quatt_tensors& t, const Shape& s, Reasons& reasons) {
    for (const auto& [name, cu, host] :
         {HostCopy{"cu_seqlens_q", &t.cu_seqlens_q, t.cu_seqlens_q_host},
          {"cu_seqlens_k", &cu_seqlens_k(t), t.cu_seqlens_k_host}}) {
        for (std::int64_t i = 0; reasons.empty() && host != nullptr && i <= s.segments; i++) {
            if (host[i] != at<std::int32_t>(*cu, i)) {
                reasons.push_back(text(name, "_host[", i, "] is ", host[i], "; it must be that of ",
                                       name, ", ", at<std::int32_t>(*cu, i)));
            }
        }
    }
}

Status HostCall::check_values() const {
    Reasons reasons;
    const quatt_tensor& cu_k = cu_seqlens_k(t_);
    for (const auto& [name, cu, capacity] :
         {Lengths{"cu_seqlens_q", &t_.cu_seqlens_q, s_.tokens_q},
          {present(t_.cu_seqlens_k) ? "cu_seqlens_k" : "cu_seqlens_q", &cu_k, s_.tokens_k}}) {
        if (has_data(*cu)) {
            for (std::string& fault :
                 check_cu_seqlens(name, TensorView(*cu).data<const std::int32_t>(),
                                  TensorView(*cu).stride(0), s_.segments, capacity)) {
                reasons.push_back(std::move(fault));
            }
        }
    }
    check_host_copies(t_, s_, reasons);
    for (std::int64_t h = 0; has_data(t_.sink) && h < s_.heads_q; h++) {
        if (const float x = at<float>(t_.sink, h); std::isnan(x) || x == kInfinity) {
            reasons.push_back(text("sink[", h, "] is ", x,
                                   "; it must be finite, or -infinity for a head without a sink"));
            break;
        }
    }
    if (reasons.empty() && present(t_.kv_lens)) {
        for (std::int64_t b = 0; b < s_.segments && reasons.empty(); b++) {
            const std::int64_t n = at<std::int32_t>(t_.kv_lens, b), most = keys_of(b);
            if (n < 0 || n > most) {
                reasons.push_back(text("kv_lens[", b, "] is ", n, "; it must be 0 to ", most));
            }
        }
    }
    for (const auto& [name, d] : {std::pair{"q_descale", &t_.q_descale},
                                  {"k_descale", &t_.k_descale},
                                  {"v_descale", &t_.v_descale}}) {
        for (std::int64_t b = 0; b < s_.segments && has_data(*d); b++) {
            for (std::int64_t h = 0; h < s_.heads_kv; h++) {
                const float x = descale(*d, b, h);
                if (!std::isfinite(x) || x <= 0) {
                    reasons.push_back(text(name, " of batch item ", b, ", KV head ", h, " is ", x,
                                           "; it must be finite and > 0"));
                    b = s_.segments;
                    break;
                }
            }
        }
    }
    return reasons.empty() ? Status() : Status(QUATT_INVALID_ARGUMENT, join(reasons));
}

HostSegment HostCall::segment(std::int64_t b) const {
    HostSegment g;
    if (!s_.packed) {
        g = {b * s_.tokens_q, s_.tokens_q, b * s_.tokens_k, s_.tokens_k};
    } else if (!present(t_.cu_seqlens_q)) {
        g = {0, s_.tokens_q, 0, s_.tokens_k};
    } else {
        const quatt_tensor &cu_q = t_.cu_seqlens_q, &cu_k = cu_seqlens_k(t_);
        g.k_begin = at<std::int32_t>(cu_k, b);
        g.k_len = at<std::int32_t>(cu_k, b + 1) - g.k_begin;
        if (has_data(cu_q)) {
            g.q_begin = at<std::int32_t>(cu_q, b);
            g.q_len = at<std::int32_t>(cu_q, b + 1) - g.q_begin;
        }
    }
    if (present(t_.kv_lens)) {
        g.k_len = at<std::int32_t>(t_.kv_lens, b);
    }
    return g;
}

recipe::HeadView HostCall::input(const quatt_tensor& x, const quatt_tensor& scale, std::int64_t b,
                                 std::int64_t token, std::int64_t tokens, std::int64_t head,
                                 std::int64_t kv_head) const {
    const HeadStrides st = strides_of_heads(x);
    const auto size = static_cast<std::int64_t>(quatt_dtype_bytes(x.dtype));
    recipe::HeadView v;
    if (has_data(x)) {
        v.data =
            static_cast<const std::byte*>(x.data) + (offset(st, b, token) + head * st.head) * size;
    }
    v.dtype = x.dtype;
    v.tokens = tokens;
    v.channels = x.extent[x.rank - 1];
    v.token_stride = st.token;
    v.channel_stride = st.channel;
    v.descale = has_data(scale) ? descale(scale, b, kv_head) : 1.0f;
    return v;
}

recipe::HeadOutput HostCall::output(std::int64_t b, std::int64_t token, std::int64_t head) const {
    const HeadStrides st = strides_of_heads(t_.out);
    recipe::HeadOutput o;
    o.out = static_cast<std::byte*>(t_.out.data) +
            (offset(st, b, token) + head * st.head) *
                static_cast<std::int64_t>(quatt_dtype_bytes(t_.out.dtype));
    o.dtype = t_.out.dtype;
    o.token_stride = st.token;
    o.channel_stride = st.channel;
    o.channels = s_.head_dim_v;
    o.lse = row_values(t_.lse, b, token, head, o.lse_stride);
    o.light_mass = row_values(t_.light_mass, b, token, head, o.light_stride);
    return o;
}

recipe::HeadProblem HostCall::head_problem(const HostSegment& g, std::int64_t b,
                                           std::int64_t head) const {
    const std::int64_t kv = head / (s_.heads_q / s_.heads_kv);
    recipe::HeadProblem h;
    h.mask = {g.q_len, g.k_len, p_.causal != 0, p_.window_left, p_.window_right};
    h.softmax_scale = p_.softmax_scale;
    h.has_sink = present(t_.sink);
    h.sink = h.has_sink ? at<float>(t_.sink, head) : 0.0f;
    h.q = input(t_.q, t_.q_descale, b, g.q_begin, g.q_len, head, kv);
    h.k = input(t_.k, t_.k_descale, b, g.k_begin, g.k_len, kv, kv);
    h.v = input(t_.v, t_.v_descale, b, g.k_begin, g.k_len, kv, kv);
    h.to = output(b, g.q_begin, head);
    return h;
}

std::span<const std::int64_t> HostCall::chosen_rows(const HostSegment& g) const {
    const std::vector<std::int64_t>& all = plan_.rows;
    if (!s_.packed) {
        return all;
    }
    const auto first = std::lower_bound(all.begin(), all.end(), g.q_begin),
               last = std::lower_bound(first, all.end(), g.q_begin + g.q_len);
    return {first, last};
}

std::int64_t HostCall::count_blocks(std::int64_t* blocks, std::int64_t block_rows) const {
    blocks[0] = 0;
    for (std::int64_t b = 0; b < s_.segments; b++) {
        const HostSegment g = segment(b);
        const std::int64_t rows =
            some_rows() ? static_cast<std::int64_t>(chosen_rows(g).size()) : g.q_len;
        blocks[b + 1] = blocks[b] + (rows + block_rows - 1) / block_rows;
    }
    return blocks[s_.segments];
}

void HostCall::quantize_head(const Operands& to, std::int64_t first, std::int64_t count,
                             std::int64_t b, std::int64_t i) const {
    const quatt_recipe& r = p_.recipe;
    const HostSegment g = segment(b);
    const std::int64_t group = s_.heads_q / s_.heads_kv;
    std::int32_t bits = 0;
    if (i < count * group) {
        const std::int64_t h = first * group + i;
        bits = quantize(r.q, input(t_.q, t_.q_descale, b, g.q_begin, g.q_len, h, h / group),
                        to.q.head(i, b, g.q_begin, g.q_len));
    } else if ((i -= count * group) < count) {
        bits = quantize(r.k, input(t_.k, t_.k_descale, b, g.k_begin, g.k_len, first + i, first + i),
                        to.k.head(i, b, g.k_begin, g.k_len));
    } else {
        i -= count;
        bits = quantize(r.v, input(t_.v, t_.v_descale, b, g.k_begin, g.k_len, first + i, first + i),
                        to.v.head(i, b, g.k_begin, g.k_len));
    }
    if (bits != 0) {
        data_bits_.fetch_or(bits, std::memory_order_relaxed);  // the pool's end orders it
    }
}

std::pair<std::int64_t, std::int64_t> HostCall::operands_of(std::int64_t count) const {
    const std::int64_t queries = count * (s_.heads_q / s_.heads_kv), all = queries + 2 * count;
    return {request_.work == Work::kQuantize ? queries : 0,
            request_.work == Work::kAttend ? queries : all};
}

void HostCall::finish() const {
    if (request_.work != Work::kQuantize && p_.zero_tail != 0 && s_.packed &&
        present(t_.cu_seqlens_q)) {
        const std::int64_t used = at<std::int32_t>(t_.cu_seqlens_q, s_.segments);
        for (std::int64_t h = 0; h < s_.heads_q; h++) {
            const recipe::HeadOutput o = output(0, used, h);
            for (std::int64_t i = 0; i < s_.tokens_q - used; i++) {
                recipe::zero_row(o, i);
            }
        }
    }
    std::int32_t bits = data_bits_.load(std::memory_order_relaxed);
    if (request_.work != Work::kRun) {
        auto& header = *reinterpret_cast<PackedHeader*>(request_.packed.data());
        if (request_.work == Work::kQuantize) {
            header.data_bits = bits;
        }
        bits |= header.data_bits;
    }
    if (present(t_.status_word)) {
        *static_cast<std::int32_t*>(t_.status_word.data) = bits;
    }
}

float* HostCall::row_values(const quatt_tensor& t, std::int64_t b, std::int64_t token,
                            std::int64_t head, std::int64_t& stride) const {
    if (!present(t)) {
        return nullptr;
    }
    const HeadStrides st = strides_of_rows(t);
    stride = st.token;
    return TensorView(t).data<float>() + offset(st, b, token) + head * st.head;
}

std::int64_t HostCall::keys_of(std::int64_t b) const {
    if (!s_.packed || !present(t_.cu_seqlens_q)) {
        return s_.tokens_k;
    }
    const quatt_tensor& cu = cu_seqlens_k(t_);
    return at<std::int32_t>(cu, b + 1) - at<std::int32_t>(cu, b);
}

float HostCall::descale(const quatt_tensor& t, std::int64_t b, std::int64_t kv_head) {
    // A scalar, [Hkv] or [B,Hkv].
    const TensorView v(t);
    return v.data<const float>()[b * v.stride_from_last(1) + kv_head * v.stride_from_last(0)];
}

}  // namespace quatt::core
