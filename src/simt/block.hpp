// One block (CTA) as it runs: its threads, its shared memory, its barriers, its copies in flight.
//
// The ptx wrappers' host bodies call what is declared here, through block() and self().
#pragma once

#include <cstdint>
#include <cstring>
#include <exception>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "simt/clocks.hpp"
#include "simt/fiber.hpp"
#include "simt/reporter.hpp"
#include "simt/shadow.hpp"
#include "simt/tensor_map.hpp"
#include "simt/types.hpp"
#include "simt/wgmma.hpp"

namespace quatt::simt {

inline constexpr std::uint32_t kAllLanes = ~0u;
inline constexpr std::uint32_t kNamedBarriers = 16;
inline constexpr std::uint32_t kMaxMbarriers = 64;
// Dynamic shared memory starts at address 0, which swizzles and alignments take for aligned to
// the 1024 bytes that the native wrapper asks for.
inline constexpr std::uint32_t kMaxSharedBytes = 228 << 10;

// Thrown through a kernel when its block is given up.
struct Cancelled {};

struct AsyncCopy {
    enum class Kind : std::uint8_t { kCopy, kLoad, kStore };
    static constexpr std::uint64_t kNotDue = ~std::uint64_t{0};

    Kind kind = Kind::kCopy;
    bool landed = false;
    std::uint32_t thread = 0;
    std::uint32_t shared = 0, bytes = 0;
    std::uint8_t* global = nullptr;  // unless it is a tensor copy
    std::uint32_t source_bytes = 0;  // the rest is zeros
    const TensorMap* map = nullptr;
    std::int32_t origin[TensorMap::kMaxRank] = {};
    std::uint32_t group = 0;     // kCopy, kStore
    std::uint32_t mbarrier = 0;  // kLoad: index, and the phase it was issued in
    std::uint32_t phase = 0;
    std::uint64_t due = kNotDue;
    Site site;
};

class Block;

struct Lane {
    Fiber fiber;
    Block* block = nullptr;
    std::uint32_t thread = 0;  // of its block
    std::uint32_t actor = 0;   // in the vector clocks, which count through the blocks of a cluster
    bool done = false;
    bool may_access = true;  // global memory
    Site site;               // where it waits, and for what
    const char* what = "";
    std::uint32_t copy_group = 0, store_group = 0;
    std::vector<AsyncCopy> copies, stores;
};

struct Warp {
    std::uint32_t ready = 0, alive = 0;  // lanes
    std::uint32_t arrived = 0;           // at the collective `what`
    const char* what = "";
    Site site;
    void* operands[kLanes] = {};
};

struct NamedBarrier {
    std::uint32_t expected = 0, arrived = 0;  // threads
    std::uint32_t warps = 0, waiting = 0;     // warps that arrived; those of them that wait
    Site site;                                // of the first arrival
    Knowledge knowledge;
};

struct Mbarrier {
    std::uint32_t offset = 0;
    std::uint32_t actor = 0;  // in the vector clocks
    std::uint32_t count = 0, pending = 0;
    std::int64_t transactions = 0;
    std::uint32_t phase = 0;
    std::uint32_t init_actor = 0, init_time = 0;
    bool init_fenced = false;
    bool has_load = false;
    std::uint32_t last_load_phase = 0;
    Site init_site, load_site;
    Knowledge arriving, completed;
    std::vector<std::uint32_t> waiters;  // threads
};

struct Launch {
    std::string kernel;
    Dim3 grid;
    Dim3 threads;
    std::uint32_t shared_bytes = 0;
    std::uint32_t registers = 0;  // a thread, before any setmaxnreg
    std::uint32_t cluster = 1;    // blocks
    bool follows = false;
};

// barrier.cluster: of all warps of a cluster that have not ended.
struct ClusterBarrier {
    std::uint32_t arrived = 0;  // warps
    Site site;                  // of the first arrival
    Knowledge knowledge;
};

// The blocks that run at once: a cluster, or one block. They share the clocks and the OS thread.
struct Cluster {
    Cluster(const Launch& launch, const Options& options, Stacks& stacks);
    Cluster(const Cluster&) = delete;
    Cluster& operator=(const Cluster&) = delete;

    // Runs them to their end, the first of them at `index`; `call(kernel)` is the body of each
    // thread.
    void run(Dim3 index, void (*call)(const void*), const void* kernel);

    Clocks clocks;
    Fiber main;               // the OS thread's own stack
    bool cancelling = false;  // given up: every thread unwinds
    ClusterBarrier barrier;
    std::vector<std::unique_ptr<Block>> blocks;
};

class Block {
public:
    // Its threads' stacks are those from `rank` times their number on.
    Block(const Launch& launch, const Options& options, Cluster& cluster, std::uint32_t rank,
          Stacks& stacks);
    Block(const Block&) = delete;
    Block& operator=(const Block&) = delete;

    // One run: begin, then threads from start_one on until nothing can run, then finish_run.
    void begin(Dim3 index, void (*call)(const void*), const void* kernel);
    void start_one();
    [[nodiscard]] bool has_ended() const { return done_ == lanes_.size(); }
    void report_deadlock();
    void end_checks();
    // Unwinds what has not ended, so that what the kernel owns is freed.
    void finish_run();

    [[nodiscard]] const Launch& launch() const { return launch_; }
    [[nodiscard]] Dim3 index() const { return index_; }
    [[nodiscard]] std::uint32_t cluster_rank() const { return rank_; }
    [[nodiscard]] const Reporter& reporter() const { return reporter_; }
    [[nodiscard]] Statistics& statistics() { return statistics_; }
    [[nodiscard]] std::uint8_t* shared(std::uint32_t offset) { return &shared_[offset]; }
    [[nodiscard]] std::uint32_t shared_bytes() const { return launch_.shared_bytes; }
    [[nodiscard]] Shadow& shadow() { return shadow_; }

    // ---- reports
    void report(Fault fault, const Site& site, const std::string& detail = {});
    [[noreturn]] void give_up(Fault fault, const Site& site, const std::string& detail);
    // Every call into the executor counts; what never calls in is beyond its reach.
    void step(const Site& site);

    // ---- warp collectives: each lane brings its operands, the last one computes for all
    template <class Operands, class Compute>
    void collective(const char* what, const Site& site, Operands& mine, Compute compute);
    // Orders the memory accesses of the warp's lanes (__syncwarp); called inside a collective.
    void sync_lanes();

    // ---- call sites (sites.cpp)
    // Whether synchronisation instruction `what` at `site` is left out. Where it is to be late, it
    // has waited.
    [[nodiscard]] bool skips(const char* what, const Site& site) {
        return watches_sites_ && skips_watched(what, site);
    }
    [[nodiscard]] const std::vector<SyncSite>& sites() const { return sites_; }

    // ---- barriers of the block
    void syncwarp(const Site& site);
    void barrier(std::uint32_t id, std::uint32_t count, bool wait, const Site& site);
    void mbarrier_init(std::uint32_t offset, std::uint32_t count, const Site& site);
    void mbarrier_arrive(std::uint32_t offset, std::uint32_t count, const Site& site);
    void mbarrier_expect(std::uint32_t offset, std::uint32_t bytes, const Site& site);
    void mbarrier_arrive_expect(std::uint32_t offset, std::uint32_t bytes, const Site& site);
    bool mbarrier_try_wait(std::uint32_t offset, std::uint32_t parity, const Site& site);
    bool mbarrier_test_wait(std::uint32_t offset, std::uint32_t parity, const Site& site);
    void fence_mbarrier_init(const Site& site);
    void grid_wait(const Site& site);
    void grid_launch_dependents(const Site& site);
    void check_grid_wait(const char* what, const Site& site);

    // ---- clusters (cluster.cpp)
    void cluster_sync(const Site& site);
    void mbarrier_arrive_at(std::uint32_t offset, std::uint32_t rank, const Site& site);
    void bulk_load_multicast(std::uint32_t shared, const std::uint8_t* global, std::uint32_t bytes,
                             std::uint32_t mbarrier, std::uint32_t ranks, const Site& site);
    void fence_proxy_async(const Site& site);

    // ---- asynchronous copies; bounds and alignment are checked by the wrappers
    void copy(std::uint32_t shared, const std::uint8_t* global, std::uint32_t bytes,
              std::uint32_t source_bytes, const Site& site);
    void copy_commit(const Site& site);
    void copy_wait(std::uint32_t groups_left, const Site& site);
    void bulk_load(std::uint32_t shared, const std::uint8_t* global, std::uint32_t bytes,
                   std::uint32_t mbarrier, const Site& site);
    void bulk_store(std::uint8_t* global, std::uint32_t shared, std::uint32_t bytes,
                    const Site& site);
    void tensor_load(std::uint32_t shared, const TensorMap& map, const std::int32_t* origin,
                     std::uint32_t mbarrier, const Site& site);
    void tensor_store(const TensorMap& map, const std::int32_t* origin, std::uint32_t shared,
                      const Site& site);
    void store_commit(const Site& site);
    // Until the source has been read (.read); what others see of the target is not modelled.
    void store_wait(std::uint32_t groups_left, const Site& site);

    // ---- warpgroups (wgmma.cpp, registers.cpp)
    void wgmma(Wgmma operands, const Site& site);
    void wgmma_fence(const Site& site);
    void wgmma_commit(const Site& site);
    void wgmma_wait(std::uint32_t groups_left, const Site& site);
    void set_registers(std::uint32_t count, bool is_increase, const Site& site);

private:
    static void lane_main(boost::context::detail::transfer_t transfer);
    void finish(Lane& lane, bool kernel_returned);

    // ---- scheduling (schedule.cpp)
    [[nodiscard]] Lane* pick(const Lane* current, bool leave_warp);
    [[nodiscard]] Lane* pick_lane(const Lane* current, bool leave_warp);
    [[nodiscard]] Lane* pick_in_cluster(const Lane* current, bool leave_warp);
    void end_cluster_barrier_if_full();
    [[nodiscard]] std::uint32_t living_warps() const;
    void end_remote_arrivals();
    [[nodiscard]] std::uint32_t pick_warp(std::uint32_t ready_warps, std::uint32_t current);
    void switch_to(Lane* next);
    // Lets others run; returns when this lane is chosen again.
    void yield(Lane& lane, bool leave_warp);
    [[nodiscard]] bool skips_watched(const char* what, const Site& site);
    void hold(const char* what, const Site& site);
    bool release_held();
    void enter_collective(const char* what, const Site& site, void* operands);
    [[nodiscard]] bool all_arrived(const Warp& warp) const { return warp.arrived == kAllLanes; }
    void after_collective(Lane& lane);

    // ---- synchronisation (sync.cpp)
    bool mbarrier_is_over(std::uint32_t offset, std::uint32_t parity, bool waits, const Site& site);
    [[nodiscard]] Mbarrier* find_mbarrier(std::uint32_t offset, const char* what, const Site& site);
    void complete_phase_if_done(Mbarrier& mbarrier);
    void arrive_on(std::uint32_t offset, std::uint32_t count, const Site& site);
    void expect_on(std::uint32_t offset, std::uint32_t bytes, const Site& site);
    void arrive(Warp& warp, std::uint32_t id, std::uint32_t count, bool wait, const Site& site);
    void leave_checks(Lane& lane);

    // ---- copies (copies.cpp)
    void schedule(AsyncCopy& copy);
    void land(AsyncCopy& copy);
    void land_due();
    bool land_one_load();
    void start_load(AsyncCopy load, std::uint32_t mbarrier_offset);
    void start_store(AsyncCopy store);
    // At which step a completion that may be anywhere is due.
    [[nodiscard]] std::uint64_t draw_due();
    [[nodiscard]] Completion draw_completion();

    // ---- warpgroups (wgmma.cpp, registers.cpp)
    [[nodiscard]] std::uint32_t warp_in_group(const char* what, const Site& site);
    void issue_wgmma(Wgmma* const* lanes, const Site& site);
    void join_statement(std::uint32_t warp, const char* what, std::uint32_t value,
                        const Site& site);
    WgmmaOp& join_wgmma(std::uint32_t warp, const Wgmma& operands, const Site& site);
    WgmmaRegisters& use_registers(std::uint32_t warp, std::uint32_t* const* lanes,
                                  std::uint32_t words, const Site& site);
    void use_a_registers(std::uint32_t warp, WgmmaOp& op, Wgmma* const* lanes, const Site& site);
    void use_accumulators(std::uint32_t warp, WgmmaOp& op, Wgmma* const* lanes, const Site& site);
    void land_wgmmas(std::uint32_t warp, std::uint32_t number);
    void land_wgmma(const WgmmaOp& op, std::uint32_t w);
    void land_due_wgmmas();
    void finish_wait(std::uint32_t warp, std::uint32_t number, const Site& site);
    void give_back(std::uint32_t warp, WgmmaRegisters& registers, const Site& site);
    void leave_wgmma(const Lane& lane);
    void end_warpgroups();
    void report_waiting_registers();
    [[nodiscard]] bool take_registers(std::uint32_t warp, std::uint32_t count);
    void check_change(std::uint32_t warp, std::uint32_t count, bool is_increase, const Site& site);
    void end_registers();
    void block_warp(std::uint32_t warp);
    void unblock_warp(std::uint32_t warp);

    Launch launch_;
    Options options_;
    Cluster& cluster_;
    std::uint32_t rank_, first_actor_;
    Stacks& stacks_;
    Clocks& clocks_;
    Reporter reporter_;
    Shadow shadow_{clocks_, reporter_};
    Random random_{0};
    Statistics statistics_;
    Dim3 index_;

    std::vector<std::uint8_t> shared_;
    std::vector<Lane> lanes_;
    std::vector<Warp> warps_;
    std::vector<NamedBarrier> barriers_;
    std::vector<Mbarrier> mbarriers_;
    std::vector<std::int8_t> mbarrier_at_;  // [offset / 8]: index, or -1
    std::vector<AsyncCopy> loads_;          // bulk loads that have not landed
    std::vector<WgmmaWarp> wgmma_warps_;    // [warp]
    std::vector<Warpgroup> warpgroups_;     // [warp / 4]
    std::uint64_t free_registers_ = 0;      // for setmaxnreg
    bool has_taken_registers_ = false;      // some warp has
    Knowledge scratch_;
    struct RemoteArrival {
        std::uint32_t time;
        Site site;
    };
    std::map<std::uint32_t, RemoteArrival> remote_arrivals_;  // the last of each actor
    std::uint32_t waiting_warps_ = 0;                         // at the barrier of the cluster

    Completion completion_ = Completion::kAtOnce;
    WarpOrder order_ = WarpOrder::kRandom;
    std::uint32_t ready_warps_ = 0, starved_warp_ = 0, first_lane_ = 0, preempt_in_256_ = 0;
    std::vector<std::uint32_t> held_;  // [warp]: lanes at an instruction that is to be late
    std::vector<SyncSite> sites_;
    bool watches_sites_ = false;
    std::uint64_t steps_ = 0, next_due_ = AsyncCopy::kNotDue;
    std::uint32_t done_ = 0;
    bool& cancelling_;
    void (*call_)(const void*) = nullptr;
    const void* kernel_ = nullptr;

    friend Block& block();
    friend Lane& self();
    static inline thread_local constinit Block* t_block = nullptr;
    static inline thread_local constinit Lane* t_lane = nullptr;
};

// The block and the thread that run. Only valid inside a launch.
[[nodiscard]] inline Block& block() {
    return *Block::t_block;
}
[[nodiscard]] inline Lane& self() {
    return *Block::t_lane;
}

template <class Operands, class Compute>
void Block::collective(const char* what, const Site& site, Operands& mine, Compute compute) {
    Lane& lane = *t_lane;
    Warp& warp = warps_[lane.thread / kLanes];
    enter_collective(what, site, &mine);
    if (!all_arrived(warp)) {
        yield(lane, false);
        return;
    }
    warp.arrived = 0;
    warp.ready = kAllLanes;
    ready_warps_ |= 1u << lane.thread / kLanes;
    compute(reinterpret_cast<Operands* const*>(warp.operands));
    after_collective(lane);
}

}  // namespace quatt::simt
