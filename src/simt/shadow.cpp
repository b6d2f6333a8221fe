#include "simt/shadow.hpp"

#include <algorithm>
#include <bit>

namespace quatt::simt {
namespace {

constexpr std::uint32_t kWord = 4;

}  // namespace

void Shadow::reset(std::uint32_t bytes, std::uint32_t warps, std::uint32_t first_actor,
                   const Options& options) {
    enabled_ = options.check_races;
    fence_after_reads_ = options.fence_after_reads;
    warps_ = warps;
    first_actor_ = first_actor;
    if (!enabled_) return;
    const std::uint32_t words = (bytes + kWord - 1) / kWord;
    cells_.assign(words, Cell{});
    reads_.assign(std::size_t{words} * warps_, Reads{});
    split_.assign(words, 0);
    more_reads_.clear();
    groups_ = warps / kGroupWarps;
    readers_.assign(warps, WgmmaReader{});
    group_reads_.clear();
}

template <class Use>
void Shadow::each_cell(std::uint32_t offset, std::uint32_t bytes, Use use) {
    if (!enabled_ || bytes == 0) return;
    const std::uint32_t end = offset + bytes;
    for (std::uint32_t word = offset / kWord; word * kWord < end; word++) {
        const bool whole = word * kWord >= offset && (word + 1) * kWord <= end;
        if (whole && !(cells_[word].flags & kSplit)) {
            use(word);
            continue;
        }
        if (!(cells_[word].flags & kSplit)) split(word);
        for (std::uint32_t byte = 0; byte < kWord; byte++) {
            const std::uint32_t at = word * kWord + byte;
            if (at >= offset && at < end) use(split_[word] + byte);
        }
    }
}

void Shadow::split(std::uint32_t word) {
    const auto first = static_cast<std::uint32_t>(cells_.size());
    split_[word] = first;
    const Cell cell = cells_[word];
    for (std::uint32_t byte = 0; byte < kWord; byte++) {
        cells_.push_back(cell);
        for (std::uint32_t w = 0; w < warps_; w++) {
            const Reads reads = reads_[std::size_t{word} * warps_ + w];
            reads_.push_back(reads);
        }
        if (cell.flags & kMoreReads) more_reads_[first + byte] = more_reads_[word];
        if (group_reads_.empty()) continue;
        for (std::uint32_t g = 0; g < groups_; g++) {
            const GroupRead read = group_reads_[std::size_t{word} * groups_ + g];
            group_reads_.push_back(read);
        }
    }
    cells_[word].flags |= kSplit;
}

std::string Shadow::other(std::uint32_t cell) const {
    const Cell& c = cells_[cell];
    if (c.flags & kBulkWritten) return "bulk copy of " + describe(c.write_site);
    return "write of " + name(c.writer) + " at " + describe(c.write_site);
}

std::string Shadow::name(std::uint32_t thread) const {
    const std::uint32_t threads = warps_ * kLanes;
    std::string text = "thread " + std::to_string(thread % threads);
    if (thread - first_actor_ >= threads)
        text += " of the cluster's block " + std::to_string(thread / threads);
    return text;
}

void Shadow::read_fault(std::uint32_t cell, std::uint32_t thread, const Site& site) {
    const Cell& c = cells_[cell];
    if (c.flags & kMbarrier) {
        reporter_.add(Fault::kMbarrierMisuse, site, thread, c.write_site,
                      [&] { return "access to the mbarrier of " + describe(c.write_site); });
    } else if (c.flags & kInFlight) {
        reporter_.add(Fault::kInFlight, site, thread, c.write_site,
                      [&] { return "the copy of " + describe(c.write_site) + " has no wait"; });
    } else if (c.write_time == kNeverWritten) {
        reporter_.add(Fault::kUninitialised, site, thread, Site(), [] { return std::string(); });
    } else {
        reporter_.add(Fault::kReadRace, site, thread, c.write_site, [&] { return other(cell); });
    }
}

void Shadow::note_read(std::uint32_t cell, std::uint32_t thread, std::uint32_t now,
                       const Site& site) {
    const std::uint32_t warp = (thread - first_actor_) / kLanes, lane_bit = 1u << thread % kLanes;
    Reads& reads = reads_[std::size_t{cell} * warps_ + warp];
    cells_[cell].reading_warps |= 1u << warp;
    if (reads.lanes == 0 || reads.time == now) {
        reads = {site, reads.lanes | lane_bit, now};
        return;
    }
    // Readers that this one knows of are covered by it: what is ordered after it is ordered after
    // them. The others have to be remembered one by one.
    const std::uint32_t* known = clocks_.known_by(thread);
    for (std::uint32_t lanes = reads.lanes & ~lane_bit; lanes != 0; lanes &= lanes - 1) {
        const std::uint32_t reader =
            first_actor_ + warp * kLanes + static_cast<std::uint32_t>(std::countr_zero(lanes));
        if (known[reader] >= reads.time) continue;
        cells_[cell].flags |= kMoreReads;
        std::vector<ExtraRead>& extra = more_reads_[cell];
        std::erase_if(extra, [&](const ExtraRead& e) { return e.thread == reader; });
        extra.push_back({reads.site, reader, reads.time});
    }
    reads = {site, lane_bit, now};
}

void Shadow::read(std::uint32_t thread, std::uint32_t offset, std::uint32_t bytes,
                  const Site& site) {
    const std::uint32_t* known = clocks_.known_by(thread);
    const std::uint32_t now = known[thread];
    each_cell(offset, bytes, [&](std::uint32_t cell) {
        const Cell& c = cells_[cell];
        if ((c.flags & (kInFlight | kMbarrier)) != 0 || known[c.writer] < c.write_time) [[unlikely]]
            read_fault(cell, thread, site);
        note_read(cell, thread, now, site);
    });
}

// Common to all writes: nobody may still be at work on these bytes.
void Shadow::check_order(std::uint32_t cell, std::uint32_t thread, const Site& site) {
    const Cell& c = cells_[cell];
    if (c.flags & kMbarrier) {
        reporter_.add(Fault::kMbarrierMisuse, site, thread, c.write_site,
                      [&] { return "write over the mbarrier of " + describe(c.write_site); });
    } else if (c.flags & kInFlight) {
        reporter_.add(Fault::kInFlight, site, thread, c.write_site, [&] {
            return "write while the copy of " + describe(c.write_site) + " has no wait";
        });
    } else if (c.bulk_reads != 0) {
        reporter_.add(Fault::kInFlight, site, thread, Site(),
                      [] { return std::string("a bulk store still reads this"); });
    } else if (c.write_time != kNeverWritten && clocks_.known_by(thread)[c.writer] < c.write_time) {
        reporter_.add(Fault::kWriteRace, site, thread, c.write_site, [&] { return other(cell); });
    }
}

void Shadow::check_readers(std::uint32_t cell, std::uint32_t thread, bool fence, const Site& site) {
    const std::uint32_t* known = clocks_.known_by(thread);
    const std::uint32_t* fenced = clocks_.fenced_for(thread);
    const auto check = [&](std::uint32_t reader, std::uint32_t time, const Site& where) {
        const auto who = [&] { return "read of " + name(reader) + " at " + describe(where); };
        if (known[reader] < time && reader != thread)
            reporter_.add(Fault::kWriteRace, site, thread, where, who);
        else if (fence && fenced[reader] < time)
            reporter_.add(Fault::kProxyFence, site, thread, where, who);
    };
    for (std::uint32_t warps = cells_[cell].reading_warps; warps != 0; warps &= warps - 1) {
        const auto warp = static_cast<std::uint32_t>(std::countr_zero(warps));
        const Reads& reads = reads_[std::size_t{cell} * warps_ + warp];
        for (std::uint32_t lanes = reads.lanes; lanes != 0; lanes &= lanes - 1)
            check(
                first_actor_ + warp * kLanes + static_cast<std::uint32_t>(std::countr_zero(lanes)),
                reads.time, reads.site);
    }
    if (cells_[cell].flags & kMoreReads)
        for (const ExtraRead& e : more_reads_[cell])
            check(e.thread, e.time, e.site);
    if (cells_[cell].reading_groups != 0) check_groups(cell, thread, site);
}

// A write over what wgmmas read.
void Shadow::check_groups(std::uint32_t cell, std::uint32_t thread, const Site& site) {
    const std::uint32_t* known = clocks_.known_by(thread);
    for (std::uint32_t bits = cells_[cell].reading_groups; bits != 0; bits &= bits - 1) {
        const auto g = static_cast<std::uint32_t>(std::countr_zero(bits));
        const GroupRead& read = group_reads_[std::size_t{cell} * groups_ + g];
        for (std::uint32_t w = 0; w < kGroupWarps; w++) {
            const WgmmaReader& reader = readers_[g * kGroupWarps + w];
            if (read.number[w] == 0 || known[reader.actor] >= read.number[w]) continue;
            const bool is_in_flight = read.number[w] > reader.waited;
            reporter_.add(is_in_flight ? Fault::kInFlight : Fault::kWriteRace, site, thread,
                          read.site, [&] {
                              return "the wgmma of " + describe(read.site) + " by warp " +
                                     std::to_string(g * kGroupWarps + w) +
                                     (is_in_flight ? " still reads this" : " reads this");
                          });
        }
    }
}

// The asynchronous proxy is about to touch what the generic proxy wrote.
void Shadow::check_proxy(std::uint32_t cell, std::uint32_t thread, const Site& site) {
    const Cell& c = cells_[cell];
    if (c.write_time == kNeverWritten || (c.flags & (kBulkWritten | kInFlight | kMbarrier)) != 0)
        return;
    if (clocks_.fenced_for(thread)[c.writer] < c.write_time)
        reporter_.add(Fault::kProxyFence, site, thread, c.write_site, [&] { return other(cell); });
}

void Shadow::forget_readers(std::uint32_t cell) {
    Cell& c = cells_[cell];
    for (std::uint32_t warps = c.reading_warps; warps != 0; warps &= warps - 1)
        reads_[std::size_t{cell} * warps_ + static_cast<std::uint32_t>(std::countr_zero(warps))]
            .lanes = 0;
    c.reading_warps = 0;
    c.reading_groups = 0;
    if (c.flags & kMoreReads) more_reads_.erase(cell);
}

void Shadow::set_writer(std::uint32_t cell, std::uint32_t actor, std::uint32_t time,
                        std::uint8_t flags, const Site& site) {
    forget_readers(cell);
    Cell& c = cells_[cell];
    c.write_site = site;
    c.write_time = time;
    c.writer = static_cast<std::uint16_t>(actor);
    c.flags = flags;
}

void Shadow::write(std::uint32_t thread, std::uint32_t offset, std::uint32_t bytes,
                   const Site& site) {
    const std::uint32_t now = clocks_.now(thread);
    each_cell(offset, bytes, [&](std::uint32_t cell) {
        check_order(cell, thread, site);
        check_readers(cell, thread, false, site);
        set_writer(cell, thread, now, 0, site);
    });
}

void Shadow::copy_issued(std::uint32_t thread, std::uint32_t offset, std::uint32_t bytes,
                         const Site& site) {
    const std::uint32_t now = clocks_.now(thread);
    each_cell(offset, bytes, [&](std::uint32_t cell) {
        check_order(cell, thread, site);
        check_readers(cell, thread, false, site);
        set_writer(cell, thread, now, kInFlight, site);
    });
}

void Shadow::copy_waited(std::uint32_t thread, std::uint32_t offset, std::uint32_t bytes) {
    const std::uint32_t now = clocks_.now(thread);
    each_cell(offset, bytes, [&](std::uint32_t cell) {
        Cell& c = cells_[cell];
        // A racing write may have taken the word over; it has been reported.
        if (!(c.flags & kInFlight) || c.writer != thread) return;
        c.flags &= static_cast<std::uint8_t>(~kInFlight);
        c.write_time = now;
    });
}

void Shadow::bulk_write_issued(std::uint32_t thread, std::uint32_t offset, std::uint32_t bytes,
                               std::uint32_t actor, std::uint32_t phase, const Site& site) {
    each_cell(offset, bytes, [&](std::uint32_t cell) {
        check_order(cell, thread, site);
        check_readers(cell, thread, fence_after_reads_, site);
        check_proxy(cell, thread, site);
        set_writer(cell, actor, phase + 1, kBulkWritten, site);
    });
}

void Shadow::bulk_read_issued(std::uint32_t thread, std::uint32_t offset, std::uint32_t bytes,
                              const Site& site) {
    const std::uint32_t* known = clocks_.known_by(thread);
    each_cell(offset, bytes, [&](std::uint32_t cell) {
        Cell& c = cells_[cell];
        if ((c.flags & (kInFlight | kMbarrier)) != 0 || known[c.writer] < c.write_time)
            read_fault(cell, thread, site);
        else
            check_proxy(cell, thread, site);
        c.bulk_reads++;
    });
}

void Shadow::bulk_read_waited(std::uint32_t thread, std::uint32_t offset, std::uint32_t bytes,
                              const Site& site) {
    const std::uint32_t now = clocks_.now(thread);
    each_cell(offset, bytes, [&](std::uint32_t cell) {
        if (cells_[cell].bulk_reads > 0) cells_[cell].bulk_reads--;
        note_read(cell, thread, now, site);
    });
}

void Shadow::wgmma_reads(std::uint32_t first_thread, std::uint32_t actor, std::uint32_t number,
                         std::span<const std::uint32_t> chunks, const Site& site) {
    if (!enabled_) return;
    const std::uint32_t warp = (first_thread - first_actor_) / kLanes;
    const std::uint32_t g = warp / kGroupWarps, w = warp % kGroupWarps;
    readers_[warp].actor = actor;
    if (group_reads_.empty()) group_reads_.resize(cells_.size() * groups_);
    // All lanes perform the operation: each of them has to know of the write. Neighbouring words
    // mostly come from one write, and are asked about once.
    const Cell* checked = nullptr;
    const auto check = [&](std::uint32_t cell) {
        const Cell& c = cells_[cell];
        checked = nullptr;
        if ((c.flags & (kInFlight | kMbarrier)) != 0) return read_fault(cell, first_thread, site);
        const bool is_generic = c.write_time != kNeverWritten && (c.flags & kBulkWritten) == 0;
        for (std::uint32_t thread = first_thread; thread < first_thread + kLanes; thread++) {
            if (clocks_.known_by(thread)[c.writer] < c.write_time)
                return read_fault(cell, thread, site);
            if (is_generic && clocks_.fenced_for(thread)[c.writer] < c.write_time)
                return check_proxy(cell, thread, site);
        }
        checked = &c;
    };
    for (const std::uint32_t chunk : chunks) {
        each_cell(chunk, kChunkBytes, [&](std::uint32_t cell) {
            Cell& c = cells_[cell];
            if (checked == nullptr || c.writer != checked->writer ||
                c.write_time != checked->write_time || c.flags != checked->flags)
                check(cell);
            GroupRead& read = group_reads_[std::size_t{cell} * groups_ + g];
            if ((c.reading_groups >> g & 1u) == 0) read = GroupRead{};
            read.site = site;
            read.number[w] = number;
            c.reading_groups |= static_cast<std::uint8_t>(1u << g);
        });
    }
}

void Shadow::wgmma_waited(std::uint32_t warp, std::uint32_t number) {
    if (enabled_) readers_[warp].waited = number;
}

void Shadow::claim_mbarrier(std::uint32_t thread, std::uint32_t offset, const Site& site) {
    const std::uint32_t now = clocks_.now(thread);
    each_cell(offset, 8, [&](std::uint32_t cell) {
        check_order(cell, thread, site);
        check_readers(cell, thread, false, site);
        set_writer(cell, thread, now, kMbarrier, site);
    });
}

}  // namespace quatt::simt
