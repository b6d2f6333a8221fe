#include "core/portable.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

#include "core/device.hpp"
#include "recipe/attend.hpp"
#include "recipe/quantize.hpp"
#include "recipe/recipes.hpp"

namespace quatt::core {
namespace {

using recipe::CanonicalHead;
using recipe::CanonicalShape;
using recipe::HeadProblem;
using recipe::HeadView;
using recipe::kRowBlock;

bool present(const quatt_tensor& t) {
    return t.dtype != QUATT_NONE;
}

template <class T>
[[nodiscard]] const T* values(const quatt_tensor& t) {
    return static_cast<const T*>(t.data);
}

// Elements of dtype T at index i of a vector, stride of an extent of 1 ignored.
template <class T>
[[nodiscard]] T at(const quatt_tensor& t, std::int64_t i) {
    return values<T>(t)[t.extent[0] > 1 ? i * t.stride[0] : 0];
}

// Hands out aligned pieces of a block; with a null block it only counts.
class Carver {
public:
    explicit Carver(std::byte* base) : base_(base) {}
    template <class T>
    T* take(std::int64_t count) {
        std::byte* p = base_ == nullptr ? nullptr : base_ + used_;
        used_ += (static_cast<std::size_t>(count) * sizeof(T) + kWorkspaceAlign - 1) /
                 kWorkspaceAlign * kWorkspaceAlign;
        return reinterpret_cast<T*>(p);
    }
    [[nodiscard]] std::size_t used() const { return used_; }

private:
    std::byte* base_;
    std::size_t used_ = 0;
};

// Canonical arrays of all heads of an operand. Rows of a segment that starts at token b, the s-th,
// begin at b / group + s: lengths need not be known to size the arrays, and no two segments meet,
// since ceil(len / group) <= floor((b + len) / group) - floor(b / group) + 1.
class Arena {
public:
    Arena(const quatt_operand_recipe& r, bool mean_term, std::int64_t heads, std::int64_t tokens,
          std::int64_t segments, std::int64_t channels, Carver& carver)
        : r_(r),
          mean_term_(mean_term),
          tokens_(tokens),
          channels_(channels),
          segments_(segments),
          unit_(recipe::canonical_shape(r, mean_term, 1, channels)) {
        codes_ = carver.take<std::byte>(heads * tokens * channels * unit_.code_bytes);
        scales_ = carver.take<float>(heads * scale_rows(tokens, segments) * unit_.channel_groups);
        mean_ = carver.take<float>(heads * mean_rows(tokens, segments) * channels);
        norm_ = carver.take<float>(heads * norm_rows(tokens, segments));
        if (mean_term) {
            mean_codes_ = carver.take<std::byte>(heads * mean_rows(tokens, segments) * channels);
            mean_scales_ =
                carver.take<float>(heads * mean_rows(tokens, segments) * unit_.channel_groups);
        }
    }

    [[nodiscard]] CanonicalHead head(std::int64_t head, std::int64_t segment, std::int64_t begin,
                                     std::int64_t length) const {
        const std::int64_t scale_row =
            head * scale_rows(tokens_, segments_) + scale_rows(begin, segment);
        const std::int64_t mean_row =
            head * mean_rows(tokens_, segments_) + mean_rows(begin, segment);
        CanonicalHead h;
        h.codes = codes_ + (head * tokens_ + begin) * channels_ * unit_.code_bytes;
        h.scales = scales_ + scale_row * unit_.channel_groups;
        h.mean = mean_ + mean_row * channels_;
        h.norm = norm_ + head * norm_rows(tokens_, segments_) + norm_rows(begin, segment);
        if (mean_term_) {
            h.mean_codes = mean_codes_ + mean_row * channels_;
            h.mean_scales = mean_scales_ + mean_row * unit_.channel_groups;
        }
        h.tokens = length;
        h.channels = channels_;
        h.shape = recipe::canonical_shape(r_, mean_term_, length, channels_);
        return h;
    }

private:
    // Rows before token `begin` of segment `segment`; with the totals: rows in all.
    [[nodiscard]] std::int64_t scale_rows(std::int64_t begin, std::int64_t segment) const {
        if (r_.scale_format == QUATT_SCALE_NONE) {
            return 0;
        }
        return r_.key_groups != 0     ? 2 * (begin / 32 + segment)
               : r_.group_tokens == 0 ? segment
                                      : begin / r_.group_tokens + segment;
    }
    [[nodiscard]] std::int64_t block_rows(bool per_block, std::int64_t begin,
                                          std::int64_t segment) const {
        return per_block ? begin / r_.block_tokens + segment : segment;
    }
    [[nodiscard]] std::int64_t mean_rows(std::int64_t begin, std::int64_t segment) const {
        return r_.center == QUATT_CENTER_NONE
                   ? 0
                   : block_rows(r_.center == QUATT_CENTER_BLOCK, begin, segment);
    }
    [[nodiscard]] std::int64_t norm_rows(std::int64_t begin, std::int64_t segment) const {
        return r_.normalize == QUATT_NORMALIZE_NONE
                   ? 0
                   : block_rows(r_.normalize == QUATT_NORMALIZE_BLOCK, begin, segment);
    }

    const quatt_operand_recipe& r_;
    bool mean_term_;
    std::int64_t tokens_, channels_, segments_;
    CanonicalShape unit_;
    std::byte* codes_ = nullptr;
    float* scales_ = nullptr;
    float* mean_ = nullptr;
    float* norm_ = nullptr;
    std::byte* mean_codes_ = nullptr;
    float* mean_scales_ = nullptr;
};

// The workspace of a host kernel. The same code counts its bytes (base null) and lays it out.
struct Layout {
    std::size_t scratch_bytes;  // of one worker
    Carver carver;
    std::int64_t* blocks;      // [segments + 1]: row blocks before each segment, one query head
    quatt_counters* counters;  // [threads]
    std::byte* scratch;        // [threads, scratch_bytes]

    Layout(const quatt_problem&, const Shape& s, const Choice& c, bool quantised, std::byte* base)
        : scratch_bytes((quantised
                             ? recipe::emulate_scratch_bytes(s.head_dim, s.head_dim_v, c.key_tile)
                             : recipe::reference_scratch_bytes(s.head_dim, s.head_dim_v)) +
                        kWorkspaceAlign - 1),
          carver(base),
          blocks(carver.take<std::int64_t>(s.segments + 1)),
          counters(carver.take<quatt_counters>(c.threads)),
          scratch(nullptr) {
        scratch_bytes = scratch_bytes / kWorkspaceAlign * kWorkspaceAlign;
        scratch = carver.take<std::byte>(c.threads * static_cast<std::int64_t>(scratch_bytes));
    }
};

struct Operands {
    Arena q, k, v;
    Operands(const quatt_recipe& r, const Shape& s, Carver& carver)
        : q(r.q, r.q_mean_term != 0, s.heads_q, s.total_q(), s.segments, s.head_dim, carver),
          k(r.k, false, s.heads_kv, s.total_k(), s.segments, s.head_dim, carver),
          v(r.v, false, s.heads_kv, s.total_k(), s.segments, s.head_dim_v, carver) {}
};

struct Segment {
    std::int64_t q_begin = 0, q_len = 0, k_begin = 0,
                 k_len = 0;  // tokens; of the stream, or of the batch laid end to end
};

struct Lengths {
    const char* name;
    const quatt_tensor* values;
    std::int64_t capacity;
};

// One call on host memory.
class Call {
public:
    Call(const Plan& plan, const quatt_tensors& t)
        : plan_(plan), p_(plan.problem), s_(plan.shape), t_(t) {}

    // Lengths and scales are data: they are refused here, before anything is written.
    [[nodiscard]] Status check_values() const {
        Reasons reasons;
        const quatt_tensor& cu_k = present(t_.cu_seqlens_k) ? t_.cu_seqlens_k : t_.cu_seqlens_q;
        for (const auto& [name, cu, capacity] :
             {Lengths{"cu_seqlens_q", &t_.cu_seqlens_q, s_.tokens_q},
              {present(t_.cu_seqlens_k) ? "cu_seqlens_k" : "cu_seqlens_q", &cu_k, s_.tokens_k}}) {
            if (present(*cu)) {
                for (std::string& fault : check_cu_seqlens(name, values<std::int32_t>(*cu),
                                                           cu->extent[0] > 1 ? cu->stride[0] : 0,
                                                           s_.segments, capacity)) {
                    reasons.push_back(std::move(fault));
                }
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
            for (std::int64_t b = 0; b < s_.segments && present(*d); b++) {
                for (std::int64_t h = 0; h < s_.heads_kv; h++) {
                    const float x = descale(*d, b, h);
                    if (!std::isfinite(x) || x <= 0) {
                        reasons.push_back(text(name, " of batch item ", b, ", KV head ", h, " is ",
                                               x, "; it must be finite and > 0"));
                        b = s_.segments;
                        break;
                    }
                }
            }
        }
        return reasons.empty() ? Status() : Status(QUATT_INVALID_ARGUMENT, join(reasons));
    }

    [[nodiscard]] Segment segment(std::int64_t b) const {
        Segment g;
        if (!s_.packed) {
            g = {b * s_.tokens_q, s_.tokens_q, b * s_.tokens_k, s_.tokens_k};
        } else if (!present(t_.cu_seqlens_q)) {
            g = {0, s_.tokens_q, 0, s_.tokens_k};
        } else {
            const quatt_tensor& cu_k = present(t_.cu_seqlens_k) ? t_.cu_seqlens_k : t_.cu_seqlens_q;
            const std::int64_t q = at<std::int32_t>(t_.cu_seqlens_q, b),
                               k = at<std::int32_t>(cu_k, b);
            g = {q, at<std::int32_t>(t_.cu_seqlens_q, b + 1) - q, k,
                 at<std::int32_t>(cu_k, b + 1) - k};
        }
        if (present(t_.kv_lens)) {
            g.k_len = at<std::int32_t>(t_.kv_lens, b);
        }
        return g;
    }

    [[nodiscard]] HeadView input(const quatt_tensor& x, const quatt_tensor& scale, std::int64_t b,
                                 std::int64_t token, std::int64_t tokens, std::int64_t head,
                                 std::int64_t kv_head) const {
        const Strides st = strides(x);
        const auto size = static_cast<std::int64_t>(quatt_dtype_bytes(x.dtype));
        HeadView v;
        v.data =
            static_cast<const std::byte*>(x.data) + (offset(st, b, token) + head * st.head) * size;
        v.dtype = x.dtype;
        v.tokens = tokens;
        v.channels = x.extent[x.rank - 1];
        v.token_stride = st.token;
        v.channel_stride = st.channel;
        v.descale = present(scale) ? descale(scale, b, kv_head) : 1.0f;
        return v;
    }

    [[nodiscard]] recipe::HeadOutput output(std::int64_t b, std::int64_t token,
                                            std::int64_t head) const {
        const Strides st = strides(t_.out);
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

    [[nodiscard]] HeadProblem head_problem(const Segment& g, std::int64_t b,
                                           std::int64_t head) const {
        const std::int64_t kv = head / (s_.heads_q / s_.heads_kv);
        HeadProblem h;
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

    // Rows of segment g to compute: all, or those of `rows` that lie in it (row - begin of the
    // returned span's owner).
    [[nodiscard]] std::span<const std::int64_t> chosen_rows(const Segment& g) const {
        const std::vector<std::int64_t>& all = plan_.rows;
        if (!s_.packed) {
            return all;
        }
        const auto first = std::lower_bound(all.begin(), all.end(), g.q_begin),
                   last = std::lower_bound(first, all.end(), g.q_begin + g.q_len);
        return {first, last};
    }
    [[nodiscard]] bool some_rows() const { return p_.row_count > 0; }

    // Fills blocks[0..segments] and returns the number of tasks: (segment, row block, head).
    [[nodiscard]] std::int64_t count_blocks(std::int64_t* blocks) const {
        blocks[0] = 0;
        for (std::int64_t b = 0; b < s_.segments; b++) {
            const Segment g = segment(b);
            const std::int64_t rows =
                some_rows() ? static_cast<std::int64_t>(chosen_rows(g).size()) : g.q_len;
            blocks[b + 1] = blocks[b] + (rows + kRowBlock - 1) / kRowBlock;
        }
        return blocks[s_.segments] * s_.heads_q;
    }

    // Calls f(head problem, rows, segment index, segment, head) for task i.
    template <class F>
    void with_task(const std::int64_t* blocks, std::int64_t i, F&& f) const {
        const std::int64_t block = i / s_.heads_q, head = i % s_.heads_q;
        const std::int64_t b =
            std::upper_bound(blocks, blocks + s_.segments + 1, block) - blocks - 1;
        const Segment g = segment(b);
        const std::int64_t first = (block - blocks[b]) * kRowBlock;
        std::array<std::int64_t, kRowBlock> rows;
        std::int64_t n = 0;
        if (some_rows()) {
            const auto chosen = chosen_rows(g).subspan(static_cast<std::size_t>(first));
            for (; n < std::min<std::int64_t>(kRowBlock, static_cast<std::int64_t>(chosen.size()));
                 n++) {
                rows[static_cast<std::size_t>(n)] =
                    chosen[static_cast<std::size_t>(n)] - (s_.packed ? g.q_begin : 0);
            }
        } else {
            for (; n < std::min(kRowBlock, g.q_len - first); n++) {
                rows[static_cast<std::size_t>(n)] = first + n;
            }
        }
        f(head_problem(g, b, head),
          std::span<const std::int64_t>(rows.data(), static_cast<std::size_t>(n)), b, g, head);
    }

    void finish() const {
        if (p_.zero_tail != 0 && s_.packed && present(t_.cu_seqlens_q)) {
            const std::int64_t used = at<std::int32_t>(t_.cu_seqlens_q, s_.segments);
            for (std::int64_t h = 0; h < s_.heads_q; h++) {
                const recipe::HeadOutput o = output(0, used, h);
                for (std::int64_t i = 0; i < s_.tokens_q - used; i++) {
                    recipe::zero_row(o, i);
                }
            }
        }
        if (present(t_.status_word)) {
            *static_cast<std::int32_t*>(t_.status_word.data) = 0;
        }
    }

private:
    struct Strides {
        std::int64_t batch = 0, token = 0, head = 0, channel = 0;
    };
    [[nodiscard]] static Strides strides(const quatt_tensor& t) {
        const auto of = [&](int i) -> std::int64_t {
            return i >= 0 && t.extent[i] > 1 ? t.stride[i] : 0;
        };
        return {of(t.rank - 4), of(t.rank - 3), of(t.rank - 2), of(t.rank - 1)};
    }
    // `token` counts over the whole batch for dense tensors.
    [[nodiscard]] std::int64_t offset(const Strides& st, std::int64_t b, std::int64_t token) const {
        return s_.packed ? token * st.token : b * st.batch;
    }
    [[nodiscard]] float* row_values(const quatt_tensor& t, std::int64_t b, std::int64_t token,
                                    std::int64_t head, std::int64_t& stride) const {
        if (!present(t)) {
            return nullptr;
        }
        const auto of = [&](int i) -> std::int64_t { return t.extent[i] > 1 ? t.stride[i] : 0; };
        stride = of(t.rank - 1);
        auto* base = static_cast<float*>(t.data);
        return s_.packed ? base + head * of(0) + token * of(1) : base + b * of(0) + head * of(1);
    }
    [[nodiscard]] std::int64_t keys_of(std::int64_t b) const {
        if (!s_.packed || !present(t_.cu_seqlens_q)) {
            return s_.tokens_k;
        }
        const quatt_tensor& cu = present(t_.cu_seqlens_k) ? t_.cu_seqlens_k : t_.cu_seqlens_q;
        return at<std::int32_t>(cu, b + 1) - at<std::int32_t>(cu, b);
    }
    [[nodiscard]] static float descale(const quatt_tensor& t, std::int64_t b,
                                       std::int64_t kv_head) {
        const auto of = [&](int i) -> std::int64_t { return t.extent[i] > 1 ? t.stride[i] : 0; };
        const std::int64_t i = t.rank == 2   ? b * of(0) + kv_head * of(1)
                               : t.rank == 1 ? kv_head * of(0)
                                             : 0;
        return values<float>(t)[i];
    }

    const Plan& plan_;
    const quatt_problem& p_;
    const Shape& s_;
    const quatt_tensors& t_;
};

void refuse_emulate(const quatt_problem& p, const quatt_device&, Reasons& reasons) {
    refuse_all_but(p, {.rows = true, .counters = true}, reasons);
}

void refuse_reference(const quatt_problem& p, const quatt_device&, Reasons& reasons) {
    refuse_all_but(p, {.rows = true, .light_mass = true}, reasons);
}

Choice choose_emulate(const quatt_problem& p, const Shape& s, const quatt_device&) {
    return choose_portable(p, s, true);
}
Choice choose_reference(const quatt_problem& p, const Shape& s, const quatt_device&) {
    return choose_portable(p, s, false);
}

Status run_emulate_kernel(const Plan& plan, const quatt_tensors& t, std::span<std::byte> w, void*) {
    return run_emulated(plan, t, w);
}
Status run_reference_kernel(const Plan& plan, const quatt_tensors& t, std::span<std::byte> w,
                            void*) {
    return run_reference(plan, t, w);
}

constexpr const char* kDtypes = "q, k, v: f32 bf16 f16 e4m3 in any mix; out: bf16 f16 f32";

}  // namespace

void refuse_all_but(const quatt_problem& p, const TestFields& takes, Reasons& reasons) {
    refuse_room(p, reasons);
    if (p.row_count != 0 && !takes.rows) {
        reasons.push_back(text("rows has ", p.row_count,
                               " entries; only reference and emulate compute chosen rows"));
    }
    if (p.tensors.light_mass.dtype != QUATT_NONE && !takes.light_mass) {
        reasons.push_back("light_mass is given; only reference computes it");
    }
    if (p.tensors.counters != nullptr && !takes.counters) {
        reasons.push_back("counters is given; only emulate counts");
    }
}

Choice choose_portable(const quatt_problem& p, const Shape& s, bool quantised) {
    Choice c;
    c.key_tile = p.key_tile != 0 ? p.key_tile : 64;
    c.accumulator = quantised ? p.recipe.accumulator : QUATT_ACCUMULATOR_FP32;
    c.splits = p.splits != 0 ? p.splits : 1;
    c.threads = p.threads != 0 ? p.threads : cpu_count();
    Layout layout(p, s, c, quantised, nullptr);
    if (quantised) {
        Operands operands(p.recipe, s, layout.carver);
    }
    c.workspace_bytes = layout.carver.used();
    return c;
}

Status run_emulated(const Plan& plan, const quatt_tensors& t, std::span<std::byte> workspace) {
    const Call call(plan, t);
    if (Status status = call.check_values(); !status.ok()) {
        return status;
    }
    const quatt_recipe& r = plan.problem.recipe;
    const Shape& s = plan.shape;
    Layout layout(plan.problem, s, plan.choice, true, workspace.data());
    const Operands operands(r, s, layout.carver);

    // Every head of every operand: [segment][q heads, k heads, v heads]
    const std::int64_t heads = s.heads_q + 2 * s.heads_kv;
    plan.pool->run(s.segments * heads, [&](int, std::int64_t i) noexcept {
        const std::int64_t b = i / heads;
        std::int64_t h = i % heads;
        const Segment g = call.segment(b);
        const std::int64_t group = s.heads_q / s.heads_kv;
        if (h < s.heads_q) {
            quantize(r.q, call.input(t.q, t.q_descale, b, g.q_begin, g.q_len, h, h / group),
                     operands.q.head(h, b, g.q_begin, g.q_len));
        } else if ((h -= s.heads_q) < s.heads_kv) {
            quantize(r.k, call.input(t.k, t.k_descale, b, g.k_begin, g.k_len, h, h),
                     operands.k.head(h, b, g.k_begin, g.k_len));
        } else {
            h -= s.heads_kv;
            quantize(r.v, call.input(t.v, t.v_descale, b, g.k_begin, g.k_len, h, h),
                     operands.v.head(h, b, g.k_begin, g.k_len));
        }
    });

    std::fill(layout.counters, layout.counters + plan.choice.threads, quatt_counters{});
    const std::int64_t tasks = call.count_blocks(layout.blocks);
    const recipe::EmulateOptions options{&r, plan.choice.key_tile, plan.choice.splits};
    plan.pool->run(tasks, [&](int worker, std::int64_t i) noexcept {
        call.with_task(
            layout.blocks, i,
            [&](const HeadProblem& h, std::span<const std::int64_t> rows, std::int64_t b,
                const Segment& g, std::int64_t head) {
                const std::int64_t kv = head / (s.heads_q / s.heads_kv);
                const std::span<std::byte> scratch(
                    layout.scratch + static_cast<std::size_t>(worker) * layout.scratch_bytes,
                    layout.scratch_bytes);
                emulate_rows(h, options, operands.q.head(head, b, g.q_begin, g.q_len),
                             operands.k.head(kv, b, g.k_begin, g.k_len),
                             operands.v.head(kv, b, g.k_begin, g.k_len), rows, scratch,
                             layout.counters[worker]);
            });
    });
    if (t.counters != nullptr) {
        for (std::int32_t i = 0; i < plan.choice.threads; i++) {
            t.counters->warp_tiles += layout.counters[i].warp_tiles;
            t.counters->overflow_warp_tiles += layout.counters[i].overflow_warp_tiles;
            t.counters->look_warp_tiles += layout.counters[i].look_warp_tiles;
            t.counters->falls += layout.counters[i].falls;
        }
    }
    call.finish();
    return {};
}

Status run_reference(const Plan& plan, const quatt_tensors& t, std::span<std::byte> workspace) {
    const Call call(plan, t);
    if (Status status = call.check_values(); !status.ok()) {
        return status;
    }
    const Layout layout(plan.problem, plan.shape, plan.choice, false, workspace.data());
    const std::int64_t tasks = call.count_blocks(layout.blocks);
    plan.pool->run(tasks, [&](int worker, std::int64_t i) noexcept {
        call.with_task(layout.blocks, i,
                       [&](const HeadProblem& h, std::span<const std::int64_t> rows, std::int64_t,
                           const Segment&, std::int64_t) {
                           reference_rows(h, rows,
                                          {layout.scratch + static_cast<std::size_t>(worker) *
                                                                layout.scratch_bytes,
                                           layout.scratch_bytes});
                       });
    });
    call.finish();
    return {};
}

const Kernel kEmulateKernel = {"emulate",
                               QUATT_BACKEND_EMULATE,
                               true,
                               false,
                               "",
                               "any",
                               "1..256",
                               kDtypes,
                               "dense packed causal window gqa lse sink descale kv_lens splits "
                               "key_tile zero_tail rows counters",
                               refuse_emulate,
                               choose_emulate,
                               run_emulate_kernel};

const Kernel kReferenceKernel = {
    "reference",
    QUATT_BACKEND_REFERENCE,
    true,
    false,
    "",
    "exact (any recipe is ignored)",
    "1..256",
    kDtypes,
    "dense packed causal window gqa lse sink descale kv_lens zero_tail rows light_mass",
    refuse_reference,
    choose_reference,
    run_reference_kernel};

}  // namespace quatt::core
