// What quatt.h says a result is, on every host device and in every recipe, against plain fp64
// attention. Each run also checks that inputs keep their bytes, that all of the results is written,
// and that nothing beside them or the workspace is.
#include <gtest/gtest.h>

#include <map>

#include "support/attention.hpp"

namespace quatt::test {
namespace {

constexpr float kMinusInf = -std::numeric_limits<float>::infinity();

class Semantics : public testing::TestWithParam<Way> {
protected:
    // Shapes with tails in rows, keys and channels.
    [[nodiscard]] static Spec dense() {
        Spec s;
        s.batch = 2;
        s.tokens_q = 21;
        s.tokens_k = 150;
        s.heads_q = 4;
        s.heads_kv = 2;
        s.dim = 24;
        return s;
    }
    [[nodiscard]] static Spec packed() {
        Spec s = dense();
        s.packed = true;
        s.q_lens = {7, 40, 1, 70};
        return s;
    }
    void check(const Spec& s) {
        if (thinned(count_++, 3)) {
            EXPECT_TRUE(runs_well(s, GetParam()));
        }
    }

private:
    int count_ = 0;
};

TEST_P(Semantics, DenseAndPackedLayouts) {
    check(dense());
    check(packed());
    Spec s = packed();
    s.k_lens = {90, 3, 130, 70};
    check(s);
    s.tokens_q = 130;  // capacity above the total
    s.tokens_k = 301;
    check(s);
    s.zero_tail = true;
    check(s);
    s.q_lens = s.k_lens = {};  // one segment
    check(s);
    s = dense();
    s.batch = 1;
    s.tokens_q = 1;  // decode
    check(s);
}

TEST_P(Semantics, LengthsOfKeys) {
    Spec s = dense();
    for (const std::int32_t n : {1, 63, 64, 65, 127, 128, 129, 150}) {
        s.kv_lens = {n, 0};
        check(s);
    }
    s.causal = true;
    s.kv_lens = {5, 149};
    check(s);
    s = packed();
    s.k_lens = {90, 3, 130, 70};
    s.kv_lens = {80, 0, 1, 70};
    check(s);
    s.causal = true;
    check(s);
}

TEST_P(Semantics, GroupsOfHeads) {
    for (const auto& [q, kv] : {std::pair{1, 1}, {6, 1}, {6, 2}, {6, 3}, {6, 6}}) {
        Spec s = dense();
        s.heads_q = q;
        s.heads_kv = kv;
        check(s);
    }
}

TEST_P(Semantics, HeadSizes) {
    for (const std::int64_t d : {1, 2, 3, 7, 16, 31, 33, 64, 80, 100, 128, 129, 200, 255, 256}) {
        Spec s = dense();
        s.batch = 1;
        s.dim = d;
        check(s);
        s.dim_v = 1 + (d * 37) % 256;  // apart from head_dim
        check(s);
    }
}

TEST_P(Semantics, Causal) {
    for (const auto& [q, k] :
         {std::pair{1, 70}, {21, 150}, {64, 64}, {65, 65}, {130, 70}, {100, 1}, {150, 21}}) {
        Spec s = dense();
        s.tokens_q = q;
        s.tokens_k = k;
        s.causal = true;
        check(s);
    }
    Spec s = packed();
    s.causal = true;
    check(s);
    s.k_lens = {90, 3, 130, 7};  // segments with more rows than keys among them
    check(s);
}

TEST_P(Semantics, Windows) {
    constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
    for (const auto& [left, right] : {std::pair<std::int64_t, std::int64_t>{0, 0},
                                      {-1, 0},
                                      {0, -1},
                                      {3, 0},
                                      {0, 3},
                                      {-1, 5},
                                      {5, -1},
                                      {40, 7},
                                      {100, 200},
                                      {kMax, kMax},
                                      {kMax, 0},
                                      {0, kMax}}) {
        for (const bool causal : {false, true}) {
            for (const auto& [q, k] : {std::pair{40, 90}, {90, 40}}) {
                Spec s = dense();
                s.batch = 1;
                s.tokens_q = q;
                s.tokens_k = k;
                s.left = left;
                s.right = right;
                s.causal = causal;
                check(s);
            }
        }
    }
    Spec s = packed();
    s.k_lens = {90, 3, 130, 7};
    s.left = 9;
    s.right = 2;
    check(s);
}

TEST_P(Semantics, SoftmaxScale) {
    for (const double scale : {1e-6, .1, .5, 2.0}) {
        Spec s = dense();
        s.scale = scale;
        check(s);
    }
}

TEST_P(Semantics, Sinks) {
    Spec s = dense();
    s.sink = {0.0f, -3.0f, 5.0f, kMinusInf};
    check(s);
    s.causal = true;
    s.tokens_q = 160;  // rows without keys: lse is the sink
    check(s);
    s.kv_lens = {0, 150};
    check(s);
    s.sink = {kMinusInf, kMinusInf, kMinusInf, kMinusInf};
    check(s);
    s = packed();
    s.sink = {30.0f, -30.0f, 1.0f, 0.0f};
    s.k_mean = 2;  // the sink belongs to the scores as they are, and not as smoothed
    s.q_mean = .5;
    if (std::strcmp(GetParam().recipe, "fp8_head") !=
        0) {  // which does not smooth: its errors grow with the mean
        check(s);
    }
}

TEST_P(Semantics, Descales) {
    for (const bool is_packed : {false, true}) {
        for (const int rank : {-1, 0, 1, 2}) {
            Spec s = is_packed ? packed() : dense();
            s.q = s.k = s.v = QUATT_E4M3;
            s.descale_rank = rank;
            s.sink = {.5f, -1.0f, 2.0f, 0.0f};
            check(s);
            s.k = QUATT_BF16;
            check(s);
        }
    }
}

TEST_P(Semantics, DtypesInAnyMix) {
    const std::vector<quatt_dtype> inputs = {QUATT_F32, QUATT_BF16, QUATT_F16, QUATT_E4M3};
    int n = 0;
    Spec s = dense();
    s.batch = 1;
    s.tokens_k = 70;
    s.descale_rank = 1;
    for (const quatt_dtype q : inputs) {
        for (const quatt_dtype k : inputs) {
            for (const quatt_dtype v : inputs) {
                s.q = q;
                s.k = k;
                s.v = v;
                for (const quatt_dtype out : {QUATT_F32, QUATT_BF16, QUATT_F16}) {
                    s.out = out;
                    if (thinned(n++)) {
                        check(s);
                    }
                }
            }
        }
    }
}

TEST_P(Semantics, LargeMeans) {
    Spec s = packed();
    s.k_mean = 3;
    s.v_mean = 2;
    if (std::strcmp(GetParam().recipe, "fp8_head") != 0) {
        check(s);
    }
}

TEST_P(Semantics, ChosenRows) {
    const Way way = GetParam();
    for (Spec s : {dense(), packed()}) {
        s.causal = true;
        s.tokens_q = 140;
        s.zero_tail = s.packed;
        Case c(s);
        const std::vector<std::int64_t> rows = {0, 6, 7, 46, 47, 48, 100, 117, 130, 139};
        Problem p = c.problem(way);
        p.rows = rows.data();
        p.row_count = static_cast<std::int64_t>(rows.size());
        if (way.is("cpu")) {
            const auto refused = query(p, way.device);
            EXPECT_EQ(refused.status().code(), QUATT_UNSUPPORTED);
            EXPECT_NE(refused.status().message().find("rows has 10 entries"), std::string::npos)
                << refused.status().message();
            continue;
        }
        EXPECT_TRUE(runs_well(c, way, p, expect(p))) << s;
        // A chosen row has the bits that it has among all.
        const Bits chosen = {c.out.codes(), c.lse.codes()};
        const Bits all = bits_of(c, way);
        std::map<bool, int> equal;
        for (std::size_t i = 0; i < all.lse.size(); i++) {
            equal[chosen.lse[i] == all.lse[i]]++;
            EXPECT_TRUE(chosen.lse[i] == all.lse[i] || chosen.lse[i] == 0xFFFFFFFFu) << i;
        }
        EXPECT_GE(equal[true], static_cast<int>(rows.size()));
        for (std::size_t i = 0; i < all.out.size(); i++) {
            ASSERT_TRUE(chosen.out[i] == all.out[i] || chosen.out[i] == 0xFFFFFFFFu) << i;
        }
    }
}

TEST_P(Semantics, KeyTilesAndSplits) {
    const Way way = GetParam();
    Spec s = dense();
    s.batch = 1;
    s.heads_q = s.heads_kv = 1;
    s.tokens_q = 17;
    s.tokens_k = 5000;  // three intervals
    s.dim = 16;
    Case c(s);
    const Expected expected = expect(c.problem(way));
    std::map<std::int32_t, Bits> by_splits;
    for (const std::int32_t splits : {0, 1, 2, 3, 7, 1000}) {
        Problem p = c.problem(way);
        p.splits = splits;
        EXPECT_TRUE(runs_well(c, way, p, expected)) << "splits " << splits;
        by_splits[splits] = {c.out.codes(), c.lse.codes()};
        const auto info = query(p, way.device);
        ASSERT_TRUE(info.ok());
        EXPECT_EQ(info->splits, splits == 0 ? 1 : splits);
    }
    EXPECT_EQ(by_splits[0], by_splits[1]);
    EXPECT_EQ(by_splits[3], by_splits[7]);  // an interval is the smallest split
    EXPECT_EQ(by_splits[3], by_splits[1000]);
    for (const std::int32_t tile : {64, 96, 128, 192, 256}) {
        Problem p = c.problem(way);
        p.key_tile = tile;
        if (way.is("cpu") && tile != 64) {
            EXPECT_EQ(query(p, way.device).status().code(), QUATT_UNSUPPORTED);
            continue;
        }
        EXPECT_TRUE(runs_well(c, way, p, expected)) << "key_tile " << tile;
        EXPECT_EQ(query(p, way.device)->key_tile, tile);
    }
}

// One plan a device serves every call of the same layout.
TEST_P(Semantics, ChangedLengthsUnderOnePlan) {
    const Way way = GetParam();
    Case c(packed());
    const Problem p = c.problem(way);
    Result<Plan> plan = Plan::create(p, way.device);
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    Workspace w(plan->workspace_bytes());
    for (const std::vector<std::int32_t>& cu : {std::vector<std::int32_t>{0, 7, 47, 48, 118},
                                                {0, 0, 0, 0, 0},
                                                {0, 118, 118, 118, 118},
                                                {0, 1, 2, 3, 4}}) {
        c.cu_q.set_integers(cu);
        c.reset_outputs();
        const Status s = plan->run(p.tensors, w.span());
        ASSERT_TRUE(s.ok()) << s.message();
        EXPECT_TRUE(close_to(p, expect(p), tolerance_of(way)));
    }
    EXPECT_TRUE(w.guards_intact());
}

INSTANTIATE_TEST_SUITE_P(Ways, Semantics, testing::ValuesIn(all_ways()), name_of);

// ---------------------------------------------------------------------------------------------

TEST(LightMass, IsTheShareOfKeysFarBelowTheirTile) {
    for (const bool causal : {false, true}) {
        Spec s;
        s.batch = 2;
        s.tokens_q = 20;
        s.tokens_k = 200;
        s.scale = 4;
        s.causal = causal;
        s.kv_lens = {200, 130};
        Case c(s);
        Buffer light = c.row_buffer();
        Problem p = c.problem({"reference", "bf16"});
        p.tensors.light_mass = light;
        const Expected e = expect(p);
        EXPECT_GT(*std::max_element(e.light.begin(), e.light.end()), 1e-3);
        EXPECT_TRUE(runs_well(c, {"reference", "bf16"}, p, e));
        EXPECT_TRUE(light.surroundings_intact());
    }
}

TEST(LightMass, IsZeroInAClearedTail) {
    Spec s;
    s.packed = true;
    s.q_lens = {5, 3};
    s.tokens_q = 20;
    s.zero_tail = true;
    Case c(s);
    Buffer light = c.row_buffer();
    Problem p = c.problem({"reference", "bf16"});
    p.tensors.light_mass = light;
    EXPECT_TRUE(runs_well(c, {"reference", "bf16"}, p, expect(p)));
    for (std::int64_t i = 8; i < 20; i++) {
        EXPECT_EQ(value_at(light.view(), {0, i}), 0.0);
        EXPECT_EQ(value_at(c.lse.view(), {1, i}), -kInf);
    }
}

TEST(Counters, CountWarpTilesAndAreAddedTo) {
    Spec s;
    s.tokens_q = 33;  // three groups of 16 rows
    s.tokens_k = 130;
    Case c(s);
    quatt_counters n{100, 0, 0, 0};
    for (const auto& [tile, key_tiles] : {std::pair{64, 3}, {128, 2}, {256, 1}}) {
        for (const std::int32_t threads : {1, 3}) {
            n = {100, 0, 0, 0};
            Problem p = c.problem({"emulate", "fp8"});
            p.key_tile = tile;
            p.threads = threads;
            p.tensors.counters = &n;
            const Status st = run(p, "emulate");
            ASSERT_TRUE(st.ok()) << st.message();
            EXPECT_EQ(n.warp_tiles, 100 + 3 * key_tiles * 2);
            // One refresh as the interval begins, one more after the first tile's rise from -1e30.
            EXPECT_EQ(n.refresh_warp_tiles, 3 * std::min(key_tiles, 2) * 2);
            // Where all rows refresh, none overflows.
            EXPECT_LE(n.overflow_warp_tiles, 3 * std::max(key_tiles - 2, 0) * 2);
        }
    }
}

TEST(StatusWord, IsZeroAfterAGoodRun) {
    Spec s;
    s.tokens_q = s.tokens_k = 4;
    for (const char* device : {"cpu", "reference", "emulate"}) {
        Case c(s);
        Buffer word(QUATT_I32, {1});
        Problem p = c.problem();
        p.tensors.status_word = word;
        const Status st = run(p, device);
        ASSERT_TRUE(st.ok()) << st.message();
        EXPECT_EQ(word.codes(), std::vector<std::uint32_t>{0});
        EXPECT_TRUE(word.surroundings_intact());
    }
}

TEST(EmptyProblems, WriteWhatThereIs) {
    for (const Way& way : all_ways()) {
        Spec s;
        s.tokens_q = 0;  // no rows
        s.tokens_k = 5;
        EXPECT_TRUE(runs_well(s, way));
        s.tokens_q = 5;  // no keys: zeros, and -inf
        s.tokens_k = 0;
        EXPECT_TRUE(runs_well(s, way));
        s.sink = {1.5f, -2.0f};  // no keys: zeros, and the sink
        EXPECT_TRUE(runs_well(s, way));
        s.sink.clear();
        s.batch = 0;
        s.tokens_k = 5;
        EXPECT_TRUE(runs_well(s, way));

        s = {};
        s.packed = true;
        s.q_lens = {0, 5, 0,
                    0, 9, 0};  // fewer tokens than segments, and empty ones between full ones
        s.k_lens = {3, 0, 0, 4, 2, 0};
        EXPECT_TRUE(runs_well(s, way));
        s.tokens_q = 40;
        s.tokens_k = 30;
        s.zero_tail = true;
        EXPECT_TRUE(runs_well(s, way));
        s.kv_lens = {0, 0, 0, 0, 0, 0};
        EXPECT_TRUE(runs_well(s, way));
        s.kv_lens.clear();
        s.q_lens.assign(50, 0);
        s.q_lens[20] = 2;
        s.k_lens.clear();
        EXPECT_TRUE(runs_well(s, way));
        s.q_lens = {0};
        s.tokens_q = s.tokens_k = 0;
        EXPECT_TRUE(runs_well(s, way));
    }
}

// Extents of 0 need no memory.
TEST(EmptyProblems, TakeNullData) {
    for (const Way& way : all_ways()) {
        Spec s;
        s.tokens_q = 3;
        s.tokens_k = 0;
        Case c(s);
        Problem p = c.problem(way);
        p.tensors.k.data = p.tensors.v.data = nullptr;
        Status st = run(p, way.device);
        EXPECT_TRUE(st.ok()) << st.message();
        EXPECT_TRUE(close_to(p, expect(p), tolerance_of(way)));
        s.tokens_q = 0;
        Case none(s);
        p = none.problem(way);
        p.tensors.q.data = p.tensors.k.data = p.tensors.v.data = p.tensors.out.data =
            p.tensors.lse.data = nullptr;
        st = run(p, way.device);
        EXPECT_TRUE(st.ok()) << st.message();
    }
}

// Segments of no bytes: no segment at all.
TEST(EmptyProblems, CuSeqlensOfOneEntry) {
    for (const Way& way : all_ways()) {
        Spec s;
        s.packed = true;
        s.tokens_q = 4;
        s.tokens_k = 4;
        s.zero_tail = true;
        Case c(s);
        c.cu_q = Buffer(QUATT_I32, {1});
        c.cu_q.set_integers({0});
        const Problem p = c.problem(way);
        EXPECT_TRUE(runs_well(c, way, p, expect(p)));
    }
}

}  // namespace
}  // namespace quatt::test
