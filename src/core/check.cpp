#include "core/check.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <utility>
#include <vector>

#include "core/describe.hpp"
#include "core/geometry.hpp"
#include "core/problem.hpp"
#include "core/struct_size.hpp"
#include "core/tensor_view.hpp"
#include "recipe/check_recipe.hpp"
#include "recipe/quantize.hpp"

namespace quatt::core {
namespace {

bool known_dtype(quatt_dtype d) {
    return d >= QUATT_F32 && d <= QUATT_I32;
}

// Far above any memory, and low enough that no product of extents in a workspace overflows 63 bits.
constexpr std::int64_t kMaxElements = std::int64_t{1} << 48, kMaxHeads = (1 << 16) - 1,
                       kMaxSegments = (std::int64_t{1} << 31) - 1;

struct HostLengths {
    const char* name;
    const std::int32_t* values;
    std::int64_t capacity;
};

class Checker {
public:
    explicit Checker(const quatt_problem& p) : p_(p), t_(p.tensors) {}

    Reasons run() {
        // One after the other: a struct that is too small ends before the fields of the next.
        if (!sound(wrong_input_size("problem", &p_, p_.struct_size, sizeof p_,
                                    "quatt_problem_init")) ||
            !sound(wrong_inner_size("problem.tensors", t_.struct_size, sizeof t_,
                                    "quatt_problem_init")) ||
            !sound(wrong_inner_size("problem.recipe", p_.recipe.struct_size, sizeof p_.recipe,
                                    "quatt_recipe_init"))) {
            return reasons_;
        }
        for (const Field& f : kFields) {
            tensor_alone(f);
        }
        extents();
        optional_tensors();
        host_lengths();
        attributes();
        for (std::string& fault : recipe::check_recipe(p_.recipe)) {
            reasons_.push_back(std::move(fault));
        }
        overlaps();
        return reasons_;
    }

private:
    template <class... Parts>
    void fail(const Parts&... parts) {
        reasons_.push_back(text(parts...));
    }

    // Takes in what is wrong, where something is. True: nothing.
    bool sound(std::string wrong) {
        if (!wrong.empty()) {
            reasons_.push_back(std::move(wrong));
        }
        return reasons_.empty();
    }

    // There, and with a rank, extents and strides that can be compared and added up. Its dtype may
    // be one that nobody knows.
    [[nodiscard]] bool has_extents(const quatt_tensor& t) const {
        return present(t) && std::find(unsound_.begin(), unsound_.end(), &t) == unsound_.end();
    }

    // All bytes that it reaches are known.
    [[nodiscard]] bool has_bytes(const quatt_tensor& t) const {
        return has_extents(t) && known_dtype(t.dtype);
    }

    // Q says what rank, batch and heads the others have.
    [[nodiscard]] bool has_rank_of_q(const quatt_tensor& t) const {
        return has_extents(t_.q) && (t_.q.rank == 3 || t_.q.rank == 4) && has_extents(t) &&
               t.rank == t_.q.rank;
    }

    // The number of segments can be told.
    [[nodiscard]] bool has_segments() const {
        const quatt_tensor& cu = t_.cu_seqlens_q;
        return has_rank_of_q(t_.q) && (t_.q.rank == 4 || !present(cu) ||
                                       (has_extents(cu) && cu.rank == 1 && cu.extent[0] >= 1));
    }

    void tensor_alone(const Field& f) {
        const quatt_tensor& t = t_.*f.member;
        if (!present(t)) {
            return;
        }
        if (!known_dtype(t.dtype)) {
            fail(f.name, ".dtype is ", t.dtype,
                 "; it must be one of QUATT_F32, BF16, F16, E4M3, I32 (1..5), or QUATT_NONE (0) if "
                 "absent");
        }
        if (!sound_extents(f.name, t)) {
            unsound_.push_back(&t);
            return;
        }
        Range range;
        if (!byte_range(t, range) || count_elements(t) > kMaxElements) {
            fail(f.name, " is ", describe(t),
                 "; its elements must be at most 2^48, and its extents times strides in bytes must "
                 "fit 63 bits");
            unsound_.push_back(&t);
            return;
        }
        if (t.data != nullptr && !is_addressable(t, range)) {
            fail(f.name, ".data is ", t.data, " with ", describe(t),
                 "; all of it must lie in the lower half of the address space");
            unsound_.push_back(&t);
            return;
        }
        const auto size = quatt_dtype_bytes(t.dtype);
        if (size != 0 && reinterpret_cast<std::uintptr_t>(t.data) % size != 0) {
            fail(f.name, ".data is ", t.data, "; it must be aligned to its element size of ", size,
                 " bytes");
        }
        if (f.output && has_elements(t) && !has_distinct_elements(t)) {
            fail(f.name, " is ", describe(t),
                 "; the strides of an output must not let two elements meet");
        }
    }

    bool sound_extents(const char* name, const quatt_tensor& t) {
        if (t.rank < 0 || t.rank > 4) {
            fail(name, ".rank is ", t.rank, "; it must be 0 to 4");
            return false;
        }
        bool sound = true;
        for (int i = 0; i < t.rank; i++) {
            if (t.extent[i] < 0) {
                fail(name, ".extent[", i, "] is ", t.extent[i], "; it must be >= 0");
                sound = false;
            }
        }
        return sound;
    }

    void dtype_in(const char* name, const quatt_tensor& t,
                  std::initializer_list<quatt_dtype> allowed) {
        std::string names;
        for (const quatt_dtype d : allowed) {
            if (t.dtype == d) {
                return;
            }
            names += (names.empty() ? "" : ", ") + std::string(quatt_dtype_name(d));
        }
        if (known_dtype(t.dtype) || !present(t)) {  // else it is reported already
            fail(name, ".dtype is ", quatt_dtype_name(t.dtype), "; it must be ",
                 allowed.size() > 1 ? "one of " : "", names);
        }
    }

    void extents() {
        const quatt_tensor &q = t_.q, &k = t_.k, &v = t_.v, &out = t_.out;
        dtype_in("q", q, {QUATT_F32, QUATT_BF16, QUATT_F16, QUATT_E4M3});
        dtype_in("k", k, {QUATT_F32, QUATT_BF16, QUATT_F16, QUATT_E4M3});
        dtype_in("v", v, {QUATT_F32, QUATT_BF16, QUATT_F16, QUATT_E4M3});
        dtype_in("out", out, {QUATT_F32, QUATT_BF16, QUATT_F16});
        if (has_extents(q) && q.rank != 3 && q.rank != 4) {
            fail("q.rank is ", q.rank,
                 "; it must be 4 (dense, [B,Sq,Hq,D]) or 3 (packed, [Tq,Hq,D])");
        }
        if (!has_rank_of_q(q)) {
            return;
        }
        for (const auto& [name, t] : {std::pair{"k", &k}, {"v", &v}, {"out", &out}}) {
            if (has_extents(*t) && t->rank != q.rank) {
                fail(name, ".rank is ", t->rank, "; it must be that of q, ", q.rank);
            }
        }
        equal_extents();
        head_dims_and_heads();
        if (const std::int64_t n = has_segments() ? shape_of(p_).segments : 0; n > kMaxSegments) {
            fail("the problem has ", n, " batch items or segments; it may have at most ",
                 kMaxSegments);
        }
    }

    void equal_extents() {
        const quatt_tensor &q = t_.q, &k = t_.k, &v = t_.v, &out = t_.out;
        const int tokens = q.rank - 3, heads = q.rank - 2, dim = q.rank - 1;
        const auto equal = [&](const char* name, const quatt_tensor& t, int axis, const char* other,
                               const quatt_tensor& like) {
            if (has_rank_of_q(t) && has_rank_of_q(like) && t.extent[axis] != like.extent[axis]) {
                fail(name, ".extent[", axis, "] is ", t.extent[axis], "; it must be that of ",
                     other, ", ", like.extent[axis]);
            }
        };
        if (q.rank == 4) {
            equal("k", k, 0, "q (the batch)", q);
            equal("v", v, 0, "q (the batch)", q);
            equal("out", out, 0, "q (the batch)", q);
        }
        equal("v", v, tokens, "k (tokens)", k);
        equal("out", out, tokens, "q (tokens)", q);
        equal("v", v, heads, "k (heads)", k);
        equal("out", out, heads, "q (heads)", q);
        equal("k", k, dim, "q (head dim)", q);
        equal("out", out, dim, "v (head dim)", v);
    }

    void head_dims_and_heads() {
        const quatt_tensor &q = t_.q, &k = t_.k, &v = t_.v;
        const int heads = q.rank - 2, dim = q.rank - 1;
        for (const auto& [name, t] : {std::pair{"q", &q}, {"v", &v}}) {
            if (has_rank_of_q(*t) && (t->extent[dim] < 1 || t->extent[dim] > recipe::kMaxHeadDim)) {
                fail("the head dim of ", name, " is ", t->extent[dim], "; it must be 1 to ",
                     recipe::kMaxHeadDim);
            }
        }
        if (has_rank_of_q(k) &&
            (k.extent[heads] < 1 || q.extent[heads] < 1 || q.extent[heads] > kMaxHeads ||
             q.extent[heads] % k.extent[heads] != 0)) {
            fail("q has ", q.extent[heads], " heads and k has ", k.extent[heads],
                 "; both must be 1 to ", kMaxHeads, " and the first a multiple of the second");
        }
    }

    void vector_of(const char* name, const quatt_tensor& t, quatt_dtype dtype, std::int64_t n,
                   const char* what) {
        if (!has_extents(t)) {
            return;
        }
        dtype_in(name, t, {dtype});
        if (t.rank != 1 || t.extent[0] != n) {
            fail(name, " is ", describe(t), "; it must be [", n, "] (", what, ")");
        }
    }

    // What depends on extents that are wrong themselves is left out.
    void optional_tensors() {
        vector_of("status_word", t_.status_word, QUATT_I32, 1, "one word");
        if (present(t_.cu_seqlens_k) && !present(t_.cu_seqlens_q)) {
            fail("cu_seqlens_k is given without cu_seqlens_q; give both, or cu_seqlens_q alone");
        }
        if (!has_rank_of_q(t_.q)) {
            return;
        }
        const Shape s = shape_of(p_);
        cu_seqlens("cu_seqlens_q", t_.cu_seqlens_q, s);
        cu_seqlens("cu_seqlens_k", t_.cu_seqlens_k, s);
        vector_of("sink", t_.sink, QUATT_F32, s.heads_q, "one logit per query head");
        row_values("lse", t_.lse, s);
        row_values("light_mass", t_.light_mass, s);
        if (has_segments()) {
            vector_of("kv_lens", t_.kv_lens, QUATT_I32, s.segments,
                      "one length per batch item or segment");
            descale("q", t_.q, t_.q_descale, s);
            descale("k", t_.k, t_.k_descale, s);
            descale("v", t_.v, t_.v_descale, s);
        }
    }

    void cu_seqlens(const char* name, const quatt_tensor& t, const Shape& s) {
        if (!has_extents(t)) {
            return;
        }
        dtype_in(name, t, {QUATT_I32});
        if (!s.packed) {
            fail(name,
                 " is given, but q has rank 4 (dense); cu_seqlens belong to packed tensors of "
                 "rank 3, kv_lens to dense ones");
        } else if (t.rank != 1 || t.extent[0] < 1) {
            fail(name, " is ", describe(t), "; it must be [segments + 1]");
        } else if (has_segments() && t.extent[0] - 1 != s.segments) {
            fail(name, " has ", t.extent[0], " entries; it must have as many as cu_seqlens_q, ",
                 s.segments + 1);
        }
    }

    void row_values(const char* name, const quatt_tensor& t, const Shape& s) {
        if (!has_extents(t)) {
            return;
        }
        dtype_in(name, t, {QUATT_F32});
        const bool ok = s.packed
                            ? t.rank == 2 && t.extent[0] == s.heads_q && t.extent[1] == s.tokens_q
                            : t.rank == 3 && t.extent[0] == s.segments &&
                                  t.extent[1] == s.heads_q && t.extent[2] == s.tokens_q;
        if (!ok) {
            fail(name, " is ", describe(t), "; it must be ",
                 s.packed
                     ? text("[Hq,Tq] = [", s.heads_q, ",", s.tokens_q, "]")
                     : text("[B,Hq,Sq] = [", s.segments, ",", s.heads_q, ",", s.tokens_q, "]"));
        }
    }

    void descale(const char* name, const quatt_tensor& x, const quatt_tensor& t, const Shape& s) {
        if (!has_extents(t)) {
            return;
        }
        if (x.dtype != QUATT_E4M3 && known_dtype(x.dtype)) {
            fail(name, "_descale is given, but ", name, " is ", quatt_dtype_name(x.dtype),
                 "; descales belong to e4m3 tensors");
        }
        dtype_in(text(name, "_descale").c_str(), t, {QUATT_F32});
        const bool ok = t.rank == 0 || !has_rank_of_q(t_.k) ||
                        (t.rank == 1 && (t.extent[0] == 1 || t.extent[0] == s.heads_kv)) ||
                        (t.rank == 2 && t.extent[0] == s.segments && t.extent[1] == s.heads_kv);
        if (!ok) {
            fail(name, "_descale is ", describe(t), "; it must be a scalar, [Hkv] = [", s.heads_kv,
                 "] or [B,Hkv] = [", s.segments, ",", s.heads_kv, "]");
        }
    }

    // They are read, so all that says how many there are must be sound.
    void host_lengths() {
        if (!reasons_.empty()) {
            return;
        }
        const Shape s = shape_of(p_);
        for (const auto& [name, values, capacity] :
             {HostLengths{"cu_seqlens_q", t_.cu_seqlens_q_host, s.tokens_q},
              {"cu_seqlens_k", t_.cu_seqlens_k_host, s.tokens_k}}) {
            if (values == nullptr) {
                continue;
            }
            if (!s.packed || !present(t_.cu_seqlens_q)) {
                fail(name, "_host is given without cu_seqlens_q");
                continue;
            }
            for (std::string& fault : check_cu_seqlens(name, values, 1, s.segments, capacity)) {
                reasons_.push_back(std::move(fault));
            }
        }
    }

    void attributes() {
        if (std::memchr(p_.recipe.name, 0, sizeof p_.recipe.name) == nullptr) {
            fail("recipe.name has no final 0 in its ", sizeof p_.recipe.name, " bytes");
        }
        if (!std::isfinite(p_.softmax_scale) || p_.softmax_scale <= 0) {
            fail("softmax_scale is ", p_.softmax_scale,
                 "; it must be finite and > 0 (1/sqrt(head dim) is usual)");
        }
        flag("causal", p_.causal);
        flag("zero_tail", p_.zero_tail);
        flag("allow_fallback", p_.allow_fallback);
        flag("strict", p_.strict);
        for (const auto& [name, value] :
             {std::pair{"window_left", p_.window_left}, {"window_right", p_.window_right}}) {
            if (value < -1) {
                fail(name, " is ", value, "; it must be >= 0, or -1 for open");
            }
        }
        if (p_.key_tile != 0 && p_.key_tile != 64 && p_.key_tile != 96 && p_.key_tile != 128 &&
            p_.key_tile != 192 && p_.key_tile != 256) {
            fail("key_tile is ", p_.key_tile,
                 "; it must be 64, 96, 128, 192, 256, or 0 for the kernel's own");
        }
        if (p_.splits < 0) {
            fail("splits is ", p_.splits, "; it must be >= 1, or 0 for a choice by key length");
        }
        if (p_.workspace_target_bytes < 0) {
            fail("workspace_target_bytes is ", p_.workspace_target_bytes,
                 "; it must be above 0, or 0 for 512 MiB");
        }
        if (p_.threads < 0 || p_.threads > 4096) {
            fail("threads is ", p_.threads, "; it must be 1 to 4096, or 0 for all cores");
        }
        if (p_.row_count < 0 || (p_.row_count > 0 && p_.rows == nullptr)) {
            fail("row_count is ", p_.row_count, " and rows is ", static_cast<const void*>(p_.rows),
                 "; give row_count >= 0 ascending rows");
        } else if (has_rank_of_q(t_.q)) {
            const std::int64_t limit = t_.q.extent[t_.q.rank - 3];
            for (std::int64_t i = 0; i < p_.row_count; i++) {
                if (p_.rows[i] < 0 || p_.rows[i] >= limit ||
                    (i > 0 && p_.rows[i] <= p_.rows[i - 1])) {
                    fail("rows[", i, "] is ", p_.rows[i], "; rows must ascend and be 0 to ",
                         limit - 1);
                    break;
                }
            }
        }
        if (p_.policy_count < 0 || (p_.policy_count > 0 && p_.policy == nullptr)) {
            fail("policy_count is ", p_.policy_count, " and policy is ",
                 static_cast<const void*>(p_.policy), "; give policy_count >= 0 ranges");
        }
    }

    void flag(const char* name, std::int32_t value) {
        if (value != 0 && value != 1) {
            fail(name, " is ", value, "; it must be 0 or 1");
        }
    }

    void overlaps() {
        for (const Field& o : kFields) {
            if (!o.output || !has_bytes(t_.*o.member)) {
                continue;
            }
            for (const Field& i : kFields) {
                const bool other_output = i.output && o.member != i.member;
                if ((!i.output || other_output) && has_bytes(t_.*i.member) &&
                    may_overlap(t_.*o.member, t_.*i.member)) {
                    fail(o.name, " overlaps ", i.name,
                         " in memory; outputs must not share bytes with any other tensor");
                }
            }
        }
    }

    const quatt_problem& p_;
    const quatt_tensors& t_;
    Reasons reasons_;
    std::vector<const quatt_tensor*> unsound_;
};

bool same_layout(const quatt_tensor& a, const quatt_tensor& b) {
    bool same = a.dtype == b.dtype;
    if (present(a) && same) {
        same = a.rank == b.rank;
        for (int i = 0; same && i < a.rank; i++) {
            same = a.extent[i] == b.extent[i] && TensorView(a).stride(i) == TensorView(b).stride(i);
        }
    }
    return same;
}

}  // namespace

Reasons check_cu_seqlens(const char* name, const std::int32_t* values, std::int64_t stride,
                         std::int64_t segments, std::int64_t capacity) {
    if (values[0] != 0) {
        return {text(name, "[0] is ", values[0], "; it must be 0")};
    }
    for (std::int64_t i = 1; i <= segments; i++) {
        const std::int32_t before = values[(i - 1) * stride], now = values[i * stride];
        if (now < before) {
            return {text(name, "[", i, "] is ", now, "; it must be >= ", name, "[", i - 1,
                         "] = ", before)};
        }
        if (now > capacity) {
            return {text(name, "[", i, "] is ", now, "; it must be <= ", capacity,
                         ", the tokens of the tensor")};
        }
    }
    return {};
}

bool has_known_fields(const quatt_problem& p) {
    return p.struct_size >= sizeof p && p.struct_size <= kMaxStructBytes &&
           p.tensors.struct_size == sizeof p.tensors && p.recipe.struct_size == sizeof p.recipe;
}

Reasons check_problem(const quatt_problem& p) {
    return Checker(p).run();
}

Reasons check_call(const quatt_problem& planned, const quatt_tensors& given, Work work) {
    if (std::string wrong = wrong_input_size("tensors", &given, given.struct_size, sizeof given,
                                             "quatt_problem_init");
        !wrong.empty()) {
        return {std::move(wrong)};
    }
    Reasons reasons;
    for (const Field& f : kFields) {
        const quatt_tensor &a = planned.tensors.*f.member, &b = given.*f.member;
        if (!same_layout(a, b)) {
            reasons.push_back(text(f.name, " is ", describe(b), "; the plan was made ",
                                   present(a) ? "for " + describe(a) : "without it"));
        } else if (present(b) && b.data == nullptr && has_elements(b) &&
                   is_touched(f, given, work)) {
            reasons.push_back(text(f.name, ".data is null; it must point to ", describe(b)));
        }
    }
    if (given.counters != nullptr && planned.tensors.counters == nullptr) {
        reasons.push_back("counters is given; the plan was made without it");
    }
    if (!reasons.empty()) {
        return reasons;
    }
    // Alignment, overlap and host lengths depend on this call's pointers.
    quatt_problem now = planned;
    now.tensors = touched(given, work);
    return check_problem(now);
}

Reasons check_overlap(const quatt_tensors& given, const Memory& memory) {
    Reasons reasons;
    const auto at = reinterpret_cast<std::intptr_t>(memory.data);
    const auto end = at + static_cast<std::intptr_t>(memory.bytes);
    for (const Field& f : kFields) {
        const quatt_tensor& t = given.*f.member;
        Range range;
        if (!present(t) || t.data == nullptr || !has_elements(t) || !byte_range(t, range)) {
            continue;
        }
        const auto base = reinterpret_cast<std::intptr_t>(t.data);
        if (base + range.lo < end && at < base + range.hi) {
            reasons.push_back(text(memory.name, " overlaps ", f.name,
                                   " in memory; it must not share bytes with any tensor"));
        }
    }
    return reasons;
}

}  // namespace quatt::core
