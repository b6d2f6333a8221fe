#include "cpu/engine.hpp"

#include <algorithm>
#include <cstdint>

#include "core/arena.hpp"
#include "core/cpu_count.hpp"
#include "core/host_call.hpp"
#include "core/packed_header.hpp"
#include "cpu/attend.hpp"
#include "cpu/tiles.hpp"

namespace quatt::cpu {
namespace {

using core::BumpAllocator;
using core::Choice;
using core::HostCall;
using core::HostSegment;
using core::Operands;
using core::Shape;
using core::Work;

// KV heads are taken in groups, so that memory grows with the length of a head and not with their
// number: as many as all threads need, more where they are small, and no more than fit in the
// target, since long heads on many threads would take whatever there is.
constexpr std::int64_t kGroupBytes = 32 << 20;
constexpr std::int64_t kTargetBytes = 512 << 20, kTargetHeads = 2;  // where none was given

// The workspace, and where K and V are packed: in it, those of a group, or all of them in memory of
// the caller. The same code counts the bytes (base null) and lays it out.
struct Layout {
    TileShape shape;
    // [heads, tiles]: the tiles of a segment that starts at token b, the s-th, begin at
    // b / 64 + s, as in core::Arena
    std::int64_t tiles;
    std::int64_t heads;  // KV heads of a group
    BumpAllocator allocator;
    std::int64_t* blocks;  // [segments + 1]: row blocks before each segment, one query head
    std::byte* scratch;    // [threads, scratch_bytes]
    std::size_t scratch_bytes;
    std::byte *k_tiles, *v_tiles;
    Operands operands;

    // `packed`: of the caller's memory; null: K and V are in the workspace.
    Layout(const quatt_problem& p, const Shape& s, const Choice& c, const Level& level,
           std::byte* base, BumpAllocator* packed)
        : shape(p.recipe, level, s.head_dim, s.head_dim_v),
          tiles(s.total_k() / kTile + s.segments),
          heads(heads_of(p, s, c.threads)),
          allocator(base),
          blocks(allocator.take<std::int64_t>(s.segments + 1)),
          scratch_bytes(block_scratch_bytes(shape)),
          operands(p.recipe, s, heads * (s.heads_q / s.heads_kv),
                   packed != nullptr ? s.heads_kv : heads, allocator,
                   packed != nullptr ? *packed : allocator) {
        scratch = allocator.take<std::byte>(c.threads * static_cast<std::int64_t>(scratch_bytes));
        BumpAllocator& of_kv = packed != nullptr ? *packed : allocator;
        const std::int64_t count = (packed != nullptr ? s.heads_kv : heads) * tiles;
        k_tiles = of_kv.take<std::byte>(count * shape.k_bytes());
        v_tiles = of_kv.take<std::byte>(count * shape.v_bytes());
    }

    [[nodiscard]] std::byte* k_of(std::int64_t head, std::int64_t b, const HostSegment& g) const {
        return k_tiles + (head * tiles + g.k_begin / kTile + b) * shape.k_bytes();
    }
    [[nodiscard]] std::byte* v_of(std::int64_t head, std::int64_t b, const HostSegment& g) const {
        return v_tiles + (head * tiles + g.k_begin / kTile + b) * shape.v_bytes();
    }

private:
    [[nodiscard]] std::int64_t heads_of(const quatt_problem& p, const Shape& s,
                                        std::int64_t threads) const {
        BumpAllocator fixed(nullptr), head(nullptr);
        fixed.take<std::int64_t>(s.segments + 1);
        fixed.take<std::byte>(threads * static_cast<std::int64_t>(block_scratch_bytes(shape)));
        const Operands one_head(p.recipe, s, s.heads_q / s.heads_kv, 1, head, head);
        head.take<std::byte>(tiles * shape.k_bytes());
        head.take<std::byte>(tiles * shape.v_bytes());
        const auto head_bytes = static_cast<std::int64_t>(std::max(head.used(), std::size_t{1}));
        const bool given = p.workspace_target_bytes != 0;
        const std::int64_t room = (given ? p.workspace_target_bytes : kTargetBytes) -
                                  static_cast<std::int64_t>(fixed.used());
        const std::int64_t fit = std::max(given ? 1 : kTargetHeads, room / head_bytes);
        const std::int64_t wanted = std::max(threads, kGroupBytes / head_bytes);
        return std::clamp(std::min(wanted, fit), INT64_C(1), s.heads_kv);
    }
};

// Operands of `heads` KV heads from the first on, those that the call's work makes; K and V packed.
Status quantize_heads(const HostCall& call, const quatt_recipe& r, const Shape& s, const Layout& w,
                      std::int64_t first, std::int64_t heads) {
    const auto [begin, end] = call.operands_of(heads);
    const std::int64_t from = begin, operands = end - begin;
    const std::int64_t group = s.heads_q / s.heads_kv;
    return call.run(s.segments * operands, [&](int, std::int64_t i) noexcept {
        const std::int64_t b = i / operands, operand = from + i % operands;
        call.quantize_head(w.operands, first, heads, b, operand);
        const HostSegment g = call.segment(b);
        const std::int64_t k = operand - heads * group, v = k - heads;
        if (v >= 0) {
            pack_values(r.v, w.operands.v.head(v, b, g.k_begin, g.k_len), w.shape, w.v_of(v, b, g));
        } else if (k >= 0) {
            pack_keys(r.k, w.operands.k.head(k, b, g.k_begin, g.k_len), w.shape, w.k_of(k, b, g));
        }
    });
}

// `slot`: where K and V of the first head lie.
Status attend_heads(const HostCall& call, const BlockOptions& options, const Shape& s,
                    const Layout& w, std::int64_t blocks, std::int64_t first, std::int64_t heads,
                    std::int64_t slot) {
    const std::int64_t group = s.heads_q / s.heads_kv, rows_of_heads = heads * group;
    return call.run(blocks * rows_of_heads, [&](int worker, std::int64_t i) noexcept {
        const std::int64_t head = i % rows_of_heads, kv = slot + head / group;
        call.with_rows<kBlockRows>(
            w.blocks, i / rows_of_heads, first * group + head,
            [&](const recipe::HeadProblem& p, std::span<const std::int64_t> rows, std::int64_t b,
                const HostSegment& g) {
                const PackedHead packed{w.operands.q.head(head, b, g.q_begin, g.q_len),
                                        w.operands.k.head(kv, b, g.k_begin, g.k_len),
                                        w.operands.v.head(kv, b, g.k_begin, g.k_len),
                                        w.k_of(kv, b, g), w.v_of(kv, b, g)};
                attend_block(p, options, packed, rows,
                             {w.scratch + static_cast<std::size_t>(worker) * w.scratch_bytes,
                              w.scratch_bytes});
            });
    });
}

}  // namespace

Choice choose(const quatt_problem& p, const Shape& s, const Level& level) {
    Choice c;
    c.key_tile = kTile;
    c.splits = p.splits != 0 ? p.splits : 1;
    c.threads = p.threads != 0 ? p.threads : core::cpu_count();
    c.workspace_bytes = Layout(p, s, c, level, nullptr, nullptr).allocator.used();
    BumpAllocator packed(nullptr);
    const Layout layout(p, s, c, level, nullptr, &packed);
    c.packed_bytes = core::kPackedHeaderBytes + packed.used();
    return c;
}

Status run(const core::Plan& plan, const core::Request& request, const Level& level) {
    const HostCall call(plan, request);
    if (Status status = call.check_values(); !status.ok()) {
        return status;
    }
    const Shape& s = plan.shape;
    const quatt_recipe& r = plan.problem.recipe;
    BumpAllocator packed(core::packed_body(request));
    const Layout w(plan.problem, s, plan.choice, level, request.workspace.data(),
                   request.work == Work::kRun ? nullptr : &packed);
    if (request.work == Work::kQuantize) {
        if (Status status = quantize_heads(call, r, s, w, 0, s.heads_kv); !status.ok()) {
            return status;
        }
        call.finish();
        return {};
    }
    const BlockOptions options{&r, level.kernels, w.shape, plan.choice.splits};
    const std::int64_t blocks = call.count_blocks(w.blocks, kBlockRows);
    for (std::int64_t first = 0; first < s.heads_kv; first += w.heads) {
        const std::int64_t heads = std::min(w.heads, s.heads_kv - first);
        if (Status status = quantize_heads(call, r, s, w, first, heads); !status.ok()) {
            return status;
        }
        const std::int64_t slot = request.work == Work::kRun ? 0 : first;
        if (Status status = attend_heads(call, options, s, w, blocks, first, heads, slot);
            !status.ok()) {
            return status;
        }
    }
    call.finish();
    return {};
}

}  // namespace quatt::cpu
