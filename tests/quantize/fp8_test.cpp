// The quantisers of recipe fp8 against the canonical one: same codes, scales and means.
#include "quantize/problem.hpp"
#include "simt/seeds.hpp"

namespace quatt::test {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

void check(const Problem& p, const RunOptions& o = {}) {
    SCOPED_TRACE(to_string(p.shape) + (o.wide && p.is_aligned16() ? " wide" : " narrow"));
    const Packed got = run(p, o);
    const Expected expected(p, got, o);
    expected.compare();
}

TEST(Fp8, EveryLayoutAndHeadSize) {
    unsigned seed = 0;
    for (const Layout layout : {Layout::kFused, Layout::kDense, Layout::kHeadsOut, Layout::kNarrow})
        for (const std::int64_t channels : {40, 64, 80, 128}) {
            Shape s{.q_heads = 4, .kv_heads = 2, .channels = channels, .layout = layout};
            s.is_f16 = seed % 2 != 0;
            s.q_lens = {70, 1, 0, 130};
            s.k_lens = {65, 1, 140, 0};
            const Problem p(s, Normals(seed));
            EXPECT_EQ(p.is_aligned16(), layout != Layout::kNarrow);
            check(p, {.simt = {.seed = seed}});
            seed++;
        }
}

TEST(Fp8, TailsOfEveryKind) {
    for (const std::int64_t n : {1, 2, 15, 16, 17, 31, 63, 64, 65, 127, 128, 129, 191, 193, 257}) {
        Shape s{.q_heads = 1, .kv_heads = 1, .channels = n % 2 == 0 ? 64 : 128};
        s.q_lens = {n};
        s.k_lens = {n};
        check(Problem(s, Normals(static_cast<unsigned>(n))));
    }
}

TEST(Fp8, RandomShapes) {
    std::mt19937 random(17);
    const auto below = [&](std::int64_t n) {
        return std::uniform_int_distribution<std::int64_t>(0, n - 1)(random);
    };
    for (unsigned i = 0; i < 5 * seeds() / 2; i++) {  // 60, fewer in the sanitizer runs
        constexpr std::int64_t kChannels[] = {1, 8, 24, 33, 40, 64, 72, 80, 96, 101, 120, 128};
        Shape s;
        s.kv_heads = 1 + below(3);
        s.q_heads = s.kv_heads * (1 + below(3));
        s.channels = kChannels[below(std::size(kChannels))];
        s.layout = static_cast<Layout>(below(4));
        s.is_f16 = below(2) != 0;
        const std::int64_t count = 1 + below(5);
        for (std::int64_t j = 0; j < count; j++) {
            const std::int64_t most = below(3) == 0 ? 3 : 200;
            s.q_lens.push_back(below(most));
            s.k_lens.push_back(below(4) == 0 ? s.q_lens.back() : below(most));
        }
        const Problem p(s,
                        Normals(i + 100, s.is_f16 ? 1.0f : std::ldexp(1.0f, int(below(60)) - 30)));
        const RunOptions o{.wide = below(4) != 0,
                           .lse_shift = below(3) != 0,
                           .softmax_scale = 0.03f * static_cast<float>(1 + below(10)),
                           .simt = {.seed = i}};
        SCOPED_TRACE(to_string(s));
        const Packed got = run(p, o);
        const Expected expected(p, got, o);
        expected.compare();
    }
}

TEST(Fp8, SameBitsAtEverySeedAndForBothWaysToRead) {
    Shape s{.q_heads = 4, .kv_heads = 2, .channels = 80};
    s.q_lens = {130, 0, 3};
    s.k_lens = {131, 1, 70};
    const Problem p(s, Normals(5));
    ASSERT_TRUE(p.is_aligned16());
    const Packed first = run(p);
    EXPECT_TRUE(run(p, {.wide = false}) == first);
    for (std::uint64_t seed = 0; seed < (seeds() + 1) / 2; seed++)
        EXPECT_TRUE(run(p, {.simt = {.seed = seed, .workers = 1 + unsigned(seed % 2)}}) == first)
            << seed;
}

TEST(Fp8, ManySegmentsOfWhichMostAreEmpty) {
    for (const std::int64_t count : {2, 31, 32, 33, 100, 1100}) {
        std::mt19937 random(static_cast<unsigned>(count));
        Shape s{.q_heads = 1, .kv_heads = 1, .channels = 8};
        for (std::int64_t i = 0; i < count; i++) {
            const bool is_empty = i > 2 && i < count - 1 && random() % 8 != 0;
            s.q_lens.push_back(is_empty ? 0 : 1 + random() % (i == 1 ? 140 : 3));
            s.k_lens.push_back(is_empty ? 0 : 1 + random() % (i == 1 ? 300 : 3));
        }
        const Problem p(s, Normals(3));
        const Packed got = run(p);
        const Expected expected(p, got, {});
        SCOPED_TRACE(count);
        expected.compare();
    }
}

TEST(Fp8, InvalidSegmentsAreEmpty) {
    for (const std::size_t first : {0u, 1u, 2u, 3u}) {
        Shape s{.q_heads = 2, .kv_heads = 1, .channels = 64};
        s.q_lens = {70, 190, 30};
        s.k_lens = {140, 90, 200};
        Problem p(s, Normals(6));
        p.invalidate(first);
        SCOPED_TRACE(first);
        check(p);
    }
}

TEST(Fp8, ASegmentGivesTheBitsThatItGivesAlone) {
    Shape s{.q_heads = 2, .kv_heads = 1, .channels = 64};
    s.q_lens = {37, 150, 20};
    s.k_lens = {101, 300, 9};
    const Problem together(s, Normals(8));
    Shape one = s;
    one.q_lens = {s.q_lens[1]};
    one.k_lens = {s.k_lens[1]};
    const Problem alone(one, [&](int o, std::int64_t, std::int64_t t, std::int64_t h,
                                 std::int64_t c) { return together.value(o, 1, t, h, c); });
    const Packed a = run(together), b = run(alone);
    const auto same = [](const auto& x, std::int64_t i, const auto& y, std::int64_t j,
                         std::int64_t n) {
        return std::memcmp(x.data() + i, y.data() + j, static_cast<std::size_t>(n) * sizeof x[0]) ==
               0;
    };
    const worklist::SegmentEntry& g = together.segments[1];
    EXPECT_TRUE(same(a.k_mean, 64, b.k_mean, 0, 64));
    EXPECT_TRUE(same(a.v_mean, 64, b.v_mean, 0, 64));
    EXPECT_TRUE(same(a.v_scale, 64, b.v_scale, 0, 64));
    EXPECT_TRUE(same(a.k8, g.k_tile * 4096, b.k8, 0, 5 * 4096));
    EXPECT_TRUE(same(a.v8, g.k_tile * 4096, b.v8, 0, 5 * 4096));
    EXPECT_TRUE(same(a.k_scale, 4 * g.k_tile, b.k_scale, 0, 4 * 5));
    for (std::int64_t h = 0; h < 2; h++) {
        const std::int64_t x = h * a.q_rows + g.q_row, y = h * b.q_rows;
        const std::int64_t tile = h * a.q_tiles + g.q_row / 64 + 1;
        EXPECT_TRUE(same(a.q8, tile * 4096, b.q8, h * b.q_tiles * 4096, 3 * 4096));
        EXPECT_TRUE(same(a.q_factor, x, b.q_factor, y, 150));
        EXPECT_TRUE(same(a.lse_shift, x, b.lse_shift, y, 150));
    }
}

// Values that no sum, maximum or scale may lose, one kind a channel; each in one segment of three.
TEST(Fp8, ValuesThatAreNotFinite) {
    for (const float bad : {kNaN, kInf, -kInf})
        for (const int operand : {0, 1, 2})
            for (const bool is_f16 : {false, true}) {
                Shape s{.q_heads = 4, .kv_heads = 2, .channels = 72, .is_f16 = is_f16};
                s.q_lens = {5, 70, 3};
                s.k_lens = {66, 135, 2};
                Normals normals(4);
                const Problem p(s, [&](int o, std::int64_t i, std::int64_t t, std::int64_t h,
                                       std::int64_t c) {
                    const float x = normals(o, i, t, h, c);
                    const bool is_here = o == operand && i == 1 && h == 1 && t == 69 - o && c == 33;
                    return is_here ? bad : x;
                });
                check(p);
                // What the canonical quantiser says, once in plain words: nothing else is NaN.
                const Packed got = run(p);
                const auto nan_of = [](const std::vector<float>& v, std::int64_t i,
                                       std::int64_t n) {
                    return std::count_if(v.begin() + i, v.begin() + i + n,
                                         [](float x) { return !std::isfinite(x); });
                };
                EXPECT_EQ(nan_of(got.v_scale, 0, 3 * 2 * 128), operand == 2 ? 1 : 0);
                EXPECT_EQ(nan_of(got.k_mean, 0, 3 * 2 * 128), 0);
                EXPECT_EQ(nan_of(got.v_mean, 0, 3 * 2 * 128), 0);
                for (std::int64_t h = 0; h < 2; h++)
                    for (std::int64_t t = 0; t < 3; t++) {  // key 68 of head 1
                        const std::int64_t tile = h * got.k_tiles + p.segments[1].k_tile + t;
                        EXPECT_EQ(nan_of(got.k_scale, 4 * tile, 1),
                                  operand == 1 && h == 1 && t == 1 ? 1 : 0);
                    }
                std::int64_t rows = 0;
                for (std::int64_t h = 0; h < 4; h++)
                    for (std::int64_t row = 0; row < 78; row++)
                        rows += !std::isfinite(
                            got.q_factor[static_cast<std::size_t>(h * got.q_rows + row)]);
                EXPECT_EQ(rows, operand == 0 ? 1 : 0);
            }
}

TEST(Fp8, ValuesOfEverySize) {
    // Zeros, one size a channel, the largest and smallest numbers, signs that cancel, and a spread
    // that overflows a difference.
    for (const bool is_f16 : {false, true}) {
        const float most = is_f16 ? F16::kMax : Bf16::kMax;
        const float least = is_f16 ? 0x1p-24f : 0x1p-133f;
        Shape s{.q_heads = 1, .kv_heads = 1, .channels = 64, .is_f16 = is_f16};
        s.q_lens = {130, 40, 20};
        s.k_lens = {260, 70, 33};
        std::mt19937 random(9);
        const Problem p(s, [&](int, std::int64_t i, std::int64_t t, std::int64_t, std::int64_t c) {
            const float unit = static_cast<float>(random() % 2000) / 1000.0f - 1.0f;
            if (i == 0) {
                return c == 0    ? most
                       : c == 1  ? (t % 2 == 0 ? most : -most)
                       : c == 2  ? least * static_cast<float>(t % 5)
                       : c == 3  ? least
                       : c < 20  ? std::ldexp(unit, static_cast<int>(4 * c) - 40)
                       : c == 20 ? -0.0f
                                 : 0.0f;
            }
            if (i == 1) return c % 2 == 0 ? unit : (t % 32 == 5 ? 0.0f : 100 * unit);
            return t == 7 && c == 5 ? most : c == 5 ? -most : 0.0f;
        });
        check(p);
        check(p, {.wide = false});
    }
}

TEST(Fp8, SmallMeansOfVStay) {
    Shape s{.q_heads = 1, .kv_heads = 1, .channels = 64};
    s.q_lens = {1};
    s.k_lens = {1024};
    // Mean m beside an amax of 1 + m: kept out below 1/64 of the centred amax.
    const Problem p(s, [](int, std::int64_t, std::int64_t t, std::int64_t, std::int64_t c) {
        return (t % 2 == 0 ? 1.0f : -1.0f) + 0x1p-7f * static_cast<float>(c) / 4;
    });
    const Packed got = run(p);
    Expected(p, got, {}).compare();
    const auto zeros = std::count(got.v_mean.begin(), got.v_mean.end(), 0.0f);
    EXPECT_GT(zeros, 4);
    EXPECT_LT(zeros, 60);
}

// More tokens than a sample has, in one segment of several.
TEST(Fp8, SegmentsLongerThanTheSample) {
    for (const std::int64_t n : {1023, 1024, 1025, 1500, 2500}) {
        Shape s{.q_heads = 1, .kv_heads = 1, .channels = n % 2 == 0 ? 64 : 128};
        s.q_lens = {1, 1};
        s.k_lens = {40, n};
        check(Problem(s, Normals(static_cast<unsigned>(n))));
    }
}

// Values beyond the scale that the sample suggests: their channels take the exact amax, in the
// segments and heads that have them.
TEST(Fp8, TheSampleMayLie) {
    for (const float bad : {100.0f, -1000.0f, kNaN, kInf})
        for (const std::int64_t blocks : {1, 3}) {
            Shape s{.q_heads = 2, .kv_heads = 2, .channels = 72};
            s.q_lens = {1, 1, 1};
            s.k_lens = {3000, 1200, 70};
            // Token 2998 of the first segment is in no sample; of the last one all tokens are.
            Normals normals(11);
            const auto value = [&](int o, std::int64_t i, std::int64_t t, std::int64_t h,
                                   std::int64_t c) {
                const float x = normals(o, i, t, h, c);
                const bool is_lie = o == 2 && h == 1 && (c == 3 || c == 70) &&
                                    ((i == 0 && t == 2998) || (i == 1 && t == 17));
                return is_lie ? bad : c == 5 ? (i == 1 && t == 1199 ? 1.0f : 0.0f) : x;
            };
            const Problem p(s, value);
            const RunOptions o{.multiprocessors = blocks};
            check(p, o);
            const Packed got = run(p, o);
            EXPECT_EQ(got.v_lied[2 * 0 + 0], 0u);
            EXPECT_EQ(got.v_lied[2 * 0 + 1], 1u);
            EXPECT_EQ(got.v_lied[2 * 2 + 1], 0u);
        }
}

// Tokens far from V's centre are coded as they are.
TEST(Fp8, FarTokens) {
    for (const std::int64_t channels : {8, 40, 64, 128})
        for (const std::int64_t every : {1, 7, 40}) {
            Shape s{.q_heads = 1, .kv_heads = 1, .channels = channels};
            s.q_lens = {1, 1};
            s.k_lens = {200, 70};
            Normals normals(12);
            const Problem p(
                s, [&](int o, std::int64_t i, std::int64_t t, std::int64_t h, std::int64_t c) {
                    const float x = normals(o, i, t, h, c);
                    return o != 2 ? x : t % every == every / 2 && every > 1 ? 0.1f * x : x + 3;
                });
            check(p);
            const Packed got = run(p);
            std::uint32_t far = 0;
            for (std::size_t i = 0; i < 4; i++)  // the first segment's tiles
                for (const std::size_t word : {1u, 2u})
                    far |= std::bit_cast<std::uint32_t>(got.k_scale[4 * i + word]);
            EXPECT_EQ(far != 0, every > 1) << channels;
        }
}

TEST(Fp8, PackedBytesDecodeToTheCanonicalNumbers) {
    for (const std::int64_t channels : {64, 128}) {
        Shape s{.q_heads = 2, .kv_heads = 1, .channels = channels};
        s.q_lens = {9};
        s.k_lens = {100};
        const Problem p(s, Normals(77));
        const Packed got = run(p);
        const quatt_recipe& r = *recipe::find_recipe("fp8");
        const Canonical k(r.k, p.view(1, 0, 0)), v(r.v, p.view(2, 0, 0));
        for (std::int64_t j = 0; j < 100; j++)
            for (std::int64_t c = 0; c < channels; c++) {
                const auto u = static_cast<std::size_t>(c);
                const auto tile = static_cast<std::size_t>(j / 64 * 64 * channels);
                const auto at_k = tile + static_cast<std::size_t>(k_place(channels, j % 64, c));
                const auto at_v = tile + static_cast<std::size_t>(v_place(j % 64, c));
                const float kx = got.k_mean[u] + got.k_scale[static_cast<std::size_t>(j / 64 * 4)] *
                                                     E4m3::decode(got.k8[at_k]);
                const float center = recipe::is_far_token(v.head, j) ? 0 : got.v_mean[u];
                const float vx = center + got.v_scale[u] * E4m3::decode(got.v8[at_v]);
                ASSERT_EQ(kx, k.mean[u] + k.scale(j / 64) * E4m3::decode(k.code(j, c)));
                ASSERT_EQ(vx, center + v.scale(c) * E4m3::decode(v.code(j, c)));
                // And to the input, within half a step of 3 fraction bits.
                const float half = 0x1p-4f;
                ASSERT_LE(std::fabs(kx - p.value(1, 0, j, 0, c)),
                          half * std::fabs(kx - k.mean[u]) + k.scale(j / 64) * 0x1p-9f);
                ASSERT_LE(std::fabs(vx - p.value(2, 0, j, 0, c)),
                          half * std::fabs(vx - center) + v.scale(c) * 0x1p-9f);
            }
    }
}

// A tile copied flat is read by ldmatrix without a bank conflict.
template <std::uint32_t RowBytes, std::uint32_t Rows>
simt::Result read_tile(const std::vector<std::uint8_t>& tile) {
    return simt::launch({"read_tile", {1}, {32}, RowBytes * Rows}, {}, [&] {
        const ptx::Shared shared = ptx::dynamic_shared(RowBytes * Rows);
        const ptx::Global<const std::uint8_t> from(tile.data(), RowBytes * Rows);
        for (std::uint32_t i = ptx::lane_id(); i < RowBytes * Rows / 16; i += 32)
            shared.store(16 * i, from.load<ptx::U32x4>(16 * i));
        ptx::syncwarp();
        const std::uint32_t matrix = ptx::lane_id() / 8, row = ptx::lane_id() % 8;
        for (std::uint32_t r = 0; r < Rows; r += 16)
            for (std::uint32_t c = 0; c < RowBytes / 16; c += 2) {
                std::uint32_t fragment[4];
                const std::uint32_t my_row = r + 8 * (matrix / 2) + row;
                ptx::ldmatrix_x4(fragment, shared,
                                 my_row * RowBytes + 16 * quantize::swizzled_chunk(RowBytes, my_row,
                                                                                   c + matrix % 2));
            }
    });
}

TEST(Fp8, TilesHaveNoBankConflicts) {
    const std::vector<std::uint8_t> tile(128 * 64);
    const simt::Result results[] = {read_tile<128, 64>(tile), read_tile<64, 64>(tile),
                                    read_tile<64, 128>(tile)};
    for (const simt::Result& r : results) {
        EXPECT_TRUE(r.ok()) << r.summary();
        EXPECT_GT(r.statistics.ldmatrix_rows, 0u);
        EXPECT_EQ(r.statistics.ldmatrix_conflicts, 0u);
    }
}

}  // namespace
}  // namespace quatt::test
