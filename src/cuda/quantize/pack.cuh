// Codes and scales of recipe fp8 in the layouts of the kernels, and plain copies of 16-bit rows.
//
// Padded channels are zeros, so their codes are 0 unless the scale of their row or tile is NaN.
#pragma once

#include "cuda/quantize/input.cuh"

namespace quatt::quantize {
inline namespace QUATT_ABI {

using recipe::magnitude;

// Q: a tile of one head, or half of one, by a block. A scale for each row.
template <class Format, u32 Dim, bool Aligned16>
QUATT_DEV void pack_queries(const PackQParams& p, u32 block) {
    using C = PackQConfig<Dim>;
    const u32 lane = ptx::lane_id(), warp = ptx::warp_id();
    const u32 slot = block / p.q_heads, head = block % p.q_heads, tile = slot / C::kParts;
    const auto first_tile = [](i32 q_row, u32 s) { return tile::first_tile(q_row, s, kQueryTile); };
    const u32 s = find_segment(
        p.segments, p.segment_count, i32(tile),
        [&](const SegmentStarts& starts, u32 i) { return first_tile(starts.q_row, i); });
    const worklist::SegmentEntry segment = worklist::load_segment(p.segments, s);
    // The block's first row, and how many rows of the segment there are from its tile's first on.
    const i32 tile_row = (i32(tile) - first_tile(segment.q_row, s)) * i32(kQueryTile);
    const i32 first = tile_row + i32(slot % C::kParts * C::kBlockRows);
    const i32 rows = tile_row < 0 ? 0 : segment.q_len - first;
    // NOTE: of a tile with rows all are written, zeros past the end, since wgmma reads them.
    if (tile_row >= 0 && tile_row < segment.q_len) {
        const u32 piece = lane % C::kPieces, row0 = warp * C::kWarpRows + lane / C::kPieces;
        const i64 from = segment.q + head * p.q.strides.head + first * p.q.strides.token;
        u32 w[C::kPasses][4];
        load_pieces<Aligned16>(w, p.q, 8 * piece, rows > 0 ? p.channels : 0, [&](u32 pass) {
            return from + row_or_first(row0 + pass * C::kRows, rows) * p.q.strides.token;
        });

        // Lane `piece` of a row's lanes looks after the row of pass `piece`.
        u32 my_amax = 0;
        QUATT_UNROLL
        for (u32 pass = 0; pass < C::kPasses; pass++) {
            // Of 16-bit codes without their signs, which are ordered as the numbers are, with what
            // is not finite above all of them.
            u32 amax = 0;
            QUATT_UNROLL
            for (u32 i = 0; i < 4; i++) {
                amax = ptx::max_u16x2(amax, w[pass][i] & 0x7FFF7FFFu);
            }
            QUATT_UNROLL
            for (u32 mask = 1; mask < C::kPieces; mask *= 2) {
                amax = ptx::max_u16x2(amax, ptx::shfl_xor(amax, mask));
            }
            my_amax = piece == pass ? amax : my_amax;
        }
        const ptx::F32x2 my_pair = unpack(Format{}, my_amax);
        const float my_scale =
            scale_of(formats::bit_cast<u32>(ptx::max_or_nan(my_pair.x, my_pair.y)));
        const float my_inverse = 1.0f / my_scale;

        float my_dot = 0;
        if (p.has_lse_shift) {
            float mean[8];
            const u32 kv_heads = p.q_heads / p.heads_per_group, kv_head = head / p.heads_per_group;
            load_floats(mean, p.k_mean, (i64(s) * kv_heads + kv_head) * Dim + 8 * piece);
            QUATT_UNROLL
            for (u32 pass = 0; pass < C::kPasses; pass++) {
                float dot = 0;
                QUATT_UNROLL
                for (u32 i = 0; i < 4; i++) {
                    const ptx::F32x2 x = unpack(Format{}, w[pass][i]);
                    dot = ptx::fma(x.y, mean[2 * i + 1], ptx::fma(x.x, mean[2 * i], dot));
                }
                QUATT_UNROLL
                for (u32 mask = 1; mask < C::kPieces; mask *= 2) {
                    dot += ptx::shfl_xor(dot, mask);
                }
                my_dot = piece == pass ? dot : my_dot;
            }
        }
        const i64 at = (head * p.q_tiles + tile) * kQueryTile + slot % C::kParts * C::kBlockRows;
        const auto codes = p.q8.sub(at * Dim, i64(C::kBlockRows) * Dim);
        QUATT_UNROLL
        for (u32 pass = 0; pass < C::kPasses; pass++) {
            const float inverse = ptx::shfl_idx(my_inverse, lane - piece + pass);
            u32 half[2];
            QUATT_UNROLL
            for (u32 i = 0; i < 2; i++) {
                const ptx::F32x2 a = unpack(Format{}, w[pass][2 * i]);
                const ptx::F32x2 b = unpack(Format{}, w[pass][2 * i + 1]);
                half[i] =
                    ptx::pack_e4m3x4(a.x * inverse, a.y * inverse, b.x * inverse, b.y * inverse);
            }
            const u32 row = row0 + pass * C::kRows;
            const bool is_real = i32(row) < rows;
            codes.store(row * Dim + 16 * swizzled_chunk(Dim, row, piece / 2) + 8 * (piece % 2),
                        ptx::U32x2{is_real ? half[0] : 0, is_real ? half[1] : 0});
        }

        const i64 to = head * p.q_rows + segment.q_row + first;
        const i32 my_row = i32(row0 + piece * C::kRows);
        if (piece < C::kPasses && my_row < rows) {
            p.q_factor.store(to + my_row, my_scale * (p.softmax_scale * kLog2E));
            if (p.has_lse_shift) {
                p.lse_shift.store(to + my_row, p.softmax_scale * my_dot);
            }
        }
    }
}

// K without its centre: one tile of 64 keys of one head, with one scale.
template <class Format, u32 Dim, bool Aligned16>
QUATT_DEV void pack_keys(const PackKParams& p, u32 slot, u32 head, ptx::Shared shared) {
    using C = PackKConfig<Dim>;
    const u32 thread = ptx::thread_x(), lane = ptx::lane_id(), warp = ptx::warp_id();
    const u32 s = find_segment(p.segments, p.segment_count, i32(slot),
                               [](const SegmentStarts& starts, u32) { return starts.k_tile; });
    const worklist::SegmentEntry segment = worklist::load_segment(p.segments, s);
    const i32 first = (i32(slot) - segment.k_tile) * i32(kKeyTile);
    const i32 keys = rows_from(first, segment.k_len);
    if (keys > 0) {
        const u32 piece = thread % C::kPieces, row0 = thread / C::kPieces;
        // Rows past the end read the last one again, which does not change the amax.
        const i64 from = segment.k + head * p.k.strides.head + first * p.k.strides.token;
        u32 w[C::kPasses][4];
        load_pieces<Aligned16>(w, p.k, 8 * piece, p.channels, [&](u32 pass) {
            return from + row_or_last(row0 + pass * C::kRows, keys) * p.k.strides.token;
        });
        float mean[8];
        load_floats(mean, p.k_mean, (i64(s) * p.kv_heads + head) * Dim + 8 * piece);

        float amax = 0;
        QUATT_UNROLL
        for (u32 pass = 0; pass < C::kPasses; pass++) {
            QUATT_UNROLL
            for (u32 i = 0; i < 4; i++) {
                const ptx::F32x2 x = unpack(Format{}, w[pass][i]);
                amax = ptx::max_or_nan(amax, magnitude(x.x - mean[2 * i]));
                amax = ptx::max_or_nan(amax, magnitude(x.y - mean[2 * i + 1]));
            }
        }
        // As integers: NaN is then above all numbers, and not dropped.
        u32 amax_bits = formats::bit_cast<u32>(magnitude(amax));
        QUATT_UNROLL
        for (u32 mask = 1; mask < 32; mask *= 2) {
            amax_bits = larger(amax_bits, ptx::shfl_xor(amax_bits, mask));
        }
        if (lane == 0) {
            shared.store(4 * warp, amax_bits);
        }
        ptx::barrier_sync();
        QUATT_UNROLL
        for (u32 other = 0; other < C::kWarps; other++) {
            amax_bits = larger(amax_bits, shared.load<u32>(4 * other));
        }
        const float scale = scale_of(amax_bits), inverse = 1.0f / scale;

        const i64 at = head * p.k_tiles + slot;
        const auto to = p.k8.sub(at * C::kTileBytes, C::kTileBytes);
        QUATT_UNROLL
        for (u32 pass = 0; pass < C::kPasses; pass++) {
            const u32 row = row0 + pass * C::kRows;
            u32 codes[2];
            QUATT_UNROLL
            for (u32 half = 0; half < 2; half++) {
                const ptx::F32x2 a = unpack(Format{}, w[pass][2 * half]);
                const ptx::F32x2 b = unpack(Format{}, w[pass][2 * half + 1]);
                const u32 i = 4 * half;
                const u32 packed =
                    ptx::pack_e4m3x4((a.x - mean[i]) * inverse, (a.y - mean[i + 1]) * inverse,
                                     (b.x - mean[i + 2]) * inverse, (b.y - mean[i + 3]) * inverse);
                codes[half] = i32(row) < keys ? packed : 0;
            }
            to.store(row * Dim + 16 * swizzled_chunk(Dim, row, piece / 2) + 8 * (piece % 2),
                     ptx::U32x2{codes[0], codes[1]});
        }
        if (thread == 0) {  // words 1 and 2 are pack_values'
            p.k_scale.store(at * tile::kKeyScaleStride, scale);
            p.k_scale.store(at * tile::kKeyScaleStride + 3, 0.0f);
        }
    }
}

// Bit i: token i of the 16 of a chunk is far from the centre (recipe/sample.hpp, is_far). Lanes
// that share the chunk's tokens, Lanes of them, hold 4 channels each, and get the same bits.
template <u32 Lanes, class Value>
[[nodiscard]] QUATT_DEV u32 far_tokens(const float (&center)[4], Value&& value) {
    const u32 lane = ptx::lane_id();
    float squares[kKeyGroup], center_squares = 0;
    QUATT_UNROLL
    for (u32 i = 0; i < 4; i++) {
        center_squares = ptx::fma(center[i], center[i], center_squares);
    }
    QUATT_UNROLL
    for (u32 fold = 0; fold < (Lanes == 32 ? 5 : 4); fold++) {
        center_squares += ptx::shfl_xor(center_squares, Lanes >> (fold + 1));
    }
    if (!ptx::any(center_squares > 0)) {  // the warp's tokens have one centre
        return 0;
    }
    QUATT_UNROLL
    for (u32 key = 0; key < kKeyGroup; key++) {
        squares[key] = 0;
        QUATT_UNROLL
        for (u32 i = 0; i < 4; i++) {
            const float sum = value(key, i) + center[i];
            squares[key] = ptx::fma(sum, sum, squares[key]);
        }
    }
    // Each of four folds halves the tokens that a lane looks after, so that in the end lane l has
    // token l / (Lanes / 16).
    QUATT_UNROLL
    for (u32 fold = 0; fold < 4; fold++) {
        const u32 mask = Lanes >> (fold + 1), left = kKeyGroup >> (fold + 1);
        const bool is_upper = (lane & mask) != 0;
        QUATT_UNROLL
        for (u32 key = 0; key < kKeyGroup / 2; key++) {
            if (key < left) {
                const float mine = is_upper ? squares[key + left] : squares[key],
                            other = is_upper ? squares[key] : squares[key + left];
                squares[key] = mine + ptx::shfl_xor(other, mask);
            }
        }
    }
    if constexpr (Lanes == 32) {
        squares[0] += ptx::shfl_xor(squares[0], 1);
    }
    u32 far = ptx::ballot(recipe::is_far(squares[0], center_squares));
    if constexpr (Lanes == 16) {
        return far >> (lane & 16u) & 0xFFFFu;
    } else {
        static_assert(Lanes == 32);  // each token in two lanes: the even bits
        far &= 0x55555555u;
        far = (far | far >> 1) & 0x33333333u;
        far = (far | far >> 2) & 0x0F0F0F0Fu;
        far = (far | far >> 4) & 0x00FF00FFu;
        return (far | far >> 8) & 0xFFFFu;
    }
}

// V without its centre, but for far tokens, transposed: one tile of 64 keys of one head.
//
// thread (chunk c, lane l) reads channels 4l..4l+3 of keys 16c..16c+15 and holds, for each of them,
// the 16 bytes of chunk c of its row. Unit u = (i * 4 + c) * kLanes + (l ^ (c + 4 (i % 2))) of
// shared memory takes those of channel 4l + i: eight lanes that store (same i and c) and eight that
// load (same l, i of one parity pair, all c) meet eight different 16-byte banks.
//
// IsAgain: of a head whose sample lied. Its channels with values beyond the scale's range take the
// exact amax.
template <class Format, u32 Dim, bool Aligned16, bool IsAgain>
QUATT_DEV void pack_values(const PackVParams& p, const worklist::SegmentEntry& segment, u32 s,
                           u32 slot, u32 head, ptx::Shared shared) {
    using C = PackVConfig<Dim>;
    const u32 thread = ptx::thread_x();
    const i32 first = (i32(slot) - segment.k_tile) * i32(kKeyTile);
    const i32 keys = rows_from(first, segment.k_len);
    if (keys > 0) {
        const u32 l = thread % C::kLanes, c = thread / C::kLanes, first_key = c * kKeyGroup;
        const i64 from = segment.v + head * p.v.strides.head + first * p.v.strides.token;
        u32 w[kKeyGroup][2];
        load_pieces<Aligned16>(w, p.v, 4 * l, p.channels, [&](u32 key) {
            return from + row_or_last(first_key + key, keys) * p.v.strides.token;
        });
        float mean[4], inverse[4];
        const i64 pair = i64(s) * p.kv_heads + head, channel0 = pair * Dim + 4 * l;
        load_floats(mean, p.v_mean, channel0);
        load_floats(inverse, p.v_sample_scale, channel0);
        if constexpr (IsAgain) {
            const auto beyond = p.v_beyond.template load<ptx::U32x4>(channel0);
            inverse[0] = beyond.x != 0 ? scale_of(beyond.x) : inverse[0];
            inverse[1] = beyond.y != 0 ? scale_of(beyond.y) : inverse[1];
            inverse[2] = beyond.z != 0 ? scale_of(beyond.z) : inverse[2];
            inverse[3] = beyond.w != 0 ? scale_of(beyond.w) : inverse[3];
            if (first == 0 && c == 0) {
                p.v_scale.store(channel0,
                                ptx::F32x4{inverse[0], inverse[1], inverse[2], inverse[3]});
            }
        }
        QUATT_UNROLL
        for (u32 i = 0; i < 4; i++) {
            inverse[i] = 1.0f / inverse[i];
        }
        const auto value = [&](u32 key, u32 i) {
            const ptx::F32x2 pair_of = unpack(Format{}, w[key][i / 2]);
            return i % 2 == 0 ? pair_of.x : pair_of.y;
        };
        u32 far = far_tokens<C::kLanes>(mean, value);
        const i32 real = keys - i32(first_key);
        far &= real >= i32(kKeyGroup) ? 0xFFFFu : real <= 0 ? 0u : (1u << real) - 1;
        if (!IsAgain && l == 0) {
            p.far_keys.store((head * p.k_tiles + slot) * (2 * tile::kKeyScaleStride) + 2 + c,
                             u16(far));
        }
        // Which bytes of word t of a chunk, keys 2t, 2t + 1, 2t + 8 and 2t + 9, are of keys: those
        // past the end have code 0.
        const auto key_bytes = [&](u32 t) {
            u32 bytes = 0;
            QUATT_UNROLL
            for (u32 i = 0; i < 4; i++) {
                bytes |= i32(8 * (i / 2) + 2 * t + i % 2) < real ? 0xFFu << 8 * i : 0u;
            }
            return bytes;
        };
        const auto unit = [](u32 l_, u32 i, u32 c_) {
            return 16 * ((i * C::kChunks + c_) * C::kLanes + (l_ ^ (c_ + 4 * (i % 2))));
        };
        u32 evidence = 0;  // the top bit of a byte: some code has reached 448, or is NaN
        const auto code = [&](auto&& centred) {
            QUATT_UNROLL
            for (u32 i = 0; i < 4; i++) {
                u32 chunk[4];
                QUATT_UNROLL
                for (u32 t = 0; t < 4; t++) {
                    const auto number = [&](u32 key) { return centred(key, i) * inverse[i]; };
                    chunk[t] = ptx::pack_e4m3x4(number(2 * t), number(2 * t + 1), number(2 * t + 8),
                                                number(2 * t + 9));
                }
                if (real < i32(kKeyGroup)) {
                    QUATT_UNROLL
                    for (u32 t = 0; t < 4; t++) {
                        chunk[t] &= key_bytes(t);
                    }
                }
                QUATT_UNROLL
                for (u32 t = 0; t < 4; t++) {
                    evidence |= (chunk[t] & 0x7F7F7F7Fu) + 0x02020202u;
                }
                shared.store(unit(l, i, c), ptx::U32x4{chunk[0], chunk[1], chunk[2], chunk[3]});
            }
        };
        if (far == 0) {
            code([&](u32 key, u32 i) { return value(key, i) - mean[i]; });
        } else {
            code([&](u32 key, u32 i) {
                return value(key, i) - ((far >> key & 1) != 0 ? 0.0f : mean[i]);
            });
        }
        if (!IsAgain && (evidence & 0x80808080u) != 0) {
            // NOTE: read again, so that nothing is kept in registers for it.
            u32 beyond[4] = {0, 0, 0, 0};
            QUATT_NO_UNROLL
            for (i32 key = 0; key < smaller(real, i32(kKeyGroup)); key++) {
                u32 again[2];
                load_piece<Aligned16>(again, p.v, from + (first_key + key) * p.v.strides.token,
                                      4 * l, p.channels);
                QUATT_UNROLL
                for (u32 i = 0; i < 4; i++) {
                    const ptx::F32x2 two = unpack(Format{}, again[i / 2]);
                    const float x =
                        (i % 2 == 0 ? two.x : two.y) - ((far >> key & 1) != 0 ? 0.0f : mean[i]);
                    const float y = x * inverse[i];
                    const bool is_in = y >= -kTarget && y <= kTarget;
                    beyond[i] =
                        is_in ? beyond[i] : larger(beyond[i], formats::bit_cast<u32>(magnitude(x)));
                }
            }
            QUATT_UNROLL
            for (u32 i = 0; i < 4; i++) {
                if (beyond[i] != 0) {
                    ptx::atomic_max(p.v_beyond, channel0 + i, beyond[i]);
                    ptx::atomic_max(p.v_lied, pair, 1u);
                }
            }
        }
        ptx::barrier_sync();

        const auto to = p.v8.sub((head * p.k_tiles + slot) * C::kTileBytes, C::kTileBytes);
        QUATT_UNROLL
        for (u32 copy = 0; copy < C::kCopies; copy++) {
            const u32 at = thread + copy * C::kThreads, channel = at / C::kChunks;
            const u32 chunk = swizzled_chunk(kKeyTile, channel, at % C::kChunks);
            to.store(16 * i64(at), shared.load<ptx::U32x4>(unit(channel / 4, channel % 4, chunk)));
        }
    }
}

// Q first, then a tile of K or V a block.
template <class Format, u32 Dim, bool Aligned16>
QUATT_KERNEL(PackConfig<Dim>::kThreads, (PackConfig<Dim, Aligned16>::kBlocksPerSm)) pack(
    const PackParams p) {
    launch::pdl_wait_then_trigger();
    if (ptx::block_x() < p.q_blocks) {
        pack_queries<Format, Dim, Aligned16>(p.q, ptx::block_x());
        return;
    }
    const ptx::Shared shared = ptx::dynamic_shared(PackConfig<Dim>::kSharedBytes);
    const u32 block = ptx::block_x() - p.q_blocks;
    const u32 slot = block / (2 * p.k.kv_heads), head = block % (2 * p.k.kv_heads);
    if (head < p.k.kv_heads) {
        pack_keys<Format, Dim, Aligned16>(p.k, slot, head, shared);
    } else {
        const u32 s = find_segment(p.v.segments, p.v.segment_count, i32(slot),
                                   [](const SegmentStarts& starts, u32) { return starts.k_tile; });
        pack_values<Format, Dim, Aligned16, false>(p.v, worklist::load_segment(p.v.segments, s), s,
                                                   slot, head - p.k.kv_heads, shared);
    }
}

// V again, of the segments and heads whose sample lied: most often none, and the launch ends.
template <class Format, u32 Dim, bool Aligned16>
QUATT_KERNEL(PackConfig<Dim>::kThreads, (PackConfig<Dim, Aligned16>::kBlocksPerSm)) repack(
    const PackVParams p) {
    launch::pdl_wait_then_trigger();
    const ptx::Shared shared = ptx::dynamic_shared(PackConfig<Dim>::kSharedBytes);
    const u32 pairs = p.segment_count * p.kv_heads;
    QUATT_NO_UNROLL
    for (u32 first = 0; first < pairs; first += 32) {
        const u32 mine = first + ptx::lane_id();
        u32 lied = ptx::ballot(mine < pairs && p.v_lied.load(mine < pairs ? mine : 0) != 0);
        QUATT_NO_UNROLL
        for (u32 pair = first; lied != 0; pair++, lied >>= 1) {
            if ((lied & 1) == 0) {
                continue;
            }
            const u32 s = pair / p.kv_heads;
            const worklist::SegmentEntry segment = worklist::load_segment(p.segments, s);
            const u32 tiles = (u32(segment.k_len) + kKeyTile - 1) / kKeyTile;
            QUATT_NO_UNROLL
            for (u32 tile = ptx::block_x(); tile < tiles; tile += ptx::blocks_x()) {
                pack_values<Format, Dim, Aligned16, true>(p, segment, s, u32(segment.k_tile) + tile,
                                                          pair % p.kv_heads, shared);
                ptx::barrier_sync();  // the shared memory has been read
            }
        }
    }
}

// Rows of one head, 64 tokens, as they are, with zero channels up to Dim. Rows of K and V start at
// 64 * SegmentEntry::k_tile, and those past the end, up to the tile's, are zeros; rows of Q start
// at SegmentEntry::q_row, and there are no others.
template <Operand Which, u32 Dim, bool Aligned16>
QUATT_KERNEL(CopyRowsConfig<Dim>::kThreads) copy_rows(const CopyRowsParams p) {
    launch::pdl_wait_then_trigger();
    using C = CopyRowsConfig<Dim>;
    constexpr bool kIsQ = Which == Operand::kQ;
    const u32 thread = ptx::thread_x();
    const u32 slot = ptx::block_x() / p.heads, head = ptx::block_x() % p.heads;
    const auto first_slot = [](i32 q_row, i32 k_tile, u32 s) {
        return kIsQ ? q_row / i32(kKeyTile) + i32(s) : k_tile;
    };
    const u32 s = find_segment(p.segments, p.segment_count, i32(slot),
                               [&](const SegmentStarts& starts, u32 i) {
                                   return first_slot(starts.q_row, starts.k_tile, i);
                               });
    const worklist::SegmentEntry segment = worklist::load_segment(p.segments, s);
    const i32 first = (i32(slot) - first_slot(segment.q_row, segment.k_tile, s)) * i32(kKeyTile);
    const i32 tokens = rows_from(first, kIsQ ? segment.q_len : segment.k_len);
    if (tokens > 0) {
        const u32 piece = thread % C::kPieces, row0 = thread / C::kPieces;
        const i64 segment_from = kIsQ ? segment.q : Which == Operand::kK ? segment.k : segment.v;
        const i64 from = segment_from + head * p.x.strides.head + first * p.x.strides.token;
        u32 w[C::kPasses][4];
        QUATT_UNROLL
        for (u32 pass = 0; pass < C::kPasses; pass++) {
            const u32 row = row0 + pass * C::kRows;
            load_piece<Aligned16>(w[pass], p.x, from + row_or_last(row, tokens) * p.x.strides.token,
                                  8 * piece, i32(row) < tokens ? p.channels : 0);
        }
        const i64 row_zero = kIsQ ? i64(segment.q_row) : i64(kKeyTile) * segment.k_tile;
        const i32 rows = kIsQ ? smaller(tokens, i32(kKeyTile)) : i32(kKeyTile);
        const auto to = p.to.sub((head * p.rows + row_zero + first) * Dim, i64(rows) * Dim);
        QUATT_UNROLL
        for (u32 pass = 0; pass < C::kPasses; pass++) {
            const u32 row = row0 + pass * C::kRows;
            if (i32(row) < rows) {
                to.store(row * Dim + 8 * piece,
                         ptx::U32x4{w[pass][0], w[pass][1], w[pass][2], w[pass][3]});
            }
        }
    }
}

}  // namespace QUATT_ABI
}  // namespace quatt::quantize
