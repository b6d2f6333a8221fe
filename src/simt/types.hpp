// What a launch of the executor is told, and what it answers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <source_location>
#include <string>
#include <vector>

namespace quatt::simt {

inline constexpr std::uint32_t kLanes = 32;  // of a warp

// Where in a kernel something happens. Wrappers take it as a default argument and forward it.
#if defined(__cpp_lib_source_location)
using Site = std::source_location;
#else
// Clang before 16 has only the parts.
class Site {
public:
    static constexpr Site current(const char* file = __builtin_FILE(),
                                  std::uint_least32_t line = __builtin_LINE(),
                                  std::uint_least32_t column = __builtin_COLUMN()) {
        Site site;
        site.file_ = file;
        site.line_ = line;
        site.column_ = column;
        return site;
    }
    [[nodiscard]] constexpr const char* file_name() const { return file_; }
    [[nodiscard]] constexpr std::uint_least32_t line() const { return line_; }
    [[nodiscard]] constexpr std::uint_least32_t column() const { return column_; }

private:
    const char* file_ = "";
    std::uint_least32_t line_ = 0, column_ = 0;
};
#endif

// When an asynchronous effect takes place, between its issue and the last moment that the kernel
// can still tell apart (its own wait, or nobody being able to go on without it).
enum class Completion : std::uint8_t { kAtOnce, kLastMoment, kMixed };

// Which warp goes on when the running one lets go. kStarve keeps one warp back as long as any
// other can run, kGreedy leaves a warp only when it must.
enum class WarpOrder : std::uint8_t { kRandom, kRoundRobin, kGreedy, kStarve };

// A synchronisation instruction of a kernel, at one place of its source: a wait, an arrival, a
// barrier, a fence, a commit, setmaxnreg; not the accesses and copies themselves.
struct SyncSite {
    std::string kernel;
    const char* instruction;  // "mbarrier.try_wait"
    Site site;
    std::uint64_t count = 0;  // of threads that came by, each time that they did
};

// What goes wrong at one of them.
struct SiteFault {
    enum class Kind : std::uint8_t {
        kDrop,   // the instruction does nothing; a wait is over at once
        kDelay,  // who comes by goes on only when nobody else can: legal, and as late as can be
    };
    Kind kind = Kind::kDrop;
    Site site;
    const char* kernel = nullptr;       // only in this one, by its launch's name; nullptr: in any
    const char* instruction = nullptr;  // only this one of those at the place; nullptr: any
};

struct Options {
    // Picks the schedule; completion and order follow from it unless they are given. Seeds 0..11
    // go through all pairs of the two.
    std::uint64_t seed = 0;
    std::optional<Completion> completion = std::nullopt;
    std::optional<WarpOrder> order = std::nullopt;
    // Happens-before and in-flight reports. Without them only a wrong result can show a fault.
    bool check_races = true;
    // Also demand a proxy fence between generic reads and an asynchronous write over what they
    // read. The formal model wants it; code in the field relies on the mbarrier alone.
    bool fence_after_reads = false;
    // OS threads that blocks are spread over; 0: as many as the machine has.
    unsigned workers = 1;
    // Calls into the executor that one block may make before it is taken for endless.
    std::uint64_t max_steps = 500'000'000;
    std::size_t stack_bytes = 64 << 10;
    bool measure_stack = false;
    // Must outlive the launch.
    const SiteFault* fault = nullptr;
    // The sites that the launch passed join these, in the order of their places.
    std::vector<SyncSite>* sites = nullptr;
};

struct Dim3 {
    std::uint32_t x = 1, y = 1, z = 1;
};

enum class Fault : std::uint8_t {
    kGlobalBounds,
    kSharedBounds,
    kMisaligned,
    kUninitialised,   // shared memory read before anything was written to it
    kReadRace,        // a read that no synchronisation orders after the write it needs
    kWriteRace,       // a write over what others still read or write
    kInFlight,        // touched before the wait: bytes of a copy that is still under way
    kProxyFence,      // generic and asynchronous accesses without fence.proxy.async
    kWgmmaFence,      // registers of a wgmma were written, and no wgmma.fence came after that
    kEarlyStart,      // memory touched, or the end reached, before griddepcontrol.wait
    kEarlyExit,       // a block of a cluster ends while others may still reach into it
    kBarrierMisuse,   // wrong count, two arrivals of a warp in one phase, left half full
    kMbarrierMisuse,  // used before init, wrong transaction bytes, overwritten
    kRegisterPool,    // setmaxnreg: more than there are, the wrong way, not by the whole warpgroup
    kDivergence,      // lanes of a warp in different collectives
    kDeadlock,
    kStepLimit,
    kBadOperand,  // an operand that the PTX ISA does not allow
    kException,   // the kernel threw
};
[[nodiscard]] const char* name(Fault fault);

struct Report {
    Fault fault{};
    std::string kernel;
    Dim3 block;                // of the first occurrence
    std::uint32_t thread = 0;  // likewise
    Site site;
    Site against;  // the other access of a conflict, or nothing
    std::string detail;
    std::uint64_t count = 1;  // occurrences of this fault at this site, against the same site
};
[[nodiscard]] std::string to_string(const Report& report);

struct Statistics {
    std::uint64_t steps = 0, switches = 0, collectives = 0;
    std::uint64_t wgmmas = 0;
    std::uint64_t ldmatrix_rows = 0, ldmatrix_conflicts = 0;  // conflicts: extra 8-row passes
    std::size_t stack_bytes = 0;                              // only with measure_stack
};

struct Result {
    std::vector<Report> reports;
    Statistics statistics;

    [[nodiscard]] bool ok() const { return reports.empty(); }
    [[nodiscard]] bool has(Fault fault) const;
    [[nodiscard]] std::string summary() const;
};

// splitmix64: small, and good from any seed.
class Random {
public:
    explicit Random(std::uint64_t seed) : state_(seed) {}

    std::uint64_t next() {
        std::uint64_t z = (state_ += 0x9E3779B97F4A7C15u);
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
        z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
        return z ^ (z >> 31);
    }
    std::uint32_t below(std::uint32_t n) {
        return static_cast<std::uint32_t>((next() >> 32) * n >> 32);
    }

private:
    std::uint64_t state_;
};

}  // namespace quatt::simt
