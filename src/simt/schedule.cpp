// Who runs next.
#include <bit>

#include "simt/block.hpp"

namespace quatt::simt {

void Block::report(Fault fault, const Site& site, const std::string& detail) {
    reporter_.add(fault, site, t_lane != nullptr ? t_lane->thread : 0, Site(),
                  [&] { return detail; });
}

void Block::give_up(Fault fault, const Site& site, const std::string& detail) {
    report(fault, site, detail);
    cancelling_ = true;
    throw Cancelled{};
}

void Block::step(const Site& site) {
    if (cancelling_) throw Cancelled{};
    if (++steps_ > options_.max_steps)
        give_up(Fault::kStepLimit, site,
                "more than " + std::to_string(options_.max_steps) + " steps: endless loop?");
    if (steps_ >= next_due_) land_due();
}

std::uint32_t Block::pick_warp(std::uint32_t ready_warps, std::uint32_t current) {
    const auto nth = [&](std::uint32_t set, std::uint32_t n) {
        for (; n > 0; n--)
            set &= set - 1;
        return static_cast<std::uint32_t>(std::countr_zero(set));
    };
    const auto count = static_cast<std::uint32_t>(std::popcount(ready_warps));
    switch (order_) {
        case WarpOrder::kRandom:
            return nth(ready_warps, random_.below(count));
        case WarpOrder::kRoundRobin: {
            const std::uint32_t later = ready_warps & ~(((2u << current) - 1u));
            return nth(later != 0 ? later : ready_warps, 0);
        }
        case WarpOrder::kGreedy:
            return (ready_warps >> current & 1u) != 0 ? current : nth(ready_warps, 0);
        case WarpOrder::kStarve: {
            const std::uint32_t others = ready_warps & ~(1u << starved_warp_);
            if (others == 0) return starved_warp_;
            return nth(others, random_.below(static_cast<std::uint32_t>(std::popcount(others))));
        }
    }
    return nth(ready_warps, 0);
}

Lane* Block::pick(const Lane* current, bool leave_warp) {
    if (cluster_.blocks.size() > 1) return pick_in_cluster(current, leave_warp);
    while (ready_warps_ == 0)
        if (!land_one_load() && !release_held()) return nullptr;
    return pick_lane(current, leave_warp);
}

// Of this block, which has a warp that can run. `current` is of this block, or nullptr.
Lane* Block::pick_lane(const Lane* current, bool leave_warp) {
    const std::uint32_t own = current != nullptr ? current->thread / kLanes : 0;
    std::uint32_t warp = own;
    if (current == nullptr || leave_warp || warps_[own].ready == 0)
        warp = pick_warp(ready_warps_, own);
    // Lanes of a warp start at a different one in each schedule: none may count on being first.
    const std::uint32_t turned = std::rotr(warps_[warp].ready, static_cast<int>(first_lane_));
    const auto first = static_cast<std::uint32_t>(std::countr_zero(turned));
    return &lanes_[warp * kLanes + (first + first_lane_) % kLanes];
}

void Block::switch_to(Lane* next) {
    Lane* from = t_lane;
    t_lane = next;
    t_block = next != nullptr ? next->block : nullptr;
    statistics_.switches++;
    Fiber& main = cluster_.main;
    switch_fiber(from != nullptr ? from->fiber : main, next != nullptr ? next->fiber : main,
                 from != nullptr && from->done);
}

void Block::yield(Lane& lane, bool leave_warp) {
    Lane* next = pick(&lane, leave_warp);
    if (next != &lane) switch_to(next);
    if (cancelling_) throw Cancelled{};
}

void Block::enter_collective(const char* what, const Site& site, void* operands) {
    step(site);
    Lane& lane = *t_lane;
    const std::uint32_t index = lane.thread / kLanes, bit = 1u << lane.thread % kLanes;
    Warp& warp = warps_[index];
    lane.site = site;
    lane.what = what;
    if (warp.alive != kAllLanes)
        give_up(Fault::kDivergence, site,
                std::string(what) + " after a lane of the warp has ended");
    if (warp.arrived == 0) {
        warp.what = what;
        warp.site = site;
    } else if (!is_same(warp.site, site) || std::strcmp(warp.what, what) != 0) {
        give_up(Fault::kDivergence, site,
                std::string(what) + " meets " + warp.what + " of " + describe(warp.site));
    }
    warp.operands[lane.thread % kLanes] = operands;
    warp.arrived |= bit;
    warp.ready &= ~bit;
    if (warp.ready == 0) ready_warps_ &= ~(1u << index);
}

void Block::after_collective(Lane& lane) {
    statistics_.collectives++;
    const bool blocked = (warps_[lane.thread / kLanes].ready >> lane.thread % kLanes & 1u) == 0;
    if (blocked || (preempt_in_256_ != 0 && random_.below(256) < preempt_in_256_))
        yield(lane, true);
}

void Block::finish(Lane& lane, bool kernel_returned) {
    Warp& warp = warps_[lane.thread / kLanes];
    const std::uint32_t bit = 1u << lane.thread % kLanes;
    if (kernel_returned) leave_checks(lane);
    if (kernel_returned) check_grid_wait("the end", lane.site);
    if (kernel_returned && warp.arrived != 0) {
        report(Fault::kDivergence, warp.site,
               "a lane of the warp ends while others wait in " + std::string(warp.what));
        cancelling_ = true;
    }
    lane.done = true;
    done_++;
    warp.alive &= ~bit;
    warp.ready &= ~bit;
    if (warp.ready == 0) ready_warps_ &= ~(1u << lane.thread / kLanes);
    if (warp.alive == 0) end_cluster_barrier_if_full();
    if (cancelling_) {
        switch_to(nullptr);
    } else {
        switch_to(pick(&lane, false));
    }
}

void Block::lane_main(boost::context::detail::transfer_t transfer) {
    fiber_started(transfer);
    Lane& lane = *t_lane;
    Block& block = *t_block;
    bool returned = false;
    std::string thrown;
    try {
        if (!block.cancelling_) {
            block.call_(block.kernel_);
            returned = true;
        }
    } catch (const Cancelled&) {
    } catch (const std::exception& e) {
        thrown = e.what();
    } catch (...) {
        thrown = "of an unknown type";
    }
    // NOTE: nothing above switches fibers while an exception is being handled.
    if (!thrown.empty()) {
        block.report(Fault::kException, lane.site, thrown);
        block.cancelling_ = true;
    }
    block.finish(lane, returned);
    __builtin_unreachable();
}

void Block::end_checks() {
    for (const NamedBarrier& b : barriers_) {
        if (b.arrived == 0) continue;
        report(Fault::kBarrierMisuse, b.site,
               "the block ends with " + std::to_string(b.arrived) + " of " +
                   std::to_string(b.expected) + " threads arrived");
    }
    for (const Mbarrier& m : mbarriers_) {
        if (!m.has_load) continue;
        bool is_known = false;
        for (const Lane& lane : lanes_)
            is_known = is_known || clocks_.known_by(lane.actor)[m.actor] > m.last_load_phase;
        if (!is_known)
            report(Fault::kInFlight, m.load_site, "the block ends and nobody waited for this load");
    }
    end_warpgroups();
    end_registers();
    end_remote_arrivals();
}

void Block::report_deadlock() {
    for (const Lane& lane : lanes_) {
        if (lane.done) continue;
        t_lane = &lanes_[lane.thread];
        report(Fault::kDeadlock, lane.site, std::string("waits in ") + lane.what);
    }
    t_lane = nullptr;
    for (const Mbarrier& m : mbarriers_) {
        if (m.waiters.empty()) continue;
        report(Fault::kDeadlock, m.init_site,
               "this mbarrier is in phase " + std::to_string(m.phase) + ", waits for " +
                   std::to_string(m.pending) + " arrivals and " + std::to_string(m.transactions) +
                   " bytes");
    }
    for (const NamedBarrier& b : barriers_) {
        if (b.arrived == 0) continue;
        report(Fault::kDeadlock, b.site,
               "this barrier has " + std::to_string(b.arrived) + " of " +
                   std::to_string(b.expected) + " threads");
    }
    end_warpgroups();
    report_waiting_registers();
}

void Block::block_warp(std::uint32_t warp) {
    warps_[warp].ready = 0;
    ready_warps_ &= ~(1u << warp);
}

void Block::unblock_warp(std::uint32_t warp) {
    warps_[warp].ready = warps_[warp].alive;
    ready_warps_ |= 1u << warp;
}

Block::Block(const Launch& launch, const Options& options, Cluster& cluster, std::uint32_t rank,
             Stacks& stacks)
    : launch_(launch),
      options_(options),
      cluster_(cluster),
      rank_(rank),
      first_actor_(rank * launch.threads.x * launch.threads.y * launch.threads.z),
      stacks_(stacks),
      clocks_(cluster.clocks),
      cancelling_(cluster.cancelling) {
    const std::uint32_t threads = launch.threads.x * launch.threads.y * launch.threads.z;
    lanes_.resize(threads);
    warps_.resize(threads / kLanes);
    barriers_.resize(kNamedBarriers);
    const SiteFault* fault = options.fault;
    const bool is_planted =
        fault != nullptr && (fault->kernel == nullptr || launch.kernel == fault->kernel);
    if (!is_planted) options_.fault = nullptr;
    watches_sites_ = is_planted || options.sites != nullptr;
}

void Block::begin(Dim3 index, void (*call)(const void*), const void* kernel) {
    const auto threads = static_cast<std::uint32_t>(lanes_.size());
    const auto warps = static_cast<std::uint32_t>(warps_.size());
    index_ = index;
    call_ = call;
    kernel_ = kernel;

    const std::uint64_t linear =
        (std::uint64_t{index.z} * launch_.grid.y + index.y) * launch_.grid.x + index.x;
    random_ = Random(options_.seed * 0x2545F4914F6CDD1Du + linear);
    completion_ = options_.completion.value_or(static_cast<Completion>(options_.seed % 3));
    order_ = options_.order.value_or(static_cast<WarpOrder>(options_.seed / 3 % 4));
    constexpr std::uint32_t kPreemptIn256[4] = {0, 4, 64, 256};
    preempt_in_256_ = kPreemptIn256[random_.below(4)];
    first_lane_ = random_.below(kLanes);
    starved_warp_ = random_.below(warps);

    reporter_.begin(launch_.kernel, index, threads);
    shadow_.reset(launch_.shared_bytes, warps, first_actor_, options_);
    warpgroups_.clear();
    warpgroups_.resize(warps / kGroupWarps);  // of four whole warps
    wgmma_warps_.clear();
    wgmma_warps_.resize(warps);
    for (WgmmaWarp& warp : wgmma_warps_)
        warp.count = launch_.registers;
    free_registers_ = 0;
    has_taken_registers_ = false;
    remote_arrivals_.clear();
    waiting_warps_ = 0;
    // NaN in every format that is stored there, so that a value which was never written shows.
    shared_.assign(launch_.shared_bytes, 0xFF);
    barriers_.assign(kNamedBarriers, NamedBarrier{});
    mbarriers_.clear();
    mbarriers_.reserve(kMaxMbarriers);
    mbarrier_at_.assign(launch_.shared_bytes / 8, -1);
    loads_.clear();
    steps_ = 0;
    next_due_ = AsyncCopy::kNotDue;
    done_ = 0;
    for (std::uint32_t w = 0; w < warps; w++) {
        warps_[w] = Warp{};
        warps_[w].ready = warps_[w].alive = kAllLanes;
    }
    ready_warps_ = warps == 32 ? kAllLanes : (1u << warps) - 1u;
    held_.assign(warps, 0);
    for (std::uint32_t t = 0; t < threads; t++) {
        lanes_[t] = Lane{};
        lanes_[t].block = this;
        lanes_[t].thread = t;
        lanes_[t].may_access = !launch_.follows;
        lanes_[t].actor = first_actor_ + t;
        make_fiber(lanes_[t].fiber, stacks_.low(first_actor_ + t), stacks_.top(first_actor_ + t),
                   &Block::lane_main);
    }
}

void Block::start_one() {
    switch_to(pick(nullptr, true));
}

void Block::finish_run() {
    for (Lane& lane : lanes_) {
        if (!lane.done) switch_to(&lane);
        t_lane = nullptr;
        destroy_fiber(lane.fiber);
    }
    statistics_.steps += steps_;
    if (options_.measure_stack)
        for (const Lane& lane : lanes_)
            statistics_.stack_bytes = std::max(statistics_.stack_bytes, stacks_.used(lane.actor));
}

}  // namespace quatt::simt
