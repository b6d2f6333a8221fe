// quatt_quantize and quatt_attend: sizes, what they read, and what they refuse. That the bits are
// those of a run is tests/attention/packed_kv_test.cpp's.
#include <gtest/gtest.h>

#include "support/attention.hpp"

namespace quatt::test {
namespace {

Spec some_spec() {
    Spec s;
    s.packed = true;
    s.q_lens = {3, 40};
    s.k_lens = {70, 5};
    s.heads_q = 4;
    s.heads_kv = 2;
    s.dim = 20;
    s.dim_v = 12;
    return s;
}

Spec some_dense() {
    Spec s = some_spec();
    s.packed = false;
    s.q_lens = s.k_lens = {};
    s.batch = 2;
    s.tokens_q = 40;
    s.tokens_k = 70;
    return s;
}

void expect_refused(const Status& s, quatt_status code, const std::vector<std::string>& says) {
    EXPECT_EQ(s.code(), code) << s.message();
    for (const std::string& part : says) {
        EXPECT_NE(s.message().find(part), std::string::npos)
            << "the message lacks \"" << part << "\":\n"
            << s.message();
    }
}

// A problem with its plan, memory and packed keys.
struct Kept {
    Case data;
    Problem problem;
    Plan plan;
    Workspace workspace, packed;

    explicit Kept(const Spec& spec, const Way& way = {"cpu", "fp8"})
        : data(spec),
          problem(data.problem(way)),
          plan(Plan::create(problem, way.device).value()),
          workspace(plan.workspace_bytes()),
          packed(plan.packed_bytes()) {
        const Status s = quantize(problem.tensors);
        EXPECT_TRUE(s.ok()) << s.message();
    }

    [[nodiscard]] Status quantize(const quatt_tensors& t) {
        return plan.quantize(t, packed.span(), workspace.span());
    }
    [[nodiscard]] Status attend(const quatt_tensors& t) {
        return plan.attend(t, packed.span(), workspace.span());
    }
};

TEST(PackedKv, NullArguments) {
    Kept k(some_spec());
    const quatt_tensors& t = k.problem.tensors;
    for (const auto call :
         {quatt_quantize,
          +[](const quatt_plan*plan, const quatt_tensors*x, void*packed, size_t n, void*w, size_t m,
              void*s) -> quatt_status { return quatt_attend(plan, x, packed, n, w, m, s); }}) {
        quatt_plan* plan = nullptr;
        const Device cpu("cpu");
        ASSERT_EQ(quatt_plan_create(&k.problem, &cpu, &plan), QUATT_OK);
        EXPECT_EQ(call(nullptr, &t, nullptr, 0, nullptr, 0, nullptr), QUATT_INVALID_ARGUMENT);
        EXPECT_STREQ(quatt_last_error(), "plan is null");
        EXPECT_EQ(call(plan, nullptr, nullptr, 0, nullptr, 0, nullptr), QUATT_INVALID_ARGUMENT);
        EXPECT_STREQ(quatt_last_error(), "tensors is null");
        quatt_plan_destroy(plan);
    }
}

// The tensors that a half reads or writes must be there, and no others.
TEST(PackedKv, NullData) {
    Spec s = some_spec();
    s.q = s.k = s.v = QUATT_E4M3;
    s.descale_rank = 2;
    s.sink = {1, 2, 3, 4};
    s.kv_lens = {5, 5};
    Kept kept(s);
    Buffer word(QUATT_I32, {1});
    Problem p = kept.problem;
    p.tensors.status_word = word;
    kept.plan = Plan::create(p, "cpu").value();
    struct Half {
        Status (Kept::*call)(const quatt_tensors&);
        std::vector<std::pair<const char*, quatt_tensor quatt_tensors::*>> needs, leaves;
    };
    const std::pair q{"q", &quatt_tensors::q}, k{"k", &quatt_tensors::k}, v{"v", &quatt_tensors::v},
        out{"out", &quatt_tensors::out}, lse{"lse", &quatt_tensors::lse},
        cu_q{"cu_seqlens_q", &quatt_tensors::cu_seqlens_q},
        cu_k{"cu_seqlens_k", &quatt_tensors::cu_seqlens_k},
        kv_lens{"kv_lens", &quatt_tensors::kv_lens},
        q_descale{"q_descale", &quatt_tensors::q_descale},
        k_descale{"k_descale", &quatt_tensors::k_descale},
        v_descale{"v_descale", &quatt_tensors::v_descale}, sink{"sink", &quatt_tensors::sink},
        status{"status_word", &quatt_tensors::status_word};
    for (const Half& half : {Half{&Kept::quantize,
                                  {k, v, cu_k, kv_lens, k_descale, v_descale, status},
                                  {q, out, lse, cu_q, q_descale, sink}},
                             {&Kept::attend,
                              {q, out, lse, cu_q, cu_k, kv_lens, q_descale, sink, status},
                              {k, v, k_descale, v_descale}}}) {
        for (const auto& [name, member] : half.needs) {
            quatt_tensors t = p.tensors;
            (t.*member).data = nullptr;
            expect_refused((kept.*half.call)(t), QUATT_INVALID_ARGUMENT,
                           {std::string(name) + ".data is null", "must point to"});
        }
        quatt_tensors t = p.tensors;
        for (const auto& [name, member] : half.leaves) {
            (t.*member).data = nullptr;
        }
        const Status st = (kept.*half.call)(t);
        EXPECT_TRUE(st.ok()) << st.message();
        // Freed memory may be anyone's by now: the results', or the workspace's.
        for (const auto& [name, member] : half.leaves) {
            (t.*member).data = kept.workspace.span().data();
        }
        const Status again = (kept.*half.call)(t);
        EXPECT_TRUE(again.ok()) << again.message();
    }
    // Without lengths of their own the keys have those of the queries.
    s.k_lens.clear();
    s.kv_lens.clear();
    Kept same(s);
    quatt_tensors t = same.problem.tensors;
    t.cu_seqlens_q.data = nullptr;
    expect_refused(same.quantize(t), QUATT_INVALID_ARGUMENT, {"cu_seqlens_q.data is null"});
    expect_refused(same.attend(t), QUATT_INVALID_ARGUMENT, {"cu_seqlens_q.data is null"});
}

TEST(PackedKv, MemoryIsCheckedByName) {
    Kept k(some_spec());
    const quatt_tensors& t = k.problem.tensors;
    const std::size_t bytes = k.plan.packed_bytes();
    const std::string needs = "the plan needs " + std::to_string(bytes);
    const std::span<std::byte> packed = k.packed.span(), workspace = k.workspace.span();
    const auto both = [&](std::span<std::byte> p, std::span<std::byte> w) {
        return std::array{k.plan.quantize(t, p, w), k.plan.attend(t, p, w)};
    };
    for (const Status& s : both({}, workspace)) {
        expect_refused(s, QUATT_INVALID_ARGUMENT, {"packed is null", needs});
    }
    for (const Status& s : both(packed.first(bytes - 1), workspace)) {
        expect_refused(s, QUATT_INVALID_ARGUMENT,
                       {"packed has " + std::to_string(bytes - 1) + " bytes", needs});
    }
    std::vector<std::byte, CacheLineAllocator<std::byte>> more(bytes + 64);
    for (const std::size_t off : {1, 32}) {
        for (const Status& s : both(std::span(more).subspan(off, bytes), workspace)) {
            expect_refused(s, QUATT_INVALID_ARGUMENT, {"packed is at 0x", "aligned to 64 bytes"});
        }
    }
    for (const Status& s : both(packed, {})) {
        expect_refused(s, QUATT_WORKSPACE_TOO_SMALL, {"workspace is null"});
    }
    for (const Status& s : both(packed, workspace.first(workspace.size() - 1))) {
        expect_refused(s, QUATT_WORKSPACE_TOO_SMALL, {"workspace has"});
    }
    // More than is needed is fine, and nothing is written beyond.
    EXPECT_TRUE(k.plan.quantize(t, more, workspace).ok());
    EXPECT_TRUE(k.plan.attend(t, more, workspace).ok());
    EXPECT_TRUE(k.packed.guards_intact() && k.workspace.guards_intact());
}

TEST(PackedKv, OverlapIsRefused) {
    Kept k(some_spec());
    const quatt_tensors& t = k.problem.tensors;
    const std::size_t packed_bytes = k.plan.packed_bytes(),
                      bytes = (k.plan.workspace_bytes() + 63) / 64 * 64;
    std::vector<std::byte, CacheLineAllocator<std::byte>> block(bytes + 2 * packed_bytes + 64);
    const std::span<std::byte> workspace = std::span(block).first(bytes);
    const std::size_t last = bytes - 64;
    for (const std::size_t at : {std::size_t{0}, std::size_t{64}, last}) {
        const auto packed = std::span(block).subspan(at, packed_bytes);
        expect_refused(k.plan.quantize(t, packed, workspace), QUATT_INVALID_ARGUMENT,
                       {"packed overlaps workspace"});
        expect_refused(k.plan.attend(t, packed, workspace), QUATT_INVALID_ARGUMENT,
                       {"packed overlaps workspace"});
    }
    const auto packed = std::span(block).subspan(bytes, packed_bytes);
    ASSERT_TRUE(k.plan.quantize(t, packed, workspace).ok());
    ASSERT_TRUE(k.plan.attend(t, packed, workspace).ok());
    quatt_tensors over = t;
    over.k.data = packed.data() + packed_bytes - 4;
    expect_refused(k.plan.quantize(over, packed, workspace), QUATT_INVALID_ARGUMENT,
                   {"packed overlaps k in memory"});
    EXPECT_TRUE(k.plan.attend(over, packed, workspace).ok()) << "which reads no k";
    over = t;
    over.out.data = packed.data();
    expect_refused(k.plan.attend(over, packed, workspace), QUATT_INVALID_ARGUMENT,
                   {"packed overlaps out in memory"});
    EXPECT_TRUE(k.plan.quantize(over, packed, workspace).ok()) << "which writes no out";
    over = t;
    over.out.data = over.k.data;
    EXPECT_FALSE(k.plan.run(over, workspace).ok());
}

// Plans whose packed keys lie elsewhere say what differs.
TEST(PackedKv, AnotherPlanIsRefusedByName) {
    struct Other {
        const char* says;
        std::function<void(Spec&, Way&)> change;
    };
    const Spec spec = some_dense();
    Kept k(spec);
    std::vector<Other> others = {
        {"recipe fp8; the plan has int8_fp8", [](Spec&, Way& w) { w.recipe = "int8_fp8"; }},
        {"segments 2; the plan has 1", [](Spec& s, Way&) { s.batch = 1; }},
        {"tokens of k 70; the plan has 69", [](Spec& s, Way&) { s.tokens_k = 69; }},
        {"heads of k 2; the plan has 1", [](Spec& s, Way&) { s.heads_kv = 1; }},
        {"head dim of k 20; the plan has 19", [](Spec& s, Way&) { s.dim = 19; }},
        {"head dim of v 12; the plan has 11", [](Spec& s, Way&) { s.dim_v = 11; }},
        {"k as [B,Sk,Hkv,D]; the plan has [Tk,Hkv,D]",
         [](Spec& s, Way&) {
             s.packed = true;
             s.q_lens = {20, 20};
             s.k_lens = {35, 35};
         }},
    };
    if (std::string(k.plan.info().kernel) != "cpu") {
        others.push_back({"; the plan has cpu", [](Spec&, Way& w) { w.kernel = "cpu"; }});
    }
    for (const Other& other : others) {
        Spec s = spec;
        Way way{"cpu", "fp8"};
        other.change(s, way);
        Case c(s);
        const Problem p = c.problem(way);
        const Plan plan = Plan::create(p, "cpu").value();
        Workspace w(plan.workspace_bytes());
        std::vector<std::byte, CacheLineAllocator<std::byte>> packed(
            std::max(plan.packed_bytes(), k.packed.span().size()));
        std::copy(k.packed.span().begin(), k.packed.span().end(), packed.begin());
        expect_refused(plan.attend(p.tensors, packed, w.span()), QUATT_INVALID_ARGUMENT,
                       {"packed was made with ", other.says});
        EXPECT_TRUE(std::all_of(c.out.bytes().begin(), c.out.bytes().end(),
                                [](std::byte b) { return b == kCanary; }));
    }
}

// Any bytes in the header: taken, or refused; an unknown version by name.
TEST(PackedKv, AHeaderOfAnyBytes) {
    Kept k(some_spec());
    const std::span<std::byte> header = k.packed.span().first(256);
    const Bytes good(header.begin(), header.end());
    ASSERT_TRUE(k.attend(k.problem.tensors).ok());
    Random random(5);
    for (int n = 0; n < scaled(2000); n++) {
        std::copy(good.begin(), good.end(), header.begin());
        for (std::int64_t changes = random.in(1, 4); changes > 0; changes--) {
            header[static_cast<std::size_t>(random.in(0, 255))] =
                static_cast<std::byte>(random.in(0, 255));
        }
        const Status s = k.attend(k.problem.tensors);
        EXPECT_TRUE(s.ok() || s.code() == QUATT_INVALID_ARGUMENT) << s.message();
    }
    std::copy(good.begin(), good.end(), header.begin());
    header[8] = std::byte{9};
    expect_refused(k.attend(k.problem.tensors), QUATT_INVALID_ARGUMENT,
                   {"packed has version 9", "reads 1"});
    header[0] = std::byte{};
    expect_refused(k.attend(k.problem.tensors), QUATT_INVALID_ARGUMENT,
                   {"packed does not begin as quatt_quantize leaves it"});
}

// A failed quantisation leaves nothing that could be attended to.
TEST(PackedKv, AFailureLeavesNoHeader) {
    Spec s = some_spec();
    Kept k(s);
    k.data.cu_k.set_integers({0, 80, 75});
    expect_refused(k.quantize(k.problem.tensors), QUATT_INVALID_ARGUMENT,
                   {"cu_seqlens_k[1] is 80"});
    k.data.cu_k.set_integers({0, 70, 75});
    expect_refused(k.attend(k.problem.tensors), QUATT_INVALID_ARGUMENT,
                   {"does not begin as quatt_quantize leaves it"});
    // Lengths of queries are not its business; attending refuses them.
    k.data.cu_q.set_integers({0, 90, 43});
    EXPECT_TRUE(k.quantize(k.problem.tensors).ok());
    expect_refused(k.attend(k.problem.tensors), QUATT_INVALID_ARGUMENT, {"cu_seqlens_q[1] is 90"});
}

// What K and V were beyond the recipe's format stays known.
TEST(PackedKv, TheStatusWordIsThatOfARun) {
    for (const bool large_k : {false, true}) {
        for (const bool large_q : {false, true}) {
            Spec s = some_spec();
            s.q = s.k = s.v = QUATT_F32;
            Kept k(s, {"cpu", "f16"});
            Buffer word(QUATT_I32, {1});
            Problem p = k.problem;
            p.tensors.status_word = word;
            k.plan = Plan::create(p, "cpu").value();
            k.data.k.set_one({2, 1, 3}, large_k ? 1e6f : 1.0f);
            k.data.q.set_one({2, 1, 3}, large_q ? 1e6f : 1.0f);
            const auto bits = [&] { return word.codes()[0]; };
            ASSERT_TRUE(k.plan.run(p.tensors, k.workspace.span()).ok());
            const std::uint32_t want = bits();
            EXPECT_EQ(want, large_k || large_q ? QUATT_DATA_OVERFLOW : 0);
            ASSERT_TRUE(k.quantize(p.tensors).ok());
            EXPECT_EQ(bits(), large_k ? QUATT_DATA_OVERFLOW : 0);
            ASSERT_TRUE(k.attend(p.tensors).ok());
            EXPECT_EQ(bits(), want);
        }
    }
}

// packed_bytes follows the keys and nothing else; the workspace of a run is what it was.
TEST(PackedKv, SizeIsThatOfTheKeys) {
    const auto bytes = [](const Spec& s, std::int32_t threads = 1) {
        Case c(s);
        Problem p = c.problem({"cpu", "fp8"});
        p.threads = threads;
        return query(p, "cpu")->packed_bytes;
    };
    const Spec s = some_dense();
    const std::size_t base = bytes(s);
    EXPECT_GT(base, 256u + 2 * 70 * 2 * (20 + 12));
    EXPECT_EQ(base % 64, 0u);
    Spec other = s;
    other.tokens_q = 1;
    other.heads_q = 8;
    other.lse = false;
    other.causal = true;
    EXPECT_EQ(bytes(other, 7), base);
    other = s;
    other.tokens_k = 200;
    EXPECT_GT(bytes(other), base);
    for (const Way& way : {Way{"reference", "bf16"}, Way{"emulate", "fp8"}}) {
        Case c(s);
        EXPECT_EQ(query(c.problem(way), way.device)->packed_bytes, 0u);
    }
}

// Every recipe of the device cpu, with what only host devices have, in its threads or the caller's.
TEST(PackedKv, AllRecipesOfTheCpu) {
    const auto pool = [](std::int64_t count, auto body) {
        for (std::int64_t i = count; i-- > 0;) {
            body(i);
        }
    };
    for (std::int32_t i = 0; i < quatt_recipe_count(); i++) {
        for (const std::int32_t threads : {1, 3}) {
            for (const bool own_pool : {false, true}) {
                Spec s = some_spec();
                s.q = QUATT_F32;
                s.k = s.v = QUATT_E4M3;
                s.descale_rank = 2;
                s.sink = {1, 2, -1, 4};
                s.left = 30;
                s.kv_lens = {66, 5};
                Case c(s);
                Problem p = c.problem({"cpu", quatt_recipe_name(i)});
                p.threads = threads;
                if (own_pool) {
                    p.set_parallel_for(pool);
                }
                const Plan plan = Plan::create(p, "cpu").value();
                Workspace w(plan.workspace_bytes()), packed(plan.packed_bytes());
                ASSERT_TRUE(plan.run(p.tensors, w.span()).ok());
                const Bits want{c.out.codes(), c.lse.codes()};
                ASSERT_TRUE(plan.quantize(p.tensors, packed.span(), w.span()).ok());
                c.k.reset();
                c.v.reset();
                c.k_descale.reset();
                c.v_descale.reset();
                c.reset_outputs();
                const Status st = plan.attend(p.tensors, packed.span(), w.span());
                ASSERT_TRUE(st.ok()) << st.message();
                EXPECT_EQ((Bits{c.out.codes(), c.lse.codes()}), want) << quatt_recipe_name(i);
            }
        }
    }
}

}  // namespace
}  // namespace quatt::test
