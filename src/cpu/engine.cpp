#include "cpu/engine.hpp"

#include <algorithm>
#include <cstdint>

#include "core/arena.hpp"
#include "core/cpu_count.hpp"
#include "core/host_call.hpp"
#include "cpu/attend.hpp"
#include "cpu/tiles.hpp"

namespace quatt::cpu {
namespace {

using core::BumpAllocator;
using core::Choice;
using core::HostSegment;
using core::Operands;
using core::Shape;

// KV heads are taken in groups, so that memory grows with the length of a head and not with their
// number: as many as all threads need, more where they are small, and no more than fit in the
// target, since long heads on many threads would take whatever there is.
constexpr std::int64_t kGroupBytes = 32 << 20;
constexpr std::int64_t kTargetBytes = 512 << 20, kTargetHeads = 2;  // where none was given

// The workspace. The same code counts its bytes (base null) and lays it out.
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

    Layout(const quatt_problem& p, const Shape& s, const Choice& c, const Level& level,
           std::byte* base)
        : shape(p.recipe, level, s.head_dim, s.head_dim_v),
          tiles(s.total_k() / kTile + s.segments),
          heads(heads_of(p, s, c.threads)),
          allocator(base),
          blocks(allocator.take<std::int64_t>(s.segments + 1)),
          scratch_bytes(block_scratch_bytes(shape)),
          operands(p.recipe, s, heads * (s.heads_q / s.heads_kv), heads, allocator) {
        scratch = allocator.take<std::byte>(c.threads * static_cast<std::int64_t>(scratch_bytes));
        k_tiles = allocator.take<std::byte>(heads * tiles * shape.k_bytes());
        v_tiles = allocator.take<std::byte>(heads * tiles * shape.v_bytes());
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
        const Operands one_head(p.recipe, s, s.heads_q / s.heads_kv, 1, head);
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

}  // namespace

Choice choose(const quatt_problem& p, const Shape& s, const Level& level) {
    Choice c;
    c.key_tile = kTile;
    c.splits = p.splits != 0 ? p.splits : 1;
    c.threads = p.threads != 0 ? p.threads : core::cpu_count();
    c.workspace_bytes = Layout(p, s, c, level, nullptr).allocator.used();
    return c;
}

Status run(const core::Plan& plan, const quatt_tensors& t, const Level& level,
           std::span<std::byte> workspace) {
    const core::HostCall call(plan, t);
    if (Status status = call.check_values(); !status.ok()) {
        return status;
    }
    const quatt_recipe& r = plan.problem.recipe;
    const Shape& s = plan.shape;
    const Layout w(plan.problem, s, plan.choice, level, workspace.data());
    const BlockOptions options{&r, level.kernels, w.shape, plan.choice.splits};
    const std::int64_t group = s.heads_q / s.heads_kv;
    const std::int64_t blocks = call.count_blocks(w.blocks, kBlockRows);

    for (std::int64_t first = 0; first < s.heads_kv; first += w.heads) {
        const std::int64_t heads = std::min(w.heads, s.heads_kv - first);
        const std::int64_t operands = heads * (group + 2);
        Status quantized = call.run(s.segments * operands, [&](int, std::int64_t i) noexcept {
            const std::int64_t b = i / operands, operand = i % operands;
            call.quantize_head(w.operands, first, heads, b, operand);
            const HostSegment g = call.segment(b);
            const std::int64_t k = operand - heads * group, v = k - heads;
            if (v >= 0) {
                pack_values(r.v, w.operands.v.head(v, b, g.k_begin, g.k_len), w.shape,
                            w.v_of(v, b, g));
            } else if (k >= 0) {
                pack_keys(r.k, w.operands.k.head(k, b, g.k_begin, g.k_len), w.shape,
                          w.k_of(k, b, g));
            }
        });
        if (!quantized.ok()) {
            return quantized;
        }
        Status attended = call.run(blocks * heads * group, [&](int worker,
                                                               std::int64_t i) noexcept {
            const std::int64_t head = i % (heads * group), kv = head / group;
            call.with_rows<kBlockRows>(
                w.blocks, i / (heads * group), first * group + head,
                [&](const recipe::HeadProblem& p, std::span<const std::int64_t> rows,
                    std::int64_t b, const HostSegment& g) {
                    const PackedHead packed{w.operands.q.head(head, b, g.q_begin, g.q_len),
                                            w.operands.k.head(kv, b, g.k_begin, g.k_len),
                                            w.operands.v.head(kv, b, g.k_begin, g.k_len),
                                            w.k_of(kv, b, g), w.v_of(kv, b, g)};
                    attend_block(p, options, packed, rows,
                                 {w.scratch + static_cast<std::size_t>(worker) * w.scratch_bytes,
                                  w.scratch_bytes});
                });
        });
        if (!attended.ok()) {
            return attended;
        }
    }
    call.finish();
    return {};
}

}  // namespace quatt::cpu
