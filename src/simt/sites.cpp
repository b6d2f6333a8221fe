// Synchronisation instructions by the place of their call: which a kernel passes, and one that is
// left out or late.
#include <algorithm>
#include <bit>
#include <cstring>

#include "simt/block.hpp"

namespace quatt::simt {

bool Block::skips_watched(const char* what, const Site& site) {
    if (options_.sites != nullptr) {
        // NOTE: the newest ones are what a loop comes back to.
        const auto same = std::find_if(sites_.rbegin(), sites_.rend(), [&](const SyncSite& s) {
            return is_same(s.site, site) && std::strcmp(s.instruction, what) == 0;
        });
        if (same == sites_.rend())
            sites_.push_back({launch_.kernel, what, site, 1});
        else
            same->count++;
    }
    const SiteFault* fault = options_.fault;
    if (fault == nullptr || !is_same(fault->site, site) ||
        (fault->instruction != nullptr && std::strcmp(fault->instruction, what) != 0))
        return false;
    if (fault->kind == SiteFault::Kind::kDelay) {
        hold(what, site);
        return false;
    }
    step(site);  // a loop around a wait that does nothing ends in the step limit
    return true;
}

void Block::hold(const char* what, const Site& site) {
    step(site);
    Lane& lane = *t_lane;
    const std::uint32_t warp = lane.thread / kLanes, bit = 1u << lane.thread % kLanes;
    lane.site = site;
    lane.what = what;
    held_[warp] |= bit;
    warps_[warp].ready &= ~bit;
    if (warps_[warp].ready == 0) ready_warps_ &= ~(1u << warp);
    yield(lane, true);
}

// Nobody can run: the lanes of one warp have waited long enough.
bool Block::release_held() {
    std::uint32_t warps = 0;
    for (std::uint32_t w = 0; w < held_.size(); w++)
        warps |= (held_[w] != 0 ? 1u : 0u) << w;
    if (warps == 0) return false;
    for (std::uint32_t n = random_.below(static_cast<std::uint32_t>(std::popcount(warps))); n > 0;
         n--)
        warps &= warps - 1;
    const auto warp = static_cast<std::uint32_t>(std::countr_zero(warps));
    warps_[warp].ready |= held_[warp];
    held_[warp] = 0;
    ready_warps_ |= 1u << warp;
    return true;
}

}  // namespace quatt::simt
