// K and V packed once and attended to often: the bits of a run, over all rows of the table.
#include "attention/harness.hpp"

namespace quatt::test {
namespace {

QUATT_SUBJECTS(PackedKv, subjects());

// The halves of a call, with memory of 0xFF around which nothing is written.
class Packed {
public:
    // Of the keys of `p`; nothing else is there.
    explicit Packed(const Problem& p) : plan_(make(p)), memory_(plan_.packed_bytes()) {
        Tensors t;
        static_cast<quatt_tensors&>(t) = p.tensors;
        for (quatt_tensor* other : {&t.q, &t.out, &t.lse, &t.q_descale, &t.sink}) {
            other->data = nullptr;
        }
        if (t.cu_seqlens_k.dtype != QUATT_NONE) {
            t.cu_seqlens_q.data = nullptr;
        }
        Workspace workspace(plan_.workspace_bytes());
        const Status s = plan_.quantize(t, memory_.span(), workspace.span());
        EXPECT_TRUE(s.ok()) << s.message() << '\n' << p;
        EXPECT_TRUE(workspace.guards_intact() && memory_.guards_intact()) << p;
    }

    // With a plan of its own; K and V are not there.
    [[nodiscard]] Bits attended(Case& c, Problem p) {
        const Plan plan = make(p);
        EXPECT_EQ(plan.packed_bytes(), memory_.span().size()) << p;
        for (quatt_tensor* other :
             {&p.tensors.k, &p.tensors.v, &p.tensors.k_descale, &p.tensors.v_descale}) {
            other->data = nullptr;
        }
        const Bytes before(memory_.span().begin(), memory_.span().end());
        Workspace workspace(plan.workspace_bytes());
        c.reset_outputs();
        const Status s = plan.attend(p.tensors, memory_.span(), workspace.span());
        EXPECT_TRUE(s.ok()) << s.message() << '\n' << p;
        EXPECT_TRUE(workspace.guards_intact() && memory_.guards_intact()) << p;
        EXPECT_TRUE(std::equal(before.begin(), before.end(), memory_.span().begin()))
            << "attend wrote packed memory\n"
            << p;
        return results_of(c).bits;
    }

private:
    [[nodiscard]] static Plan make(const Problem& p) { return Plan::create(p, device()).value(); }

    Plan plan_;
    Workspace memory_;
};

[[nodiscard]] bool packs(const char* recipe) {
    Case c(spec_of(recipe));
    return query(c.problem(way(recipe)), device())->packed_bytes > 0;
}

struct Named {
    const char* name;
    Spec spec;
};

// Ragged streams have more memory than their segments fill, and garbage between the rows.
std::vector<Named> layouts(const char* recipe) {
    std::vector<Named> all;
    Spec s = spec_of(recipe);
    s.batch = 2;
    s.tokens_q = 70;
    s.tokens_k = 150;
    s.heads_q = 4;
    s.heads_kv = 2;
    all.push_back({"dense", s});
    s.batch = 3;
    s.dim = 128;
    s.heads_q = 2;
    s.heads_kv = 1;
    s.tokens_q = 20;
    s.tokens_k = 130;
    s.kv_lens = {130, 0, 37};
    all.push_back({"kv_lens", s});
    s = spec_of(recipe);
    s.packed = true;
    s.dim = 40;
    s.heads_q = 2;
    s.heads_kv = 2;
    s.q_lens = {20, 0, 5, 33, 0};
    s.k_lens = {150, 3, 0, 70, 0};
    s.tokens_q = 60;
    s.tokens_k = 230;
    s.causal = s.zero_tail = true;
    all.push_back({"ragged", s});
    s.k_lens.clear();
    s.tokens_k = 0;
    s.kv_lens = {11, 0, 5, 30, 0};
    s.q_mean = 1;
    s.k_mean = s.v_mean = 3;
    all.push_back({"lengths of queries", s});
    s = spec_of(recipe);
    s.packed = true;
    s.tokens_q = 0;
    s.tokens_k = 65;
    all.push_back({"no queries", s});
    s.tokens_q = 10;
    s.tokens_k = 0;
    all.push_back({"no keys", s});
    s.tokens_k = 129;
    s.out = QUATT_F16;
    s.misalign_bytes = 2;
    all.push_back({"one segment, misaligned", s});
    return all;
}

void poison(Case& c) {
    for (Buffer* b : {&c.q, &c.k, &c.v}) {
        b->surround(std::numeric_limits<float>::quiet_NaN());
    }
}

TEST_P(PackedKv, HasTheBitsOfARun) {
    for (const char* recipe : recipes()) {
        if (!packs(recipe)) {
            continue;
        }
        for (Named& layout : layouts(recipe)) {
            for (const std::int32_t threads : {1, 2}) {
                SCOPED_TRACE(std::string(recipe) + ", " + layout.name + ", threads " +
                             std::to_string(threads));
                Case c = make_case(layout.spec);
                poison(c);
                const auto change = [&](Problem& p) { p.threads = threads; };
                const Bits want = compute(c, device(), recipe, change).bits;
                Problem p = c.problem(way(recipe));
                change(p);
                Packed packed(p);
                c.k.reset();
                c.v.reset();
                EXPECT_EQ(packed.attended(c, p), want);
                EXPECT_EQ(packed.attended(c, p), want) << "again";
            }
        }
    }
}

// Other queries, heads of queries, masks, scale, out and no lse, with the keys of the first plan.
TEST_P(PackedKv, ServesOtherPlans) {
    for (const char* recipe : recipes()) {
        if (!packs(recipe)) {
            continue;
        }
        for (Named& layout : layouts(recipe)) {
            SCOPED_TRACE(std::string(recipe) + ", " + layout.name);
            Case c = make_case(layout.spec);
            Packed packed(c.problem(way(recipe)));
            Spec other = layout.spec;
            if (!other.q_lens.empty() && other.k_lens.empty()) {
                other.k_lens = other.q_lens;
            }
            for (std::int32_t& n : other.q_lens) {
                n = n * 2 / 3 + 1;
            }
            other.tokens_q = other.q_lens.empty() ? other.tokens_q / 2 + 1 : 0;
            other.heads_q *= 2;
            other.lse = !other.lse;
            other.causal = !other.causal;
            other.out = QUATT_BF16;
            other.scale = 1.5;
            Case d = make_case(other);
            d.k = c.k;
            d.v = c.v;
            const Bits want = compute(d, device(), recipe).bits;
            d.k.reset();
            d.v.reset();
            EXPECT_EQ(packed.attended(d, d.problem(way(recipe))), want);
        }
    }
}

// Random layouts of the sort that decides where segments lie.
TEST_P(PackedKv, OfRandomLengths) {
    Random random(77);
    for (int n = 0; n < scaled(12); n++) {
        Spec s = spec_of(recipe_at(n), n % 2 == 0 ? QUATT_BF16 : QUATT_F16);
        const std::int64_t segments = random.in(1, 5);
        s.packed = true;
        s.dim = random.in(1, 128);
        s.dim_v = random.in(1, 128);
        s.heads_kv = random.in(1, 2);
        s.heads_q = s.heads_kv * random.in(1, 2);
        s.causal = random.in(0, 1) == 1;
        s.lse = random.in(0, 1) == 1;
        for (std::int64_t b = 0; b < segments; b++) {
            s.q_lens.push_back(static_cast<std::int32_t>(random.in(0, 40)));
            s.k_lens.push_back(static_cast<std::int32_t>(random.in(0, 140)));
        }
        s.seed = random.bits();
        if (!taken(n) || !packs(recipe_at(n))) {
            continue;
        }
        Case c = make_case(s);
        const Bits want = compute(c, device(), recipe_at(n)).bits;
        const Problem p = c.problem(way(recipe_at(n)));
        Packed packed(p);
        EXPECT_EQ(packed.attended(c, p), want) << c.spec;
    }
}

// A kernel that reads K and V where they are, or is not for speed, says so.
TEST_P(PackedKv, IsRefusedWhereThereIsNone) {
    for (const char* recipe : recipes()) {
        Spec s = spec_of(recipe);
        s.tokens_q = s.tokens_k = 3;
        Case c = make_case(s);
        const Problem p = c.problem(way(recipe));
        const Plan plan = Plan::create(p, device()).value();
        const bool has = is(device(), "cpu") || (subject().is_gpu() && is(recipe, "fp8"));
        EXPECT_EQ(plan.packed_bytes() > 0, has) << recipe;
        Workspace w(plan.workspace_bytes()), packed(1 << 16);
        if (has) {  // but not with what another kernel packed
            EXPECT_TRUE(plan.quantize(p.tensors, packed.span(), w.span()).ok());
            packed.span()[16] = std::byte{'x'};  // where the header has its name
            const Status refused = plan.attend(p.tensors, packed.span(), w.span());
            EXPECT_EQ(refused.code(), QUATT_INVALID_ARGUMENT);
            EXPECT_NE(refused.message().find("packed was made with kernel x"), std::string::npos)
                << refused.message();
            continue;
        }
        for (const Status& refused : {plan.quantize(p.tensors, packed.span(), w.span()),
                                      plan.attend(p.tensors, packed.span(), w.span())}) {
            EXPECT_EQ(refused.code(), QUATT_UNSUPPORTED);
            for (const char* part : {kernel(), recipe, "keeps no packed K and V"}) {
                EXPECT_NE(refused.message().find(part), std::string::npos) << refused.message();
            }
        }
    }
}

// Bad lengths are data of the device: segments count as empty in both halves as in a run.
TEST_P(PackedKv, BadLengthsAreThoseOfARun) {
    if (!subject().is_gpu() || !takes("fp8")) {
        return;
    }
    struct Bad {
        std::vector<std::int32_t> q, k, kv_lens;
        std::int32_t of_keys, of_all;  // status words
    };
    for (const Bad& bad : {Bad{{0, 20, 10, 40}, {0, 70, 100, 150}, {70, 30, 50}, 0, 1},
                           {{0, 20, 30, 40}, {0, 70, 300, 150}, {70, 30, 50}, 1, 1},
                           {{0, 20, 30, 40}, {0, 70, 100, 150}, {71, 30, 50}, 2, 2}}) {
        Spec s = spec_of("fp8");
        s.packed = true;
        s.q_lens = {20, 10, 10};
        s.k_lens = {70, 30, 50};
        s.kv_lens = bad.kv_lens;
        Case c = make_case(s);
        c.cu_q.set_integers(bad.q);
        c.cu_k.set_integers(bad.k);
        Buffer word(QUATT_I32, {1});
        const auto change = [&](Problem& p) { p.tensors.status_word = word; };
        const Bits want = compute(c, device(), "fp8", change).bits;
        EXPECT_EQ(static_cast<std::int32_t>(word.codes()[0]), bad.of_all);
        Problem p = c.problem(way("fp8"));
        change(p);
        word.reset();
        Packed packed(p);
        EXPECT_EQ(static_cast<std::int32_t>(word.codes()[0]), bad.of_keys);
        word.reset();
        EXPECT_EQ(packed.attended(c, p), want);
        EXPECT_EQ(static_cast<std::int32_t>(word.codes()[0]), bad.of_all);
    }
}

}  // namespace
}  // namespace quatt::test
