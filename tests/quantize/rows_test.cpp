// Copies of 16-bit rows, and the extents and conditions that config.hpp states.
#include "quantize/problem.hpp"

namespace quatt::test {
namespace {

template <quantize::Operand Which, std::uint32_t Dim, bool Aligned16>
void copy(const quantize::CopyRowsParams& params, std::int64_t slots, const simt::Options& o) {
    launch("copy_rows", quantize::copy_rows_launch<Dim>(slots, params.heads), o,
           [&] { quantize::copy_rows<Which, Dim, Aligned16>(params); });
}

template <quantize::Operand Which>
void check_copy(const Problem& p, bool wide, const simt::Options& o) {
    constexpr bool kIsQ = Which == quantize::Operand::kQ;
    constexpr int kOperand = static_cast<int>(Which);
    SCOPED_TRACE(to_string(p.shape) + " operand " + std::to_string(kOperand));
    const auto n = static_cast<std::int64_t>(p.segments.size());
    const std::int64_t dim = p.dim(), d = p.shape.channels;
    const std::int64_t heads = kIsQ ? p.shape.q_heads : p.shape.kv_heads;
    const std::int64_t rows = kIsQ ? p.q_tokens : 64 * tile::tiles_of(p.k_tokens, n, 64);
    const std::int64_t slots =
        kIsQ ? tile::tiles_of(p.q_tokens, n, 64) : tile::tiles_of(p.k_tokens, n, 64);
    std::vector<std::uint16_t> to(static_cast<std::size_t>(heads * rows * dim), 0xFFFF);
    std::vector<std::uint16_t> want = to;
    quantize::CopyRowsParams params{};
    params.segments = all_const(p.table);
    params.segment_count = static_cast<std::uint32_t>(n);
    params.heads = static_cast<std::uint32_t>(heads);
    params.channels = static_cast<std::uint32_t>(d);
    params.x = p.operands[kOperand].input();
    params.rows = rows;
    params.to = all(to);
    if (dim == 64)
        wide ? copy<Which, 64, true>(params, slots, o) : copy<Which, 64, false>(params, slots, o);
    else
        wide ? copy<Which, 128, true>(params, slots, o) : copy<Which, 128, false>(params, slots, o);

    for (std::size_t s = 0; s < p.segments.size(); s++) {
        const worklist::SegmentEntry& g = p.segments[s];
        const std::int64_t len = kIsQ ? g.q_len : (g.k_len + 63) / 64 * 64;
        for (std::int64_t h = 0; h < heads; h++)
            for (std::int64_t j = 0; j < len; j++)
                for (std::int64_t c = 0; c < dim; c++) {
                    const std::int64_t row = h * rows + (kIsQ ? g.q_row : 64 * g.k_tile) + j;
                    const bool is_real = c < d && j < p.tokens_of(kOperand, s);
                    want.at(static_cast<std::size_t>(row * dim + c)) =
                        is_real ? p.operands[kOperand].at(p.offset_of(kOperand, s), j, h, c) : 0;
                }
    }
    EXPECT_TRUE(to == want);
}

TEST(CopyRows, EveryLayoutAndHeadSize) {
    std::uint64_t seed = 0;
    for (const Layout layout : {Layout::kFused, Layout::kDense, Layout::kHeadsOut, Layout::kNarrow})
        for (const std::int64_t channels : {1, 36, 40, 64, 80, 101, 128}) {
            Shape s{.q_heads = 2, .kv_heads = 1, .channels = channels, .layout = layout};
            s.q_lens = {70, 1, 0, 64};
            s.k_lens = {63, 1, 140, 0};
            const Problem p(s, Normals(static_cast<unsigned>(seed)));
            for (const bool wide : {false, true}) {
                if (wide && !p.is_aligned16()) continue;
                check_copy<quantize::Operand::kQ>(p, wide, {.seed = seed});
                check_copy<quantize::Operand::kK>(p, wide, {.seed = seed});
                check_copy<quantize::Operand::kV>(p, wide, {.seed = seed});
                seed++;
            }
        }
}

TEST(CopyRows, InvalidSegmentsAreEmpty) {
    for (const std::size_t first : {0u, 1u, 2u}) {
        Shape s{.q_heads = 2, .kv_heads = 1, .channels = 36};
        s.q_lens = {70, 190, 30};
        s.k_lens = {140, 90, 200};
        Problem p(s, Normals(6));
        p.invalidate(first);
        check_copy<quantize::Operand::kQ>(p, false, {});
        check_copy<quantize::Operand::kK>(p, false, {});
        check_copy<quantize::Operand::kV>(p, false, {});
    }
}

TEST(Config, TilesOfSegmentsDoNotMeetAndFit) {
    std::mt19937 random(1);
    for (int i = 0; i < 200; i++) {
        std::int64_t first = 0, end = 0, segments = 1 + random() % 40;
        for (std::int64_t s = 0; s < segments; s++) {
            const std::int64_t len = random() % 3 == 0 ? 0 : random() % (i % 2 == 0 ? 5 : 500);
            const std::int64_t at = tile::first_tile(first, static_cast<std::uint32_t>(s), 64);
            EXPECT_LE(end, at);
            end = at + (len + 63) / 64;
            first += len;
        }
        EXPECT_LE(end, tile::tiles_of(first, segments, 64));
    }
}

TEST(Config, WideNeedsAlignedRowsOfWholePieces) {
    const auto wide = [](std::uint64_t address, std::int64_t batch, std::int64_t token,
                         std::int64_t head, std::int64_t channel, std::int64_t channels) {
        return quantize::is_aligned16(address, batch, {token, head, channel}, channels);
    };
    EXPECT_TRUE(wide(1 << 20, 0, 4096, 128, 1, 128));
    EXPECT_TRUE(wide(16, 8, 8, 0, 1, 40));
    EXPECT_FALSE(wide(8, 0, 4096, 128, 1, 128));
    EXPECT_FALSE(wide(16, 4, 4096, 128, 1, 128));
    EXPECT_FALSE(wide(16, 0, 4095, 128, 1, 128));
    EXPECT_FALSE(wide(16, 0, 4096, 100, 1, 128));
    EXPECT_FALSE(wide(16, 0, 4096, 128, 2, 128));
    EXPECT_FALSE(wide(16, 0, 4096, 128, 1, 100));
}

}  // namespace
}  // namespace quatt::test
