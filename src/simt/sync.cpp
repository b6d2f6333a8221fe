// Barriers and fences.
#include <bit>

#include "simt/block.hpp"

namespace quatt::simt {
namespace {

constexpr std::int64_t kMaxTransactions = (1 << 20) - 1;

}  // namespace

void Block::sync_lanes() {
    clocks_.meet(t_lane->actor / kLanes * kLanes, kLanes, scratch_);
}

void Block::syncwarp(const Site& site) {
    if (skips("bar.warp.sync", site)) return;
    char none = 0;
    collective("bar.warp.sync", site, none, [this](char* const*) { sync_lanes(); });
}

void Block::barrier(std::uint32_t id, std::uint32_t count, bool wait, const Site& site) {
    const char* what = wait ? "barrier.sync" : "barrier.arrive";
    if (skips(what, site)) return;
    struct Operands {
        std::uint32_t id, count;
    } mine{id, count};
    collective(what, site, mine, [&](Operands* const* lanes) {
        for (std::uint32_t i = 0; i < kLanes; i++)
            if (lanes[i]->id != id || lanes[i]->count != count)
                give_up(Fault::kBarrierMisuse, site,
                        "lanes of a warp name different barriers or counts");
        arrive(warps_[t_lane->thread / kLanes], id, count, wait, site);
    });
}

void Block::arrive(Warp& warp, std::uint32_t id, std::uint32_t count, bool wait, const Site& site) {
    const auto threads = static_cast<std::uint32_t>(lanes_.size());
    if (id >= kNamedBarriers)
        give_up(Fault::kBadOperand, site, "barrier " + std::to_string(id) + "; there are 16");
    if (count == 0 || count % kLanes != 0 || count > threads)
        give_up(Fault::kBarrierMisuse, site,
                "count " + std::to_string(count) + " is not a multiple of 32 up to the block's " +
                    std::to_string(threads) + " threads");
    const auto index = static_cast<std::uint32_t>(&warp - warps_.data());
    NamedBarrier& barrier = barriers_[id];
    if (barrier.arrived == 0) {
        barrier.expected = count;
        barrier.site = site;
    }
    if (barrier.expected != count)
        give_up(Fault::kBarrierMisuse, site,
                "count " + std::to_string(count) + " meets count " +
                    std::to_string(barrier.expected) + " of " + describe(barrier.site));
    if ((barrier.warps >> index & 1u) != 0)
        give_up(Fault::kBarrierMisuse, site, "the warp arrives twice in one phase");

    barrier.warps |= 1u << index;
    barrier.arrived += kLanes;
    for (std::uint32_t i = 0; i < kLanes; i++)
        clocks_.release(first_actor_ + index * kLanes + i, barrier.knowledge);
    if (wait) {
        barrier.waiting |= 1u << index;
        block_warp(index);
    }
    if (barrier.arrived < barrier.expected) return;

    for (std::uint32_t waiting = barrier.waiting; waiting != 0; waiting &= waiting - 1) {
        const auto w = static_cast<std::uint32_t>(std::countr_zero(waiting));
        for (std::uint32_t i = 0; i < kLanes; i++)
            clocks_.adopt(first_actor_ + w * kLanes + i, barrier.knowledge);
        unblock_warp(w);
    }
    barrier = NamedBarrier{};
}

void Block::fence_proxy_async(const Site& site) {
    if (skips("fence.proxy.async", site)) return;
    step(site);
    clocks_.fence(t_lane->actor);
}

void Block::fence_mbarrier_init(const Site& site) {
    if (skips("fence.mbarrier_init", site)) return;
    step(site);
    for (Mbarrier& m : mbarriers_)
        if (m.init_actor == t_lane->actor) m.init_fenced = true;
}

void Block::mbarrier_init(std::uint32_t offset, std::uint32_t count, const Site& site) {
    if (skips("mbarrier.init", site)) return;
    step(site);
    if (count == 0 || count >= 1u << 20)
        return report(Fault::kBadOperand, site, "mbarrier count " + std::to_string(count));
    if (mbarriers_.size() == kMaxMbarriers)
        give_up(Fault::kBadOperand, site,
                "more than " + std::to_string(kMaxMbarriers) + " mbarriers in a block");
    if (mbarrier_at_[offset / 8] >= 0)
        report(Fault::kMbarrierMisuse, site, "initialised a second time");
    else
        shadow_.claim_mbarrier(t_lane->actor, offset, site);
    mbarrier_at_[offset / 8] = static_cast<std::int8_t>(mbarriers_.size());
    Mbarrier& m = mbarriers_.emplace_back();
    m.offset = offset;
    m.actor = clocks_.add_actor();
    m.count = m.pending = count;
    m.init_actor = t_lane->actor;
    m.init_time = clocks_.now(t_lane->actor);
    m.init_site = site;
}

Mbarrier* Block::find_mbarrier(std::uint32_t offset, const char* what, const Site& site) {
    const int index =
        offset % 8 == 0 && offset / 8 < mbarrier_at_.size() ? mbarrier_at_[offset / 8] : -1;
    if (index < 0) {
        report(Fault::kMbarrierMisuse, site, std::string(what) + " on no mbarrier");
        return nullptr;
    }
    Mbarrier& m = mbarriers_[static_cast<std::size_t>(index)];
    if (clocks_.known_by(t_lane->actor)[m.init_actor] < m.init_time)
        report(Fault::kReadRace, site,
               std::string(what) + " not ordered after the init of " + describe(m.init_site));
    return &m;
}

void Block::complete_phase_if_done(Mbarrier& m) {
    if (m.pending != 0 || m.transactions != 0) return;
    Clocks::join(m.completed, m.arriving);
    m.completed.known.resize(std::max<std::size_t>(m.completed.known.size(), m.actor + 1));
    m.completed.known[m.actor] = m.phase + 1;
    m.arriving = Knowledge{};
    m.phase++;
    m.pending = m.count;
    for (const std::uint32_t thread : m.waiters) {
        warps_[thread / kLanes].ready |= 1u << thread % kLanes;
        ready_warps_ |= 1u << thread / kLanes;
    }
    m.waiters.clear();
}

void Block::mbarrier_arrive(std::uint32_t offset, std::uint32_t count, const Site& site) {
    if (skips("mbarrier.arrive", site)) return;
    step(site);
    arrive_on(offset, count, site);
}

void Block::mbarrier_arrive_at(std::uint32_t offset, std::uint32_t rank, const Site& site) {
    if (skips("mbarrier.arrive.cluster", site)) return;
    step(site);
    if (rank >= cluster_.blocks.size())
        return report(Fault::kBadOperand, site,
                      "rank " + std::to_string(rank) + " in a cluster of " +
                          std::to_string(cluster_.blocks.size()));
    Block& target = *cluster_.blocks[rank];
    if (&target != this)
        target.remote_arrivals_[t_lane->actor] = {clocks_.now(t_lane->actor), site};
    target.arrive_on(offset, 1, site);
}

void Block::arrive_on(std::uint32_t offset, std::uint32_t count, const Site& site) {
    Mbarrier* m = find_mbarrier(offset, "arrive", site);
    if (m == nullptr) return;
    if (count == 0 || count > m->pending)
        return report(Fault::kMbarrierMisuse, site,
                      std::to_string(count) + " arrivals where " + std::to_string(m->pending) +
                          " are pending");
    clocks_.release(t_lane->actor, m->arriving);
    m->pending -= count;
    complete_phase_if_done(*m);
}

void Block::mbarrier_expect(std::uint32_t offset, std::uint32_t bytes, const Site& site) {
    if (skips("mbarrier.expect_tx", site)) return;
    step(site);
    expect_on(offset, bytes, site);
}

void Block::mbarrier_arrive_expect(std::uint32_t offset, std::uint32_t bytes, const Site& site) {
    if (skips("mbarrier.arrive.expect_tx", site)) return;
    step(site);
    expect_on(offset, bytes, site);
    arrive_on(offset, 1, site);
}

void Block::expect_on(std::uint32_t offset, std::uint32_t bytes, const Site& site) {
    Mbarrier* m = find_mbarrier(offset, "expect_tx", site);
    if (m == nullptr) return;
    m->transactions += bytes;
    if (m->transactions > kMaxTransactions)
        report(Fault::kMbarrierMisuse, site,
               std::to_string(m->transactions) + " bytes pending; 2^20 - 1 are allowed");
}

bool Block::mbarrier_test_wait(std::uint32_t offset, std::uint32_t parity, const Site& site) {
    return mbarrier_is_over(offset, parity, false, site);
}

bool Block::mbarrier_try_wait(std::uint32_t offset, std::uint32_t parity, const Site& site) {
    return mbarrier_is_over(offset, parity, true, site);
}

bool Block::mbarrier_is_over(std::uint32_t offset, std::uint32_t parity, bool waits,
                             const Site& site) {
    const char* what = waits ? "mbarrier.try_wait" : "mbarrier.test_wait";
    if (skips(what, site)) return true;
    step(site);
    Lane& lane = *t_lane;
    lane.site = site;
    lane.what = what;
    if (parity > 1) report(Fault::kBadOperand, site, "parity " + std::to_string(parity));
    Mbarrier* m = find_mbarrier(offset, waits ? "try_wait" : "test_wait", site);
    if (m == nullptr) give_up(Fault::kMbarrierMisuse, site, "wait on no mbarrier");
    if ((m->phase & 1u) == parity) {
        if (!waits) return false;
        // The instruction may come back before the phase is over; now and then it does.
        if (random_.below(8) != 0) {
            m->waiters.push_back(lane.thread);
            Warp& warp = warps_[lane.thread / kLanes];
            warp.ready &= ~(1u << lane.thread % kLanes);
            if (warp.ready == 0) ready_warps_ &= ~(1u << lane.thread / kLanes);
        }
        yield(lane, true);
        if ((m->phase & 1u) == parity) return false;
    }
    clocks_.acquire(lane.actor, m->completed);
    return true;
}

void Block::grid_wait(const Site& site) {
    if (skips("griddepcontrol.wait", site)) return;
    step(site);
    t_lane->may_access = true;
}

void Block::grid_launch_dependents(const Site& site) {
    if (skips("griddepcontrol.launch_dependents", site)) return;
    check_grid_wait("launch_dependents", site);
}

void Block::check_grid_wait(const char* what, const Site& site) {
    if (t_lane->may_access) return;
    t_lane->may_access = true;  // one report a thread
    report(Fault::kEarlyStart, site, std::string(what) + " before griddepcontrol.wait");
}

}  // namespace quatt::simt
