// setmaxnreg: a pool of registers that the warpgroups of a block give to and take from.
#include "simt/block.hpp"

namespace quatt::simt {
namespace {

constexpr std::uint32_t kFewest = 24, kMost = 256;

}  // namespace

// All warps of a warpgroup run the same changes, in the same order.
void Block::check_change(std::uint32_t warp, std::uint32_t count, bool is_increase,
                         const Site& site) {
    std::vector<Warpgroup::Change>& changes = warpgroups_[warp / kGroupWarps].changes;
    const std::uint32_t index = wgmma_warps_[warp].changes++;
    if (index == changes.size()) return changes.push_back({count, is_increase, site});
    const Warpgroup::Change& first = changes[index];
    if (!is_same(first.site, site) || first.count != count || first.is_increase != is_increase)
        give_up(Fault::kRegisterPool, site,
                "another warp of the warpgroup ran the one of " + describe(first.site));
}

bool Block::take_registers(std::uint32_t warp, std::uint32_t count) {
    WgmmaWarp& state = wgmma_warps_[warp];
    const std::uint64_t needed = std::uint64_t{kLanes} * (count - state.count);
    if (needed > free_registers_) return false;
    free_registers_ -= needed;
    has_taken_registers_ = has_taken_registers_ || needed != 0;
    state.count = count;
    return true;
}

void Block::set_registers(std::uint32_t count, bool is_increase, const Site& site) {
    if (skips("setmaxnreg", site)) return;
    collective("setmaxnreg", site, count, [&](std::uint32_t* const* lanes) {
        const std::uint32_t warp = warp_in_group("setmaxnreg", site);
        for (std::uint32_t lane = 0; lane < kLanes; lane++)
            if (*lanes[lane] != count)
                give_up(Fault::kBadOperand, site, "lanes of a warp name different counts");
        if (count < kFewest || count > kMost || count % 8 != 0)
            give_up(Fault::kBadOperand, site,
                    std::to_string(count) + " registers, not a multiple of 8 from 24 to 256");
        check_change(warp, count, is_increase, site);
        WgmmaWarp& state = wgmma_warps_[warp];
        if (is_increase ? count < state.count : count > state.count)
            give_up(Fault::kRegisterPool, site,
                    std::string(is_increase ? "an increase" : "a decrease") + " from " +
                        std::to_string(state.count) + " to " + std::to_string(count));
        if (!is_increase) {
            free_registers_ += std::uint64_t{kLanes} * (state.count - count);
            state.count = count;
            for (std::uint32_t w = 0; w < wgmma_warps_.size(); w++) {
                const std::uint32_t wanted = wgmma_warps_[w].wanted;
                if (wanted == 0 || !take_registers(w, wanted)) continue;
                wgmma_warps_[w].wanted = 0;
                unblock_warp(w);
            }
            return;
        }
        const auto warps = static_cast<std::uint32_t>(warps_.size());
        const std::uint32_t all = launch_.registers * warps;
        const std::uint32_t least = count * kGroupWarps + kFewest * (warps - kGroupWarps);
        if (least > all)
            give_up(Fault::kRegisterPool, site,
                    std::to_string(count) + " registers a thread can never be had: the block has " +
                        std::to_string(launch_.registers));
        if (take_registers(warp, count)) return;
        state.wanted = count;
        block_warp(warp);
    });
}

void Block::end_registers() {
    for (std::size_t g = 0; g < warpgroups_.size(); g++)
        for (std::uint32_t w = 0; w < kGroupWarps; w++)
            if (wgmma_warps_[g * kGroupWarps + w].changes != warpgroups_[g].changes.size())
                report(
                    Fault::kRegisterPool, warpgroups_[g].changes.back().site,
                    "not run by warp " + std::to_string(g * kGroupWarps + w) + " of its warpgroup");
    if (free_registers_ == 0 || has_taken_registers_) return;
    // The code of those that should have taken them counts on more registers than it has.
    for (const Warpgroup& group : warpgroups_)
        if (!group.changes.empty())
            report(Fault::kRegisterPool, group.changes.front().site,
                   "gives registers back, and nobody in the block takes any");
}

}  // namespace quatt::simt
