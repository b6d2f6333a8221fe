// One entry a way to ask for something wrong: what to change in a sound problem, and what the
// refusal must say.
#pragma once
#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "support/attention.hpp"

namespace quatt::test {

struct Fault {
    const char* name;
    quatt_status status;
    std::vector<std::string> says;        // the argument, its value, and what is allowed
    std::function<bool(Problem&)> apply;  // false: it does not fit this problem
};

// For problems with data. Those marked "dense" or "packed" in apply fit only such ones.
inline std::vector<Fault> problem_faults() {
    constexpr quatt_status kInvalid = QUATT_INVALID_ARGUMENT, kNo = QUATT_UNSUPPORTED;
    constexpr float kFloatInf = std::numeric_limits<float>::infinity();
    std::vector<Fault> all;
    const auto add = [&](const char* name, quatt_status status, std::vector<std::string> says,
                         auto change) {
        all.push_back({name, status, std::move(says), [change](Problem& p) {
                           if constexpr (std::is_void_v<decltype(change(p))>) {
                               change(p);
                               return true;
                           } else {
                               return change(p);
                           }
                       }});
    };
    const auto packed = [](const Problem& p) { return p.tensors.q.rank == 3; };
    const auto cut = [](const Problem& p) { return p.tensors.cu_seqlens_q.dtype != QUATT_NONE; };
    // Memory for tensors that the problem lacks; nothing may read it.
    static std::array<std::int32_t, 64> spare{};
    const auto vector_of = [](quatt_dtype dtype, std::int64_t n) {
        return quatt_tensor_contiguous(spare.data(), dtype, 1, &n);
    };

    // A tensor of other extents, without memory: strides that fit them, so that only the extents
    // are wrong.
    const auto reshaped = [](quatt_tensor& t) {
        t = quatt_tensor_contiguous(nullptr, t.dtype, t.rank, t.extent);
    };

    // ---- dtypes -------------------------------------------------------------------------------
    add("q of int32", kInvalid, {"q.dtype is i32", "one of f32, bf16, f16, e4m3"},
        [](Problem& p) { p.tensors.q.dtype = QUATT_I32, p.tensors.q.data = nullptr; });
    add("no q", kInvalid, {"q."}, [](Problem& p) { p.tensors.q = {}; });
    add("no k", kInvalid, {"k.dtype is none", "one of f32, bf16, f16, e4m3"},
        [](Problem& p) { p.tensors.k = {}; });
    add("no v", kInvalid, {"v.dtype is none"}, [](Problem& p) { p.tensors.v = {}; });
    add("no out", kInvalid, {"out.dtype is none", "one of f32, bf16, f16"},
        [](Problem& p) { p.tensors.out = {}; });
    add("out of e4m3", kInvalid, {"out.dtype is e4m3", "one of f32, bf16, f16"},
        [](Problem& p) { p.tensors.out.dtype = QUATT_E4M3; });
    add("unknown dtype", kInvalid, {"v.dtype is 77", "F32, BF16, F16, E4M3, I32 (1..5)"},
        [](Problem& p) { p.tensors.v.dtype = 77; });
    add("negative dtype", kInvalid, {"k.dtype is -1"}, [](Problem& p) { p.tensors.k.dtype = -1; });
    add("lse of bf16", kInvalid, {"lse.dtype is bf16", "must be f32"}, [](Problem& p) {
        p.tensors.lse.dtype = p.tensors.lse.dtype != QUATT_NONE ? QUATT_BF16 : QUATT_NONE;
        return p.tensors.lse.dtype != QUATT_NONE;
    });

    // ---- extents ------------------------------------------------------------------------------
    const auto last = [](quatt_tensor& t) -> std::int64_t& { return t.extent[t.rank - 1]; };
    for (const std::int64_t d : {0, 257, 100000}) {
        add("head dim of q and k", kInvalid,
            {"head dim of q is " + std::to_string(d), "it must be 1 to 256"}, [=](Problem& p) {
                last(p.tensors.q) = last(p.tensors.k) = d;
                reshaped(p.tensors.q), reshaped(p.tensors.k);
            });
        add("head dim of v and out", kInvalid,
            {"head dim of v is " + std::to_string(d), "it must be 1 to 256"}, [=](Problem& p) {
                last(p.tensors.v) = last(p.tensors.out) = d;
                reshaped(p.tensors.v), reshaped(p.tensors.out);
            });
    }
    add("negative extent", kInvalid, {"k.extent[0] is -3", "it must be >= 0"},
        [](Problem& p) { p.tensors.k.extent[0] = -3; });
    add("negative extent of an optional tensor", kInvalid,
        {"sink.extent[0] is -9223372036854775808"}, [=](Problem& p) {
            p.tensors.sink = vector_of(QUATT_F32, 1);
            p.tensors.sink.extent[0] = std::numeric_limits<std::int64_t>::min();
        });
    add("extent times stride beyond 63 bits", kInvalid, {"q is ", "must fit 63 bits"},
        [=](Problem& p) {
            last(p.tensors.q) = 3;
            p.tensors.q.stride[p.tensors.q.rank - 1] = std::int64_t{1} << 62;
        });
    add("extents beyond 63 bits", kInvalid, {"k is ", "at most 2^48"}, [](Problem& p) {
        p.tensors.k.extent[0] = p.tensors.k.extent[1] = p.tensors.k.extent[2] = std::int64_t{1}
                                                                                << 40;
    });
    add("head dim of k", kInvalid, {"k.extent[", "must be that of q (head dim)"}, [=](Problem& p) {
        last(p.tensors.k) = last(p.tensors.q) % 256 + 1, p.tensors.k.data = nullptr;
    });
    add("head dim of out", kInvalid, {"out.extent[", "must be that of v (head dim)"},
        [=](Problem& p) {
            last(p.tensors.out) = last(p.tensors.v) % 256 + 1;
            reshaped(p.tensors.out);
        });
    add("tokens of v", kInvalid, {"v.extent[", "must be that of k (tokens)"}, [=](Problem& p) {
        p.tensors.v.extent[p.tensors.v.rank - 3]++;
        reshaped(p.tensors.v);
    });
    add("tokens of out", kInvalid, {"out.extent[", "must be that of q (tokens)"}, [=](Problem& p) {
        p.tensors.out.extent[p.tensors.out.rank - 3]++;
        reshaped(p.tensors.out);
    });
    add("batch of k", kInvalid, {"k.extent[0] is ", "must be that of q (the batch)"},
        [=](Problem& p) {
            p.tensors.k.extent[0]++;
            reshaped(p.tensors.k);
            return !packed(p);
        });
    add("batch of out", kInvalid, {"out.extent[0] is ", "must be that of q (the batch)"},
        [=](Problem& p) {
            p.tensors.out.extent[0]++;
            reshaped(p.tensors.out);
            return !packed(p);
        });
    add("heads of v", kInvalid, {"v.extent[", "must be that of k (heads)"}, [=](Problem& p) {
        p.tensors.v.extent[p.tensors.v.rank - 2]++;
        reshaped(p.tensors.v);
    });
    add("heads of out", kInvalid, {"out.extent[", "must be that of q (heads)"}, [=](Problem& p) {
        p.tensors.out.extent[p.tensors.out.rank - 2]++;
        reshaped(p.tensors.out);
    });
    add("heads of q no multiple", kInvalid, {"q has ", " heads and k has 7", "a multiple"},
        [=](Problem& p) {
            const int axis = p.tensors.k.rank - 2;
            p.tensors.k.extent[axis] = p.tensors.v.extent[axis] = 7;
            p.tensors.k.data = p.tensors.v.data = nullptr;
            return p.tensors.q.extent[axis] % 7 != 0;
        });
    add("no heads", kInvalid, {"q has 0 heads", "both must be 1 to "}, [=](Problem& p) {
        const int axis = p.tensors.k.rank - 2;
        p.tensors.q.extent[axis] = p.tensors.out.extent[axis] = 0;
    });
    for (const int rank : {0, 1, 2}) {
        add("rank of q", kInvalid,
            {"q.rank is " + std::to_string(rank),
             "4 (dense, [B,Sq,Hq,D]) or 3 (packed, [Tq,Hq,D])"},
            [=](Problem& p) { p.tensors.q.rank = rank; });
    }
    for (const int rank : {-1, 5, 1000}) {
        add("rank beyond the struct", kInvalid, {"out.rank is " + std::to_string(rank), "0 to 4"},
            [=](Problem& p) { p.tensors.out.rank = rank; });
    }
    add("rank of v", kInvalid, {"v.rank is ", "must be that of q"},
        [=](Problem& p) { p.tensors.v = without_axis(p.tensors.v, 0); });

    // ---- optional tensors ---------------------------------------------------------------------
    add("lse of another shape", kInvalid, {"lse is f32 [", "it must be ["}, [=](Problem& p) {
        p.tensors.lse.extent[0]++;
        reshaped(p.tensors.lse);
        return p.tensors.lse.dtype != QUATT_NONE;
    });
    add("light_mass of another rank", kInvalid, {"light_mass is f32 [3]", "it must be ["},
        [=](Problem& p) { p.tensors.light_mass = vector_of(QUATT_F32, 3); });
    add("kv_lens of another length", kInvalid,
        {"kv_lens is i32 [61]", "one length per batch item or segment"},
        [=](Problem& p) { p.tensors.kv_lens = vector_of(QUATT_I32, 61); });
    add("kv_lens of floats", kInvalid, {"kv_lens.dtype is f32", "must be i32"}, [=](Problem& p) {
        const std::int64_t n =
            packed(p) ? (cut(p) ? p.tensors.cu_seqlens_q.extent[0] - 1 : 1) : p.tensors.q.extent[0];
        p.tensors.kv_lens = vector_of(QUATT_F32, n);
        return n <= 64;
    });
    add("sink of another length", kInvalid, {"sink is f32 [63]", "one logit per query head"},
        [=](Problem& p) { p.tensors.sink = vector_of(QUATT_F32, 63); });
    add("sink a scalar", kInvalid, {"sink is f32 []", "it must be ["}, [=](Problem& p) {
        p.tensors.sink = vector_of(QUATT_F32, 1);
        p.tensors.sink.rank = 0;
    });
    add("status_word of two words", kInvalid, {"status_word is i32 [2]", "it must be [1]"},
        [=](Problem& p) { p.tensors.status_word = vector_of(QUATT_I32, 2); });
    add("descale of a bf16 tensor", kInvalid,
        {"q_descale is given, but q is ", "descales belong to e4m3"}, [=](Problem& p) {
            p.tensors.q_descale = vector_of(QUATT_F32, 1);
            return p.tensors.q.dtype != QUATT_E4M3;
        });
    add("descale of another shape", kInvalid, {"k_descale is f32 [59]", "a scalar, [Hkv] = ["},
        [=](Problem& p) {
            p.tensors.k.dtype = QUATT_E4M3;
            p.tensors.k_descale = vector_of(QUATT_F32, 59);
        });
    add("descale of ints", kInvalid, {"v_descale.dtype is i32", "must be f32"}, [=](Problem& p) {
        p.tensors.v.dtype = QUATT_E4M3;
        p.tensors.v_descale = vector_of(QUATT_I32, 1);
    });
    add("cu_seqlens in a dense problem", kInvalid,
        {"cu_seqlens_q is given, but q has rank 4", "kv_lens"}, [=](Problem& p) {
            p.tensors.cu_seqlens_q = vector_of(QUATT_I32, 2);
            return !packed(p);
        });
    add("cu_seqlens_k alone", kInvalid, {"cu_seqlens_k is given without cu_seqlens_q"},
        [=](Problem& p) {
            p.tensors.cu_seqlens_q = {};
            p.tensors.cu_seqlens_k = vector_of(QUATT_I32, 2);
            return packed(p);
        });
    add("cu_seqlens of no entries", kInvalid, {"cu_seqlens_q is i32 [0]", "[segments + 1]"},
        [=](Problem& p) {
            p.tensors.cu_seqlens_q = vector_of(QUATT_I32, 0);
            p.tensors.cu_seqlens_k = p.tensors.kv_lens = {};
            return packed(p);
        });
    add("cu_seqlens that differ in length", kInvalid,
        {"cu_seqlens_k has 62 entries", "as many as cu_seqlens_q"}, [=](Problem& p) {
            p.tensors.cu_seqlens_k = vector_of(QUATT_I32, 62);
            return cut(p);
        });
    add("cu_seqlens of floats", kInvalid, {"cu_seqlens_q.dtype is f32", "must be i32"},
        [=](Problem& p) {
            p.tensors.cu_seqlens_q.dtype = QUATT_F32;
            return cut(p);
        });
    static const std::array<std::int32_t, 64> kFromFive = [] {
        std::array<std::int32_t, 64> a{};
        a.fill(5);
        return a;
    }();
    static const std::array<std::int32_t, 64> kFalling = {0, -1};
    static const std::array<std::int32_t, 64> kHuge = [] {
        std::array<std::int32_t, 64> a{};
        a.fill(std::numeric_limits<std::int32_t>::max());
        a[0] = 0;
        return a;
    }();
    add("host cu_seqlens from 5", kInvalid, {"cu_seqlens_q[0] is 5", "it must be 0"},
        [=](Problem& p) {
            p.tensors.cu_seqlens_q_host = kFromFive.data();
            return cut(p) && p.tensors.cu_seqlens_q.extent[0] <= 64;
        });
    add("host cu_seqlens that fall", kInvalid,
        {"cu_seqlens_q[1] is -1", "it must be >= cu_seqlens_q[0] = 0"}, [=](Problem& p) {
            p.tensors.cu_seqlens_q_host = kFalling.data();
            return cut(p) && p.tensors.cu_seqlens_q.extent[0] > 1 &&
                   p.tensors.cu_seqlens_q.extent[0] <= 64;
        });
    add("host cu_seqlens beyond the tensor", kInvalid,
        {"cu_seqlens_k[1] is 2147483647", "it must be <= ", "the tokens of the tensor"},
        [=](Problem& p) {
            p.tensors.cu_seqlens_k_host = kHuge.data();
            return cut(p) && p.tensors.cu_seqlens_q.extent[0] > 1 &&
                   p.tensors.cu_seqlens_q.extent[0] <= 64;
        });
    add("host cu_seqlens without cu_seqlens", kInvalid,
        {"cu_seqlens_q_host is given without cu_seqlens_q"}, [=](Problem& p) {
            p.tensors.cu_seqlens_q_host = kFromFive.data();
            return !cut(p);
        });

    // ---- attributes ---------------------------------------------------------------------------
    for (const float x : {0.0f, -1.0f, std::nanf(""), kFloatInf, -kFloatInf}) {
        std::ostringstream value;
        value << "softmax_scale is " << x;
        add("softmax_scale", kInvalid, {value.str(), "finite and > 0"},
            [=](Problem& p) { p.softmax_scale = x; });
    }
    for (const std::int32_t x : {2, -1, 1 << 20}) {
        const std::string is = " is " + std::to_string(x);
        add("causal", kInvalid, {"causal" + is, "0 or 1"}, [=](Problem& p) { p.causal = x; });
        add("zero_tail", kInvalid, {"zero_tail" + is, "0 or 1"},
            [=](Problem& p) { p.zero_tail = x; });
        add("allow_fallback", kInvalid, {"allow_fallback" + is, "0 or 1"},
            [=](Problem& p) { p.allow_fallback = x; });
        add("strict", kInvalid, {"strict" + is, "0 or 1"}, [=](Problem& p) { p.strict = x; });
    }
    for (const std::int64_t x :
         {std::int64_t{-2}, std::int64_t{-100}, std::numeric_limits<std::int64_t>::min()}) {
        const std::string is = " is " + std::to_string(x);
        add("window_left", kInvalid, {"window_left" + is, "it must be >= 0, or -1 for open"},
            [=](Problem& p) { p.window_left = x; });
        add("window_right", kInvalid, {"window_right" + is, "it must be >= 0, or -1 for open"},
            [=](Problem& p) { p.window_right = x; });
    }
    for (const std::int32_t x : {1, 63, 100, 512, -64}) {
        add("key_tile", kInvalid,
            {"key_tile is " + std::to_string(x), "64, 96, 128, 192, 256, or 0"},
            [=](Problem& p) { p.key_tile = x; });
    }
    add("splits", kInvalid, {"splits is -1", ">= 1, or 0"}, [](Problem& p) { p.splits = -1; });
    for (const std::int32_t x : {-1, 4097, std::numeric_limits<std::int32_t>::max()}) {
        add("threads", kInvalid,
            {"threads is " + std::to_string(x), "1 to 4096, or 0 for all cores"},
            [=](Problem& p) { p.threads = x; });
    }
    static const std::array<std::int64_t, 2> kTwice = {0, 0}, kBelow = {-1, 0};
    static const std::array<std::int64_t, 1> kFar = {std::int64_t{1} << 40};
    add("rows twice", kInvalid, {"rows[1] is 0", "must ascend"}, [](Problem& p) {
        p.rows = kTwice.data(), p.row_count = 2;
        return p.tensors.q.extent[p.tensors.q.rank - 3] > 0;
    });
    add("rows below 0", kInvalid, {"rows[0] is -1", "0 to "},
        [](Problem& p) { p.rows = kBelow.data(), p.row_count = 2; });
    add("rows beyond the end", kInvalid, {"rows[0] is 1099511627776", "0 to "},
        [](Problem& p) { p.rows = kFar.data(), p.row_count = 1; });
    add("row_count without rows", kInvalid, {"row_count is 3", "rows is 0"},
        [](Problem& p) { p.rows = nullptr, p.row_count = 3; });
    add("row_count below 0", kInvalid, {"row_count is -5", ">= 0"},
        [](Problem& p) { p.rows = kTwice.data(), p.row_count = -5; });
    add("workspace_target_bytes below 0", kInvalid,
        {"workspace_target_bytes is -1", "it must be above 0"},
        [](Problem& p) { p.workspace_target_bytes = -1; });
    add("policy_count below 0", kInvalid, {"policy_count is -1", ">= 0"},
        [](Problem& p) { p.policy_count = -1; });
    add("policy_count without policy", kInvalid, {"policy_count is 2", "policy is 0"},
        [](Problem& p) { p.policy = nullptr, p.policy_count = 2; });
    add("unknown kernel", kInvalid,
        {"kernel is \"no_such\"", "it must be one of ", "cpu", "emulate", "reference"},
        [](Problem& p) { p.kernel = "no_such"; });
    add("kernel of no name", kInvalid, {"kernel is \"\"", "one of "},
        [](Problem& p) { p.kernel = ""; });
    add("recipe without struct_size", kInvalid,
        {"problem.recipe.struct_size is 0", "quatt_recipe_init"},
        [](Problem& p) { p.recipe = quatt_recipe{}; });
    add("problem without struct_size", kInvalid, {"problem.struct_size is 0", "quatt_problem_init"},
        [](Problem& p) { p.struct_size = 0; });
    add("tensors without struct_size", kInvalid,
        {"problem.tensors.struct_size is 0", "quatt_problem_init"},
        [](Problem& p) { p.tensors.struct_size = 0; });
    // Inside a problem the next field begins where the library's struct ends.
    add("recipe of a later version", kInvalid,
        {"problem.recipe.struct_size is " + std::to_string(sizeof(quatt_recipe) + 8),
         "it must be " + std::to_string(sizeof(quatt_recipe))},
        [](Problem& p) { p.recipe.struct_size += 8; });
    add("tensors of a later version", kInvalid,
        {"problem.tensors.struct_size is " + std::to_string(sizeof(quatt_tensors) + 8),
         "it must be " + std::to_string(sizeof(quatt_tensors))},
        [](Problem& p) { p.tensors.struct_size += 8; });
    add("problem of no version", kInvalid, {"problem.struct_size is 1152921504606846976", "16384"},
        [](Problem& p) { p.struct_size = std::size_t{1} << 60; });
    add("recipe with an unknown format", kInvalid,
        {"recipe.k.format is 99", "one of QUATT_FORMAT_F32"},
        [](Problem& p) { p.recipe.k.format = 99; });
    add("recipe with a wrong interval", kInvalid,
        {"recipe.promotion_interval is 100", "a multiple of 2304"},
        [](Problem& p) { p.recipe.promotion_interval = 100; });
    add("recipe with an endless name", kInvalid, {"recipe.name", "24"},
        [](Problem& p) { std::memset(p.recipe.name, 'x', sizeof p.recipe.name); });

    // ---- memory -------------------------------------------------------------------------------
    add("q misaligned", kInvalid, {"q.data is 0x", "aligned to its element size of "},
        [](Problem& p) {
            p.tensors.q.data = static_cast<std::byte*>(p.tensors.q.data) + 1;
            return quatt_dtype_bytes(p.tensors.q.dtype) > 1;
        });
    add("out misaligned", kInvalid, {"out.data is 0x", "aligned to its element size of "},
        [](Problem& p) { p.tensors.out.data = static_cast<std::byte*>(p.tensors.out.data) + 1; });
    add("lse misaligned", kInvalid, {"lse.data is 0x", "aligned to its element size of 4 bytes"},
        [](Problem& p) {
            p.tensors.lse.data = static_cast<std::byte*>(p.tensors.lse.data) + 2;
            return p.tensors.lse.dtype != QUATT_NONE;
        });
    const auto filled = [](const quatt_tensor& t) {
        const Extents e = extents_of(t);
        return t.dtype != QUATT_NONE && std::find(e.begin(), e.end(), 0) == e.end();
    };
    add("out over v", kInvalid, {"out overlaps v", "outputs must not share bytes"},
        [=](Problem& p) {
            p.tensors.out.data = p.tensors.v.data;
            return filled(p.tensors.out) && filled(p.tensors.v) &&
                   reinterpret_cast<std::uintptr_t>(p.tensors.v.data) %
                           quatt_dtype_bytes(p.tensors.out.dtype) ==
                       0;
        });
    add("lse over out", kInvalid, {"lse overlaps out"}, [=](Problem& p) {
        p.tensors.lse.data = p.tensors.out.data;
        return filled(p.tensors.lse) && filled(p.tensors.out) &&
               reinterpret_cast<std::uintptr_t>(p.tensors.out.data) % 4 == 0;
    });
    add("out with stride 0", kInvalid, {"out is ", "must not let two elements meet"},
        [=](Problem& p) {
            p.tensors.out.stride[p.tensors.out.rank - 3] = 0;
            return filled(p.tensors.out) && p.tensors.out.extent[p.tensors.out.rank - 3] > 1;
        });
    add("out with strides that meet", kInvalid, {"out is ", "must not let two elements meet"},
        [=](Problem& p) {
            p.tensors.out.stride[p.tensors.out.rank - 2] =
                p.tensors.out.stride[p.tensors.out.rank - 1];
            return filled(p.tensors.out) && p.tensors.out.extent[p.tensors.out.rank - 2] > 1 &&
                   last(p.tensors.out) > 1;
        });

    // ---- room for later -----------------------------------------------------------------------
    static const quatt_head_range kRange{};
    add("policy", kNo, {"policy has 1 head ranges", "no kernel of this version"},
        [](Problem& p) { p.policy = &kRange, p.policy_count = 1; });
    add("block_table", kNo, {"block_table is given", "paged KV"},
        [=](Problem& p) { p.tensors.block_table = vector_of(QUATT_I32, 4); });
    return all;
}

}  // namespace quatt::test
