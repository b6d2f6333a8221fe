// Clusters: blocks that run at once, take turns on one OS thread, and reach each other's barriers.
#include <algorithm>
#include <bit>

#include "simt/block.hpp"

namespace quatt::simt {

Cluster::Cluster(const Launch& launch, const Options& options, Stacks& stacks) {
    for (std::uint32_t rank = 0; rank < launch.cluster; rank++)
        blocks.push_back(std::make_unique<Block>(launch, options, *this, rank, stacks));
}

void Cluster::run(Dim3 index, void (*call)(const void*), const void* kernel) {
    const Dim3 shape = blocks[0]->launch().threads;
    const std::uint32_t threads = shape.x * shape.y * shape.z;
    const auto count = static_cast<std::uint32_t>(blocks.size());
    clocks.reset(count * threads, count * (kMaxMbarriers + threads / kLanes));
    cancelling = false;
    barrier = ClusterBarrier{};
    for (std::uint32_t rank = 0; rank < count; rank++)
        blocks[rank]->begin({index.x + rank, index.y, index.z}, call, kernel);
    adopt_thread(main);
    blocks[0]->start_one();
    // Back here when nothing can run: all have ended, or all wait, or they were given up.
    bool is_deadlock = false;
    for (const auto& block : blocks) {
        if (block->has_ended() || cancelling) continue;
        block->report_deadlock();
        is_deadlock = true;
    }
    cancelling = cancelling || is_deadlock;
    if (!cancelling)
        for (const auto& block : blocks)
            block->end_checks();
    for (const auto& block : blocks)
        block->finish_run();
}

// The blocks stand in the place of warps: which of them goes on follows the same orders.
Lane* Block::pick_in_cluster(const Lane* current, bool leave_warp) {
    if (current != nullptr && !leave_warp && warps_[current->thread / kLanes].ready != 0)
        return pick_lane(current, false);
    const auto& blocks = cluster_.blocks;
    for (;;) {
        std::uint32_t ready = 0, loading = 0;
        for (std::uint32_t rank = 0; rank < blocks.size(); rank++) {
            ready |= (blocks[rank]->ready_warps_ != 0 ? 1u : 0u) << rank;
            loading |= (blocks[rank]->loads_.empty() ? 0u : 1u) << rank;
        }
        const std::uint32_t from = ready != 0 ? ready : loading;
        if (from == 0) {
            if (std::none_of(blocks.begin(), blocks.end(),
                             [](const auto& block) { return block->release_held(); }))
                return nullptr;
            continue;
        }
        Block& next = *blocks[pick_warp(from, rank_)];
        if (ready != 0) return next.pick_lane(&next == this ? current : nullptr, leave_warp);
        (void)next.land_one_load();
    }
}

std::uint32_t Block::living_warps() const {
    std::uint32_t count = 0;
    for (const Warp& warp : warps_)
        count += warp.alive != 0 ? 1 : 0;
    return count;
}

void Block::cluster_sync(const Site& site) {
    if (skips("barrier.cluster", site)) return;
    char none = 0;
    collective("barrier.cluster", site, none, [&](char* const*) {
        const std::uint32_t warp = t_lane->thread / kLanes;
        ClusterBarrier& barrier = cluster_.barrier;
        if (barrier.arrived++ == 0) barrier.site = site;
        for (std::uint32_t i = 0; i < kLanes; i++)
            clocks_.release(first_actor_ + warp * kLanes + i, barrier.knowledge);
        waiting_warps_ |= 1u << warp;
        block_warp(warp);
        end_cluster_barrier_if_full();
    });
}

// Warps that have ended count as arrived.
void Block::end_cluster_barrier_if_full() {
    ClusterBarrier& barrier = cluster_.barrier;
    if (barrier.arrived == 0) return;
    std::uint32_t expected = 0;
    for (const auto& block : cluster_.blocks)
        expected += block->living_warps();
    if (barrier.arrived < expected) return;
    for (const auto& block : cluster_.blocks) {
        for (std::uint32_t bits = block->waiting_warps_; bits != 0; bits &= bits - 1) {
            const auto warp = static_cast<std::uint32_t>(std::countr_zero(bits));
            for (std::uint32_t i = 0; i < kLanes; i++)
                clocks_.adopt(block->first_actor_ + warp * kLanes + i, barrier.knowledge);
            block->unblock_warp(warp);
        }
        block->waiting_warps_ = 0;
    }
    barrier = ClusterBarrier{};
}

// Shared memory lives as long as its block: somebody there must have known of each arrival.
void Block::end_remote_arrivals() {
    for (const auto& [actor, arrival] : remote_arrivals_) {
        bool is_known = false;
        for (const Lane& lane : lanes_)
            is_known = is_known || clocks_.known_by(lane.actor)[actor] >= arrival.time;
        if (!is_known)
            report(Fault::kEarlyExit, arrival.site,
                   "nothing keeps block " + std::to_string(rank_) +
                       " of the cluster from ending before this arrival");
    }
}

}  // namespace quatt::simt
