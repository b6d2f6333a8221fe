// What the executor knows of each word of shared memory: the main detector of races.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "simt/clocks.hpp"
#include "simt/reporter.hpp"
#include "simt/types.hpp"
#include "simt/wgmma.hpp"

namespace quatt::simt {

// Every access is checked, when it happens, against the last write and the last reads of each
// word: they must be ordered before it by synchronisation, not by luck. A word is split into bytes
// when something narrower than a word touches it.
class Shadow {
public:
    Shadow(Clocks& clocks, Reporter& reporter) : clocks_(clocks), reporter_(reporter) {}

    // Threads are the clocks' actors; those of this block are counted from `first_actor` on.
    void reset(std::uint32_t bytes, std::uint32_t warps, std::uint32_t first_actor,
               const Options& options);

    // ld.shared and the like, st.shared and the like.
    void read(std::uint32_t thread, std::uint32_t offset, std::uint32_t bytes, const Site& site);
    void write(std::uint32_t thread, std::uint32_t offset, std::uint32_t bytes, const Site& site);
    // cp.async: in flight from its issue until the issuing thread has waited for its group.
    void copy_issued(std::uint32_t thread, std::uint32_t offset, std::uint32_t bytes,
                     const Site& site);
    void copy_waited(std::uint32_t thread, std::uint32_t offset, std::uint32_t bytes);
    // A bulk load whose bytes count towards phase `phase` of the mbarrier `actor`.
    void bulk_write_issued(std::uint32_t thread, std::uint32_t offset, std::uint32_t bytes,
                           std::uint32_t actor, std::uint32_t phase, const Site& site);
    // A bulk store reads its source from its issue until the issuing thread has waited.
    void bulk_read_issued(std::uint32_t thread, std::uint32_t offset, std::uint32_t bytes,
                          const Site& site);
    void bulk_read_waited(std::uint32_t thread, std::uint32_t offset, std::uint32_t bytes,
                          const Site& site);
    // The warp of `first_thread` issues wgmma `number`, which reads 16 bytes at each of `chunks` as
    // `actor` of the clocks, until that warp has waited for it.
    void wgmma_reads(std::uint32_t first_thread, std::uint32_t actor, std::uint32_t number,
                     std::span<const std::uint32_t> chunks, const Site& site);
    void wgmma_waited(std::uint32_t warp, std::uint32_t number);
    // The eight bytes of an mbarrier: from here on nothing else may touch them.
    void claim_mbarrier(std::uint32_t thread, std::uint32_t offset, const Site& site);

private:
    enum Flag : std::uint8_t {
        kInFlight = 1,  // target of a cp.async of `writer`
        kMbarrier = 2,
        kBulkWritten = 4,  // the last write came through the asynchronous proxy
        kSplit = 8,        // four byte cells stand for this word
        kMoreReads = 16,   // further readers in more_reads_
    };
    static constexpr std::uint32_t kNeverWritten = ~0u;
    struct Cell {
        Site write_site;
        std::uint32_t write_time = kNeverWritten;
        std::uint32_t reading_warps = 0;
        std::uint16_t writer = 0;
        std::uint8_t flags = 0;
        std::uint8_t bulk_reads = 0;
        std::uint8_t reading_groups = 0;  // warpgroups
    };
    struct Reads {  // of one cell by one warp since the last write: lanes that read at one time
        Site site;
        std::uint32_t lanes = 0, time = 0;
    };
    struct GroupRead {  // of one cell by the warps of a warpgroup since the last write: the newest
        Site site;
        std::uint32_t number[kGroupWarps] = {};
    };
    struct WgmmaReader {
        std::uint32_t actor = 0;
        std::uint32_t waited = 0;  // the newest number that the warp has waited for
    };
    struct ExtraRead {
        Site site;
        std::uint32_t thread, time;
    };

    template <class Use>
    void each_cell(std::uint32_t offset, std::uint32_t bytes, Use use);
    void split(std::uint32_t word);
    void note_read(std::uint32_t cell, std::uint32_t thread, std::uint32_t now, const Site& site);
    void check_order(std::uint32_t cell, std::uint32_t thread, const Site& site);
    void check_readers(std::uint32_t cell, std::uint32_t thread, bool fence, const Site& site);
    void check_proxy(std::uint32_t cell, std::uint32_t thread, const Site& site);
    void read_fault(std::uint32_t cell, std::uint32_t thread, const Site& site);
    void check_groups(std::uint32_t cell, std::uint32_t thread, const Site& site);
    void forget_readers(std::uint32_t cell);
    void set_writer(std::uint32_t cell, std::uint32_t actor, std::uint32_t time, std::uint8_t flags,
                    const Site& site);
    [[nodiscard]] std::string other(std::uint32_t cell) const;
    [[nodiscard]] std::string name(std::uint32_t thread) const;

    Clocks& clocks_;
    Reporter& reporter_;
    bool enabled_ = true, fence_after_reads_ = false;
    std::uint32_t warps_ = 0, first_actor_ = 0;
    std::vector<Cell> cells_;             // one a word, then four for each split word
    std::vector<Reads> reads_;            // [cell][warp]
    std::uint32_t groups_ = 0;            // warpgroups
    std::vector<WgmmaReader> readers_;    // warps
    std::vector<GroupRead> group_reads_;  // [cell][group], from the first wgmma on
    std::vector<std::uint32_t> split_;    // [word]: its first byte cell
    std::unordered_map<std::uint32_t, std::vector<ExtraRead>> more_reads_;
};

}  // namespace quatt::simt
