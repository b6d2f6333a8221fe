// Well-formedness of problems, against counting every byte.
#include "core/problem.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <array>
#include <cstdlib>
#include <set>

#include "core/check.hpp"
#include "support/attention.hpp"

namespace quatt::core {
namespace {

// A case takes microseconds; RapidCheck's 100 of them find little. Not where the caller chose.
const int kMoreCases =
    ::setenv("RC_PARAMS", ("max_success=" + std::to_string(test::scaled(3000))).c_str(), 0);

using test::Extents;

// All bytes that a view touches, as addresses.
std::set<std::intptr_t> bytes_of(const quatt_tensor& t) {
    std::set<std::intptr_t> bytes;
    const auto size = static_cast<std::int64_t>(quatt_dtype_bytes(t.dtype));
    test::for_each_index(test::extents_of(t), [&](const Extents& i) {
        for (std::int64_t b = 0; b < size; b++) {
            bytes.insert(reinterpret_cast<std::intptr_t>(t.data) + test::offset(t, i) * size + b);
        }
    });
    return bytes;
}

bool share_bytes(const quatt_tensor& a, const quatt_tensor& b) {
    const std::set<std::intptr_t> x = bytes_of(a), y = bytes_of(b);
    return std::any_of(x.begin(), x.end(), [&](std::intptr_t at) { return y.count(at) != 0; });
}

bool mentions(const Reasons& reasons, const std::string& part) {
    return join(reasons).find(part) != std::string::npos;
}

// A dense bf16 problem of [B,S,H,D] without memory.
quatt_problem problem_of(const Extents& e) {
    quatt_problem p{};
    quatt_problem_init(&p);
    p.softmax_scale = 1;
    const quatt_tensor t =
        quatt_tensor_contiguous(nullptr, QUATT_BF16, static_cast<std::int32_t>(e.size()), e.data());
    p.tensors.q = p.tensors.k = p.tensors.v = p.tensors.out = t;
    return p;
}

std::array<std::byte, 1 << 14> memory;

Extents small_extents() {
    return {*rc::gen::inRange<std::int64_t>(1, 3), *rc::gen::inRange<std::int64_t>(1, 5),
            *rc::gen::inRange<std::int64_t>(1, 4), *rc::gen::inRange<std::int64_t>(1, 5)};
}

// Whatever overlaps is refused. What is refused need not overlap: other layouts than those below
// are judged by their ranges.
RC_GTEST_PROP(Overlap, IsNeverMissed, ()) {
    const Extents e = small_extents();
    quatt_problem p = problem_of(e);
    const auto place = [&](quatt_tensor& t, bool output) {
        std::int64_t reach = 0;
        Extents order = {0, 1, 2, 3};
        for (std::size_t i = 3; i > 0; i--) {
            std::swap(order[i], order[static_cast<std::size_t>(
                                    *rc::gen::inRange<int>(0, static_cast<int>(i) + 1))]);
        }
        std::int64_t step = *rc::gen::inRange<std::int64_t>(1, 3);
        for (const std::int64_t axis : order) {
            const bool odd = !output && *rc::gen::inRange(0, 6) == 0;
            t.stride[axis] = odd ? *rc::gen::inRange<std::int64_t>(-9, 10) : step;
            reach += (t.extent[axis] - 1) * 40;
            step = step * t.extent[axis] + *rc::gen::inRange<std::int64_t>(0, 3);
        }
        t.data = memory.data() + 4096 + 2 * *rc::gen::inRange<std::int64_t>(-120, 120);
    };
    place(p.tensors.q, false);
    place(p.tensors.out, true);
    p.tensors.out.dtype = *rc::gen::element<quatt_dtype>(QUATT_BF16, QUATT_F16);
    if (*rc::gen::inRange(0, 3) == 0) {
        p.tensors.q.dtype = QUATT_E4M3;
    }
    const Reasons reasons = check_problem(p);
    const bool refused = mentions(reasons, "out overlaps q");
    RC_TAG(refused);
    if (!refused && !mentions(reasons, "two elements meet")) {
        RC_ASSERT(!share_bytes(p.tensors.out, p.tensors.q));
    }
}

// Views of one buffer with the same strides, as a fused QKV buffer has them: exact, both ways.
RC_GTEST_PROP(Overlap, IsExactForViewsOfOneBuffer, ()) {
    const Extents e = small_extents();
    quatt_problem p = problem_of(e);
    Extents strides(4);
    std::int64_t step = 1;
    for (std::size_t i = 4; i-- > 0;) {
        strides[i] = step;
        step *= e[i] + *rc::gen::inRange<std::int64_t>(0, 4);  // room for other slots
    }
    for (quatt_tensor* t : {&p.tensors.q, &p.tensors.out}) {
        std::copy(strides.begin(), strides.end(), t->stride);
    }
    const std::int64_t distance = *rc::gen::inRange<std::int64_t>(-step, step + 1);
    p.tensors.q.data = memory.data() + 8192;
    p.tensors.out.data = memory.data() + 8192 + 2 * distance;
    const bool refused = mentions(check_problem(p), "out overlaps q");
    RC_TAG(refused);
    RC_ASSERT(refused == share_bytes(p.tensors.out, p.tensors.q));
}

// GQA: K has fewer heads than out, on the same strides.
RC_GTEST_PROP(Overlap, IsExactForFewerHeads, ()) {
    Extents e = small_extents();
    e[2] = 4;
    quatt_problem p = problem_of(e);
    const std::int64_t heads = 4 + 2 * 2 + *rc::gen::inRange<std::int64_t>(0, 3);
    const Extents strides = {e[1] * heads * e[3], heads * e[3], e[3], 1};
    for (quatt_tensor* t : {&p.tensors.k, &p.tensors.v, &p.tensors.out}) {
        std::copy(strides.begin(), strides.end(), t->stride);
    }
    p.tensors.k.extent[2] = p.tensors.v.extent[2] = 2;
    const auto at = [&](std::int64_t head) { return memory.data() + 2 * head * e[3]; };
    p.tensors.out.data = at(*rc::gen::inRange<std::int64_t>(0, heads - 3));
    p.tensors.k.data = at(*rc::gen::inRange<std::int64_t>(0, heads - 1));
    p.tensors.v.data = at(*rc::gen::inRange<std::int64_t>(0, heads - 1));
    const Reasons reasons = check_problem(p);
    RC_ASSERT(mentions(reasons, "out overlaps k") == share_bytes(p.tensors.out, p.tensors.k));
    RC_ASSERT(mentions(reasons, "out overlaps v") == share_bytes(p.tensors.out, p.tensors.v));
}

// Strides of an output under which two of its elements are one.
RC_GTEST_PROP(OutputStrides, ThatMeetAreRefused, ()) {
    const Extents e = small_extents();
    quatt_problem p = problem_of(e);
    for (int i = 0; i < 4; i++) {
        p.tensors.out.stride[i] = *rc::gen::inRange<std::int64_t>(-12, 13);
    }
    std::set<std::int64_t> offsets;
    std::size_t n = 0;
    test::for_each_index(e, [&](const Extents& i) {
        offsets.insert(test::offset(p.tensors.out, i));
        n++;
    });
    const bool meets = offsets.size() != n,
               refused = mentions(check_problem(p), "two elements meet");
    RC_TAG(meets, refused);
    RC_ASSERT(refused || !meets);
}

// Orders of axes with gaps are what callers have: never refused.
RC_GTEST_PROP(OutputStrides, OfAnyOrderAreTaken, ()) {
    const Extents e = small_extents();
    quatt_problem p = problem_of(e);
    std::vector<int> order = {0, 1, 2, 3};
    for (std::size_t i = 3; i > 0; i--) {
        std::swap(
            order[i],
            order[static_cast<std::size_t>(*rc::gen::inRange<int>(0, static_cast<int>(i) + 1))]);
    }
    std::int64_t step = 1;
    for (const int axis : order) {
        p.tensors.out.stride[axis] = *rc::gen::element(1, -1) * step;
        step = step * e[static_cast<std::size_t>(axis)] + *rc::gen::inRange<std::int64_t>(0, 3);
    }
    RC_ASSERT(check_problem(p).empty());
}

TEST(Shape, OfDenseAndPacked) {
    quatt_problem p = problem_of({2, 3, 4, 5});
    Shape s = shape_of(p);
    EXPECT_FALSE(s.packed);
    EXPECT_EQ(s.segments, 2);
    EXPECT_EQ(s.tokens_q, 3);
    EXPECT_EQ(s.total_q(), 6);
    EXPECT_EQ(s.heads_q, 4);
    EXPECT_EQ(s.head_dim, 5);
    p = problem_of({30, 4, 5});
    s = shape_of(p);
    EXPECT_TRUE(s.packed);
    EXPECT_EQ(s.segments, 1);
    EXPECT_EQ(s.total_k(), 30);
    const std::int64_t n = 8;
    p.tensors.cu_seqlens_q = quatt_tensor_contiguous(nullptr, QUATT_I32, 1, &n);
    EXPECT_EQ(shape_of(p).segments, 7);
}

RC_GTEST_PROP(CuSeqlens, AreRisingFromZeroWithinTheTensor, ()) {
    const auto values =
        *rc::gen::nonEmpty(rc::gen::container<std::vector<std::int32_t>>(rc::gen::oneOf(
            rc::gen::inRange(0, 4), rc::gen::inRange(-3, 30), rc::gen::arbitrary<std::int32_t>())));
    const auto capacity = *rc::gen::inRange<std::int64_t>(0, 25);
    const std::int64_t stride = *rc::gen::inRange<std::int64_t>(1, 4);
    std::vector<std::int32_t> spread(values.size() * static_cast<std::size_t>(stride), -77);
    bool good = values[0] == 0 && values.back() <= capacity;
    for (std::size_t i = 0; i < values.size(); i++) {
        spread[i * static_cast<std::size_t>(stride)] = values[i];
        good = good && (i == 0 || values[i] >= values[i - 1]);
    }
    const Reasons reasons = check_cu_seqlens(
        "cu", spread.data(), stride, static_cast<std::int64_t>(values.size()) - 1, capacity);
    RC_ASSERT(reasons.empty() == good);
}

// Every field of a problem, set to anything: an answer and a text, and no crash. Nothing here has
// memory behind it.
RC_GTEST_PROP(Problem, MayHoldAnything, ()) {
    quatt_problem p = problem_of({2, 3, 4, 8});
    const auto number = rc::gen::oneOf(
        rc::gen::inRange<std::int64_t>(-2, 10), rc::gen::arbitrary<std::int64_t>(),
        rc::gen::element<std::int64_t>(std::numeric_limits<std::int64_t>::max(),
                                       std::numeric_limits<std::int64_t>::min(),
                                       std::int64_t{1} << 31, std::int64_t{1} << 48));
    const auto word =
        rc::gen::map(number, [](std::int64_t x) { return static_cast<std::int32_t>(x); });
    for (quatt_tensor* t :
         {&p.tensors.q, &p.tensors.k, &p.tensors.v, &p.tensors.out, &p.tensors.lse,
          &p.tensors.cu_seqlens_q, &p.tensors.cu_seqlens_k, &p.tensors.kv_lens,
          &p.tensors.q_descale, &p.tensors.sink, &p.tensors.block_table, &p.tensors.status_word,
          &p.tensors.light_mass}) {
        if (*rc::gen::inRange(0, 4) == 0) {
            t->dtype = *word;
            t->rank = *word;
            for (int i = 0; i < 4; i++) {
                t->extent[i] = *number;
                t->stride[i] = *number;
            }
            // Never read by a query; only its value counts.
            t->data = reinterpret_cast<void*>(static_cast<std::uintptr_t>(*number));
        }
    }
    if (*rc::gen::arbitrary<bool>()) {
        p.causal = *word;
        p.window_left = *number;
        p.window_right = *number;
        p.key_tile = *word;
        p.splits = *word;
        p.threads = *word;
        p.zero_tail = *word;
        p.allow_fallback = *word;
        p.strict = *word;
    }
    if (*rc::gen::inRange(0, 3) == 0) {
        p.recipe.q.group_tokens = *word;
        p.recipe.k.block_tokens = *word;
        p.recipe.v.format = *word;
        p.recipe.promotion_interval = *word;
        p.recipe.p_format = *word;
        p.recipe.refresh_rise = *word;
    }
    quatt_device d{};
    d.struct_size = sizeof d;
    d.backend = *rc::gen::inRange<int>(-1, 7);
    d.compute_major = *word;
    quatt_plan_info info{};
    info.struct_size = sizeof info;
    std::size_t needed = 0;
    const quatt_status s = quatt_query(&p, &d, &info);
    RC_ASSERT(s == QUATT_OK || s == QUATT_INVALID_ARGUMENT || s == QUATT_UNSUPPORTED);
    RC_ASSERT(quatt_explain(&p, &d, nullptr, 0, &needed) == QUATT_OK);
    RC_ASSERT(quatt_problem_describe(&p, nullptr, 0, &needed) == QUATT_OK);
    RC_ASSERT(needed > 1u);
}

}  // namespace
}  // namespace quatt::core
