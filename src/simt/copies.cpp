// Asynchronous copies: cp.async, cp.async.bulk and cp.async.bulk.tensor.
#include <cstring>

#include "simt/block.hpp"

namespace quatt::simt {

Completion Block::draw_completion() {
    if (completion_ != Completion::kMixed) return completion_;
    const std::uint32_t draw = random_.below(3);
    if (draw == 0) return Completion::kAtOnce;
    return draw == 1 ? Completion::kLastMoment : Completion::kMixed;
}

std::uint64_t Block::draw_due() {
    constexpr std::uint32_t kWithin[3] = {30, 1000, 30000};
    const std::uint64_t due = steps_ + 1 + random_.below(kWithin[random_.below(3)]);
    next_due_ = std::min(next_due_, due);
    return due;
}

// Picks the moment at which a copy takes place.
void Block::schedule(AsyncCopy& copy) {
    const Completion how = draw_completion();
    copy.due = AsyncCopy::kNotDue;
    if (how == Completion::kAtOnce) land(copy);
    if (how == Completion::kMixed) copy.due = draw_due();
}

void Block::land(AsyncCopy& copy) {
    if (copy.landed) return;
    copy.landed = true;
    switch (copy.kind) {
        case AsyncCopy::Kind::kStore:
            if (copy.map != nullptr)
                copy.map->store(shared(copy.shared), copy.shared, copy.origin);
            else
                std::memcpy(copy.global, shared(copy.shared), copy.bytes);
            return;
        case AsyncCopy::Kind::kLoad:
        case AsyncCopy::Kind::kCopy:
            if (copy.map != nullptr) {
                copy.map->load(shared(copy.shared), copy.shared, copy.origin);
            } else {
                if (copy.source_bytes != 0)
                    std::memcpy(shared(copy.shared), copy.global, copy.source_bytes);
                std::memset(shared(copy.shared) + copy.source_bytes, 0,
                            copy.bytes - copy.source_bytes);
            }
            break;
    }
    if (copy.kind != AsyncCopy::Kind::kLoad) return;
    Mbarrier& m = mbarriers_[copy.mbarrier];
    if (m.phase != copy.phase)
        reporter_.add(Fault::kMbarrierMisuse, copy.site, copy.thread, m.init_site, [] {
            return std::string("bytes arrive after their phase is over: expect_tx too small?");
        });
    m.transactions -= copy.bytes;
    complete_phase_if_done(m);
}

void Block::land_due() {
    next_due_ = AsyncCopy::kNotDue;
    const auto visit = [&](AsyncCopy& copy) {
        if (copy.landed) return;
        if (copy.due <= steps_)
            land(copy);
        else
            next_due_ = std::min(next_due_, copy.due);
    };
    for (Lane& lane : lanes_) {
        for (AsyncCopy& copy : lane.copies)
            visit(copy);
        for (AsyncCopy& copy : lane.stores)
            visit(copy);
    }
    for (AsyncCopy& copy : loads_)
        visit(copy);
    std::erase_if(loads_, [](const AsyncCopy& copy) { return copy.landed; });
    land_due_wgmmas();
}

// Nobody can run: the last moment of some load has come.
bool Block::land_one_load() {
    if (loads_.empty()) return false;
    const std::size_t i = random_.below(static_cast<std::uint32_t>(loads_.size()));
    land(loads_[i]);
    loads_.erase(loads_.begin() + static_cast<std::ptrdiff_t>(i));
    return true;
}

void Block::copy(std::uint32_t shared, const std::uint8_t* global, std::uint32_t bytes,
                 std::uint32_t source_bytes, const Site& site) {
    step(site);
    Lane& lane = *t_lane;
    shadow_.copy_issued(lane.actor, shared, bytes, site);
    AsyncCopy copy;
    copy.kind = AsyncCopy::Kind::kCopy;
    copy.thread = lane.thread;
    copy.shared = shared;
    copy.bytes = bytes;
    copy.global = const_cast<std::uint8_t*>(global);
    copy.source_bytes = source_bytes;
    copy.group = lane.copy_group;
    copy.site = site;
    schedule(copy);
    lane.copies.push_back(copy);
}

void Block::copy_commit(const Site& site) {
    if (skips("cp.async.commit_group", site)) return;
    step(site);
    t_lane->copy_group++;
}

void Block::copy_wait(std::uint32_t groups_left, const Site& site) {
    if (skips("cp.async.wait_group", site)) return;
    step(site);
    Lane& lane = *t_lane;
    std::erase_if(lane.copies, [&](AsyncCopy& copy) {
        if (copy.group + groups_left >= lane.copy_group) return false;
        land(copy);
        shadow_.copy_waited(lane.actor, copy.shared, copy.bytes);
        return true;
    });
}

void Block::start_load(AsyncCopy load, std::uint32_t mbarrier_offset) {
    const std::uint32_t issuer = t_lane->actor;  // of any block of the cluster
    Mbarrier* m = find_mbarrier(mbarrier_offset, "bulk copy", load.site);
    if (m == nullptr) return;
    load.kind = AsyncCopy::Kind::kLoad;
    load.thread = t_lane->thread;
    if (!m->init_fenced && clocks_.fenced_for(issuer)[m->init_actor] < m->init_time)
        report(Fault::kProxyFence, load.site,
               "no fence after the mbarrier.init of " + describe(m->init_site));
    load.mbarrier = static_cast<std::uint32_t>(m - mbarriers_.data());
    load.phase = m->phase;
    m->has_load = true;
    m->last_load_phase = m->phase;
    m->load_site = load.site;
    shadow_.bulk_write_issued(issuer, load.shared, load.bytes, m->actor, m->phase, load.site);
    schedule(load);
    if (!load.landed) loads_.push_back(load);
}

void Block::bulk_load(std::uint32_t shared, const std::uint8_t* global, std::uint32_t bytes,
                      std::uint32_t mbarrier, const Site& site) {
    step(site);
    AsyncCopy load;
    load.shared = shared;
    load.global = const_cast<std::uint8_t*>(global);
    load.bytes = load.source_bytes = bytes;
    load.site = site;
    start_load(load, mbarrier);
}

void Block::bulk_load_multicast(std::uint32_t shared, const std::uint8_t* global,
                                std::uint32_t bytes, std::uint32_t mbarrier, std::uint32_t ranks,
                                const Site& site) {
    step(site);
    const auto blocks = static_cast<std::uint32_t>(cluster_.blocks.size());
    if (ranks == 0 || ranks >> blocks != 0)
        return report(
            Fault::kBadOperand, site,
            "ranks " + std::to_string(ranks) + " in a cluster of " + std::to_string(blocks));
    AsyncCopy load;
    load.shared = shared;
    load.global = const_cast<std::uint8_t*>(global);
    load.bytes = load.source_bytes = bytes;
    load.site = site;
    // Each destination has its own moment.
    for (std::uint32_t rank = 0; rank < blocks; rank++)
        if ((ranks >> rank & 1u) != 0) cluster_.blocks[rank]->start_load(load, mbarrier);
}

void Block::tensor_load(std::uint32_t shared, const TensorMap& map, const std::int32_t* origin,
                        std::uint32_t mbarrier, const Site& site) {
    step(site);
    AsyncCopy load;
    load.shared = shared;
    load.map = &map;
    load.bytes = map.box_bytes();
    std::copy_n(origin, map.rank, load.origin);
    load.site = site;
    start_load(load, mbarrier);
}

void Block::start_store(AsyncCopy store) {
    Lane& lane = *t_lane;
    store.kind = AsyncCopy::Kind::kStore;
    store.thread = lane.thread;
    store.group = lane.store_group;
    shadow_.bulk_read_issued(lane.actor, store.shared, store.bytes, store.site);
    schedule(store);
    lane.stores.push_back(store);
}

void Block::bulk_store(std::uint8_t* global, std::uint32_t shared, std::uint32_t bytes,
                       const Site& site) {
    step(site);
    AsyncCopy store;
    store.global = global;
    store.shared = shared;
    store.bytes = bytes;
    store.site = site;
    start_store(store);
}

void Block::tensor_store(const TensorMap& map, const std::int32_t* origin, std::uint32_t shared,
                         const Site& site) {
    step(site);
    AsyncCopy store;
    store.map = &map;
    std::copy_n(origin, map.rank, store.origin);
    store.shared = shared;
    store.bytes = map.box_bytes();
    store.site = site;
    start_store(store);
}

void Block::store_commit(const Site& site) {
    if (skips("cp.async.bulk.commit_group", site)) return;
    step(site);
    t_lane->store_group++;
}

void Block::store_wait(std::uint32_t groups_left, const Site& site) {
    if (skips("cp.async.bulk.wait_group", site)) return;
    step(site);
    Lane& lane = *t_lane;
    std::erase_if(lane.stores, [&](AsyncCopy& store) {
        if (store.group + groups_left >= lane.store_group) return false;
        land(store);
        shadow_.bulk_read_waited(lane.actor, store.shared, store.bytes, store.site);
        return true;
    });
}

// A thread must not end before what it started.
void Block::leave_checks(Lane& lane) {
    for (const AsyncCopy& copy : lane.copies)
        if (copy.source_bytes != 0)
            report(Fault::kInFlight, copy.site, "the thread ends without a wait for this copy");
    for (const AsyncCopy& store : lane.stores)
        report(Fault::kInFlight, store.site, "the thread ends without a wait for this store");
    for (AsyncCopy& store : lane.stores)
        land(store);
    leave_wgmma(lane);
}

}  // namespace quatt::simt
