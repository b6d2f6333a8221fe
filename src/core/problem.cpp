#include "core/problem.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <string_view>

#include "core/struct_size.hpp"
#include "recipe/check_recipe.hpp"
#include "recipe/quantize.hpp"

namespace quatt::core {
namespace {

struct Field {
    const char* name;
    quatt_tensor quatt_tensors::*member;
    bool output;
};

constexpr std::array kFields = {
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

bool present(const quatt_tensor& t) {
    return t.dtype != QUATT_NONE;
}

bool known_dtype(quatt_dtype d) {
    return d >= QUATT_F32 && d <= QUATT_I32;
}

// An extent of 1 or less never uses its stride.
std::int64_t used_stride(const quatt_tensor& t, int i) {
    return t.extent[i] > 1 ? t.stride[i] : 0;
}

bool has_elements(const quatt_tensor& t) {
    for (int i = 0; i < t.rank; i++) {
        if (t.extent[i] == 0) {
            return false;
        }
    }
    return true;
}

// Byte range [lo, hi) relative to data. False: does not fit 64 bits.
struct Range {
    std::int64_t lo = 0, hi = 0;
};
bool byte_range(const quatt_tensor& t, Range& range) {
    const auto size = static_cast<std::int64_t>(quatt_dtype_bytes(t.dtype));
    std::int64_t lo = 0, hi = 0, elements = 1;
    for (int i = 0; i < t.rank; i++) {
        std::int64_t reach = 0;
        if (__builtin_mul_overflow(elements, std::max<std::int64_t>(t.extent[i], 1), &elements) ||
            __builtin_mul_overflow(std::max<std::int64_t>(t.extent[i], 1) - 1, used_stride(t, i),
                                   &reach) ||
            __builtin_mul_overflow(reach, size, &reach) ||
            __builtin_add_overflow(reach < 0 ? lo : hi, reach, reach < 0 ? &lo : &hi)) {
            return false;
        }
    }
    std::int64_t bytes = 0;
    range = {lo, hi};
    return !__builtin_mul_overflow(elements, size, &bytes) &&
           !__builtin_add_overflow(hi, size, &range.hi) &&
           !__builtin_sub_overflow(range.hi, lo, &bytes);  // from end to end, too
}

// Memory of user space: addresses then add and compare as signed numbers.
bool addressable(const quatt_tensor& t, const Range& range) {
    const auto at = reinterpret_cast<std::intptr_t>(t.data);
    std::intptr_t end = 0;
    return at >= 0 && at + range.lo >= 0 && !__builtin_add_overflow(at, range.hi, &end);
}

// Of a tensor whose byte_range is sound.
std::int64_t elements(const quatt_tensor& t) {
    std::int64_t n = 1;
    for (int i = 0; i < t.rank; i++) {
        n *= std::max<std::int64_t>(t.extent[i], 1);
    }
    return n;
}

// Dimensions with more than one element, largest |stride| first.
struct Axes {
    int count = 0;
    std::array<std::int64_t, 4> extent{}, stride{};
};
Axes axes_of(const quatt_tensor& t) {
    Axes a;
    for (int i = 0; i < t.rank; i++) {
        if (t.extent[i] > 1) {
            int at = a.count++;
            const std::int64_t s = std::abs(t.stride[i]);
            for (; at > 0 && a.stride[static_cast<std::size_t>(at - 1)] < s; at--) {
                a.stride[static_cast<std::size_t>(at)] = a.stride[static_cast<std::size_t>(at - 1)];
                a.extent[static_cast<std::size_t>(at)] = a.extent[static_cast<std::size_t>(at - 1)];
            }
            a.stride[static_cast<std::size_t>(at)] = s;
            a.extent[static_cast<std::size_t>(at)] = t.extent[i];
        }
    }
    return a;
}

// Each stride steps over all that the smaller ones reach: no two indices meet. (Stranger layouts
// without overlap exist; they are refused too.)
bool nested(const Axes& a) {
    std::int64_t reach = 0;
    for (int i = a.count - 1; i >= 0; i--) {
        const auto u = static_cast<std::size_t>(i);
        if (a.stride[u] <= reach) {
            return false;
        }
        std::int64_t more = 0;  // axes of two tensors together may reach further than either
        if (__builtin_mul_overflow(a.extent[u] - 1, a.stride[u], &more) ||
            __builtin_add_overflow(reach, more, &reach)) {
            return false;
        }
    }
    return true;
}

// Is `distance` = sum of d_i * stride_i with lo_i <= d_i <= hi_i? Strides are nested, so two
// candidates an axis are enough.
bool reachable(std::int64_t distance, const Axes& a, const std::array<std::int64_t, 4>& lo,
               const std::array<std::int64_t, 4>& hi, int axis) {
    if (axis == a.count) {
        return distance == 0;
    }
    const auto u = static_cast<std::size_t>(axis);
    std::int64_t d = distance / a.stride[u] - (distance % a.stride[u] < 0 ? 1 : 0);
    for (int candidate = 0; candidate < 2; candidate++, d++) {
        if (d >= lo[u] && d <= hi[u] &&
            reachable(distance - d * a.stride[u], a, lo, hi, axis + 1)) {
            return true;
        }
    }
    return false;
}

// May an element of `out` share a byte with an element of `in`? Exact for views of one buffer with
// the same strides (a fused QKV buffer), by byte ranges for all others.
bool may_overlap(const quatt_tensor& out, const quatt_tensor& in) {
    if (out.data == nullptr || in.data == nullptr || !has_elements(out) || !has_elements(in)) {
        return false;
    }
    Range a, b;
    if (!byte_range(out, a) || !byte_range(in, b)) {
        return false;  // reported elsewhere
    }
    const auto at = reinterpret_cast<std::intptr_t>(out.data),
               bt = reinterpret_cast<std::intptr_t>(in.data);
    if (at + a.hi <= bt + b.lo || bt + b.hi <= at + a.lo) {
        return false;
    }
    if (out.rank != in.rank || quatt_dtype_bytes(out.dtype) != quatt_dtype_bytes(in.dtype)) {
        return true;
    }
    // Axes on which either has more than one element; both must step alike there.
    quatt_tensor joint = out;
    for (int i = 0; i < out.rank; i++) {
        const bool uses_out = out.extent[i] > 1, uses_in = in.extent[i] > 1;
        if (uses_out && uses_in && out.stride[i] != in.stride[i]) {
            return true;
        }
        joint.stride[i] = uses_out ? out.stride[i] : in.stride[i];
        joint.extent[i] = std::max(out.extent[i], in.extent[i]);
        if (joint.extent[i] > 1 && joint.stride[i] <= 0) {
            return true;
        }
    }
    const Axes axes = axes_of(joint);
    const auto size = static_cast<std::int64_t>(quatt_dtype_bytes(out.dtype));
    if (!nested(axes) || (at - bt) % size != 0) {
        return true;
    }
    std::array<std::int64_t, 4> lo{}, hi{};
    for (int axis = 0; axis < axes.count; axis++) {
        const auto u = static_cast<std::size_t>(axis);
        for (int i = 0; i < out.rank; i++) {
            if (joint.extent[i] > 1 &&
                joint.stride[i] == axes.stride[u]) {  // nested strides differ from each other
                lo[u] = -(out.extent[i] - 1);
                hi[u] = in.extent[i] - 1;
            }
        }
    }
    // out at index i equals in at index j where (at - bt) / size = sum (j - i) * stride.
    return reachable((at - bt) / size, axes, lo, hi, 0);
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
        if (!reasons_.empty()) {
            return reasons_;  // extents cannot be compared before each tensor is sound
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

    void tensor_alone(const Field& f) {
        const quatt_tensor& t = t_.*f.member;
        if (!present(t)) {
            return;
        }
        if (!known_dtype(t.dtype)) {
            fail(f.name, ".dtype is ", t.dtype,
                 "; it must be one of QUATT_F32, BF16, F16, E4M3, I32 (1..5), or QUATT_NONE (0) if "
                 "absent");
            return;
        }
        if (t.rank < 0 || t.rank > 4) {
            fail(f.name, ".rank is ", t.rank, "; it must be 0 to 4");
            return;
        }
        for (int i = 0; i < t.rank; i++) {
            if (t.extent[i] < 0) {
                fail(f.name, ".extent[", i, "] is ", t.extent[i], "; it must be >= 0");
                return;
            }
        }
        Range range;
        if (!byte_range(t, range) || elements(t) > kMaxElements) {
            fail(f.name, " is ", describe(t),
                 "; its elements must be at most 2^48, and its extents times strides in bytes must "
                 "fit 63 bits");
            return;
        }
        const auto size = quatt_dtype_bytes(t.dtype);
        if (t.data != nullptr && !addressable(t, range)) {
            fail(f.name, ".data is ", t.data, " with ", describe(t),
                 "; all of it must lie in the lower half of the address space");
            return;
        }
        if (reinterpret_cast<std::uintptr_t>(t.data) % size != 0) {
            fail(f.name, ".data is ", t.data, "; it must be aligned to its element size of ", size,
                 " bytes");
        }
        if (f.output && has_elements(t) && !nested(axes_of(t))) {
            fail(f.name, " is ", describe(t),
                 "; the strides of an output must not let two elements meet");
        }
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
        fail(name, ".dtype is ", quatt_dtype_name(t.dtype), "; it must be ",
             allowed.size() > 1 ? "one of " : "", names);
    }

    void extents() {
        const quatt_tensor &q = t_.q, &k = t_.k, &v = t_.v, &out = t_.out;
        dtype_in("q", q, {QUATT_F32, QUATT_BF16, QUATT_F16, QUATT_E4M3});
        dtype_in("k", k, {QUATT_F32, QUATT_BF16, QUATT_F16, QUATT_E4M3});
        dtype_in("v", v, {QUATT_F32, QUATT_BF16, QUATT_F16, QUATT_E4M3});
        dtype_in("out", out, {QUATT_F32, QUATT_BF16, QUATT_F16});
        if (q.rank != 3 && q.rank != 4) {
            fail("q.rank is ", q.rank,
                 "; it must be 4 (dense, [B,Sq,Hq,D]) or 3 (packed, [Tq,Hq,D])");
            return;
        }
        for (const auto& [name, t] : {std::pair{"k", &k}, {"v", &v}, {"out", &out}}) {
            if (t->rank != q.rank) {
                fail(name, ".rank is ", t->rank, "; it must be that of q, ", q.rank);
            }
        }
        if (!reasons_.empty()) {
            return;
        }
        const int tokens = q.rank - 3, heads = q.rank - 2, dim = q.rank - 1;
        const auto equal = [&](const char* name, const quatt_tensor& t, int axis, const char* other,
                               std::int64_t want) {
            if (t.extent[axis] != want) {
                fail(name, ".extent[", axis, "] is ", t.extent[axis], "; it must be that of ",
                     other, ", ", want);
            }
        };
        if (q.rank == 4) {
            equal("k", k, 0, "q (the batch)", q.extent[0]);
            equal("v", v, 0, "q (the batch)", q.extent[0]);
            equal("out", out, 0, "q (the batch)", q.extent[0]);
        }
        equal("v", v, tokens, "k (tokens)", k.extent[tokens]);
        equal("out", out, tokens, "q (tokens)", q.extent[tokens]);
        equal("v", v, heads, "k (heads)", k.extent[heads]);
        equal("out", out, heads, "q (heads)", q.extent[heads]);
        equal("k", k, dim, "q (head dim)", q.extent[dim]);
        equal("out", out, dim, "v (head dim)", v.extent[dim]);
        for (const auto& [name, t] : {std::pair{"q", &q}, {"v", &v}}) {
            if (t->extent[dim] < 1 || t->extent[dim] > recipe::kMaxHeadDim) {
                fail("the head dim of ", name, " is ", t->extent[dim], "; it must be 1 to ",
                     recipe::kMaxHeadDim);
            }
        }
        if (k.extent[heads] < 1 || q.extent[heads] < 1 || q.extent[heads] > kMaxHeads ||
            q.extent[heads] % k.extent[heads] != 0) {
            fail("q has ", q.extent[heads], " heads and k has ", k.extent[heads],
                 "; both must be 1 to ", kMaxHeads, " and the first a multiple of the second");
        }
        const std::int64_t segments = q.rank == 4 ? q.extent[0]
                                      : present(t_.cu_seqlens_q) && t_.cu_seqlens_q.rank == 1
                                          ? t_.cu_seqlens_q.extent[0] - 1
                                          : 1;
        if (segments > kMaxSegments) {
            fail("the problem has ", segments, " batch items or segments; it may have at most ",
                 kMaxSegments);
        }
    }

    void vector_of(const char* name, const quatt_tensor& t, quatt_dtype dtype, std::int64_t n,
                   const char* what) {
        if (!present(t)) {
            return;
        }
        dtype_in(name, t, {dtype});
        if (t.rank != 1 || t.extent[0] != n) {
            fail(name, " is ", describe(t), "; it must be [", n, "] (", what, ")");
        }
    }

    void optional_tensors() {
        if (!reasons_.empty()) {
            return;
        }
        const Shape s = shape_of(p_);
        for (const auto& [name, t] :
             {std::pair{"cu_seqlens_q", &t_.cu_seqlens_q}, {"cu_seqlens_k", &t_.cu_seqlens_k}}) {
            if (!present(*t)) {
                continue;
            }
            dtype_in(name, *t, {QUATT_I32});
            if (!s.packed) {
                fail(name,
                     " is given, but q has rank 4 (dense); cu_seqlens belong to packed tensors of "
                     "rank 3, kv_lens to dense ones");
            } else if (t->rank != 1 || t->extent[0] < 1) {
                fail(name, " is ", describe(*t), "; it must be [segments + 1]");
            } else if (t->extent[0] - 1 != s.segments) {
                fail(name, " has ", t->extent[0],
                     " entries; it must have as many as cu_seqlens_q, ", s.segments + 1);
            }
        }
        if (present(t_.cu_seqlens_k) && !present(t_.cu_seqlens_q)) {
            fail("cu_seqlens_k is given without cu_seqlens_q; give both, or cu_seqlens_q alone");
        }
        vector_of("kv_lens", t_.kv_lens, QUATT_I32, s.segments,
                  "one length per batch item or segment");
        vector_of("sink", t_.sink, QUATT_F32, s.heads_q, "one logit per query head");
        vector_of("status_word", t_.status_word, QUATT_I32, 1, "one word");
        row_values("lse", t_.lse, s);
        row_values("light_mass", t_.light_mass, s);
        descale("q", t_.q, t_.q_descale, s);
        descale("k", t_.k, t_.k_descale, s);
        descale("v", t_.v, t_.v_descale, s);
    }

    void row_values(const char* name, const quatt_tensor& t, const Shape& s) {
        if (!present(t)) {
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
        if (!present(t)) {
            return;
        }
        if (x.dtype != QUATT_E4M3) {
            fail(name, "_descale is given, but ", name, " is ", quatt_dtype_name(x.dtype),
                 "; descales belong to e4m3 tensors");
        }
        if (t.dtype != QUATT_F32) {
            fail(name, "_descale.dtype is ", quatt_dtype_name(t.dtype), "; it must be f32");
        }
        const bool ok = t.rank == 0 ||
                        (t.rank == 1 && (t.extent[0] == 1 || t.extent[0] == s.heads_kv)) ||
                        (t.rank == 2 && t.extent[0] == s.segments && t.extent[1] == s.heads_kv);
        if (!ok) {
            fail(name, "_descale is ", describe(t), "; it must be a scalar, [Hkv] = [", s.heads_kv,
                 "] or [B,Hkv] = [", s.segments, ",", s.heads_kv, "]");
        }
    }

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
        if (p_.threads < 0 || p_.threads > 4096) {
            fail("threads is ", p_.threads, "; it must be 1 to 4096, or 0 for all cores");
        }
        if (p_.row_count < 0 || (p_.row_count > 0 && p_.rows == nullptr)) {
            fail("row_count is ", p_.row_count, " and rows is ", static_cast<const void*>(p_.rows),
                 "; give row_count >= 0 ascending rows");
        } else if (reasons_.empty()) {
            const std::int64_t limit = shape_of(p_).tokens_q;
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
            if (!o.output) {
                continue;
            }
            for (const Field& i : kFields) {
                const bool other_output = i.output && o.member != i.member;
                if ((!i.output || other_output) && present(t_.*o.member) && present(t_.*i.member) &&
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
};

bool same_layout(const quatt_tensor& a, const quatt_tensor& b) {
    bool same = a.dtype == b.dtype;
    if (present(a) && same) {
        same = a.rank == b.rank;
        for (int i = 0; same && i < a.rank; i++) {
            same = a.extent[i] == b.extent[i] && used_stride(a, i) == used_stride(b, i);
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

Reasons check_problem(const quatt_problem& p) {
    return Checker(p).run();
}

Shape shape_of(const quatt_problem& p) {
    const quatt_tensor &q = p.tensors.q, &k = p.tensors.k, &v = p.tensors.v;
    const int tokens = q.rank - 3, heads = q.rank - 2, dim = q.rank - 1;
    Shape s;
    s.packed = q.rank == 3;
    s.segments = !s.packed ? q.extent[0]
                 : present(p.tensors.cu_seqlens_q)
                     ? std::max<std::int64_t>(p.tensors.cu_seqlens_q.extent[0] - 1, 0)
                     : 1;
    s.tokens_q = q.extent[tokens];
    s.tokens_k = k.extent[tokens];
    s.heads_q = q.extent[heads];
    s.heads_kv = k.extent[heads];
    s.head_dim = q.extent[dim];
    s.head_dim_v = v.extent[dim];
    return s;
}

Reasons check_call(const quatt_problem& planned, const quatt_tensors& given) {
    if (std::string wrong = wrong_input_size("tensors", &given, given.struct_size, sizeof given,
                                             "quatt_problem_init");
        !wrong.empty()) {
        return {std::move(wrong)};
    }
    Reasons reasons;
    for (const Field& f : kFields) {
        const quatt_tensor &a = planned.tensors.*f.member, &b = given.*f.member;
        if (!same_layout(a, b)) {
            reasons.push_back(
                text(f.name, " is ", describe(b), "; the plan was made for ", describe(a)));
        } else if (present(b) && b.data == nullptr && has_elements(b)) {
            reasons.push_back(text(f.name, ".data is null; it must point to ", describe(b)));
        }
    }
    if (given.counters != nullptr && planned.tensors.counters == nullptr) {
        reasons.push_back("counters is given; the plan was made without");
    }
    if (!reasons.empty()) {
        return reasons;
    }
    // Alignment, overlap and host lengths depend on this call's pointers.
    quatt_problem now = planned;
    now.tensors = given;
    now.tensors.struct_size = sizeof now.tensors;  // the copy ends where we know it
    return check_problem(now);
}

Reasons check_workspace(const quatt_tensors& given, const void* workspace, std::size_t bytes) {
    Reasons reasons;
    const auto at = reinterpret_cast<std::intptr_t>(workspace);
    const auto end = at + static_cast<std::intptr_t>(bytes);
    for (const Field& f : kFields) {
        const quatt_tensor& t = given.*f.member;
        Range range;
        if (!present(t) || t.data == nullptr || !has_elements(t) || !byte_range(t, range)) {
            continue;
        }
        const auto base = reinterpret_cast<std::intptr_t>(t.data);
        if (base + range.lo < end && at < base + range.hi) {
            reasons.push_back(text("workspace overlaps ", f.name,
                                   " in memory; it must not share bytes with any tensor"));
        }
    }
    return reasons;
}

std::string describe(const quatt_tensor& t) {
    if (!present(t)) {
        return "absent";
    }
    std::string shape, strides;
    for (int i = 0; i < std::clamp(t.rank, 0, 4); i++) {
        shape += (i > 0 ? "," : "") + std::to_string(t.extent[i]);
        strides += (i > 0 ? "," : "") + std::to_string(t.stride[i]);
    }
    return text(quatt_dtype_name(t.dtype), " [", shape, "]",
                t.rank > 0 ? text(" strides [", strides, "]") : "");
}

std::string describe(const quatt_problem& p) {
    const std::string_view name(p.recipe.name, ::strnlen(p.recipe.name, sizeof p.recipe.name));
    std::string all =
        text("recipe ", name.empty() ? "(unnamed)" : name, ", softmax_scale ", p.softmax_scale);
    if (p.causal != 0) {
        all += ", causal";
    }
    if (p.window_left != -1 || p.window_right != -1) {
        all += text(", window (", p.window_left, ", ", p.window_right, ")");
    }
    if (p.zero_tail != 0) {
        all += ", zero_tail";
    }
    if (p.key_tile != 0) {
        all += text(", key_tile ", p.key_tile);
    }
    if (p.splits != 0) {
        all += text(", splits ", p.splits);
    }
    if (p.row_count != 0) {
        all += text(", ", p.row_count, " rows");
    }
    for (const Field& f : kFields) {
        if (present(p.tensors.*f.member)) {
            all += text("\n  ", f.name, ": ", describe(p.tensors.*f.member));
        }
    }
    return all;
}

}  // namespace quatt::core
