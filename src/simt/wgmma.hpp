// What the executor keeps of wgmma: matrix descriptors, registers in flight, warpgroups.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "simt/tensor_map.hpp"
#include "simt/types.hpp"

namespace quatt::simt {

inline constexpr std::uint32_t kGroupWarps = 4;  // of a warpgroup
inline constexpr std::uint32_t kWgmmaM = 64, kWgmmaMaxN = 256;
inline constexpr std::uint32_t kWgmmaK = 32, kChunkBytes = 16;  // bytes along K, of one step

// A K-major operand in shared memory, as the hardware reads its descriptor: rows of 32 bytes along
// K, in two chunks of 16. PTX ISA 9.7.15.5.1
struct MatrixDescriptor {
    explicit MatrixDescriptor(std::uint64_t bits);

    std::uint32_t start, leading, stride;  // bytes
    std::uint32_t base;                    // phase of the pattern, in 128 bytes
    Swizzle swizzle;
    bool has_stray_bits;  // in fields that must be 0

    // Why it cannot be an operand of `rows` rows in a block of `shared_bytes`, or nothing.
    [[nodiscard]] std::string invalid(std::uint32_t rows, std::uint32_t shared_bytes) const;
    // Where 16-byte chunk `chunk` (0 or 1) of a row lies.
    [[nodiscard]] std::uint32_t address(std::uint32_t row, std::uint32_t chunk) const;
};

// What one lane brings to a wgmma. Without `a_registers` A lies in shared memory.
struct Wgmma {
    float* d = nullptr;                          // n / 2 of them
    const std::uint32_t* a_registers = nullptr;  // 4 of them
    std::uint32_t n = 0;
    std::uint64_t a = 0, b = 0;  // descriptors
    bool accumulate = false;
};

// Registers of a warp that a wgmma named: an array in each lane. They are remembered beyond the
// wgmma, to tell whether something else wrote them since the last fence.
struct WgmmaRegisters {
    std::uint32_t* lanes[kLanes] = {};
    std::uint32_t words = 0;
    std::vector<std::uint32_t> seen;   // [lane][word], at the last fence, or as a wgmma left them
    std::vector<float> accumulators;   // while a wgmma writes them: [16 rows][n]
    std::uint32_t last_op = 0;         // in flight, the newest that uses them; or 0
    bool is_written = false;           // by that one: they are accumulators
    std::uint64_t fences_at_wait = 0;  // fences of the warp before they came back
    Site site;                         // of the newest

    [[nodiscard]] bool is_same(const std::uint32_t* const* other, std::uint32_t count) const;
    [[nodiscard]] bool overlaps(const std::uint32_t* const* other, std::uint32_t count) const;
};

struct WgmmaOp {
    static constexpr std::uint64_t kNotDue = ~std::uint64_t{0};

    Wgmma operands;  // of one lane: what all agree on
    Site site;
    bool is_valid = true;                 // its descriptors can be read
    std::vector<std::uint32_t> a_chunks;  // addresses in shared memory: [row][2]
    std::vector<std::uint32_t> b_chunks;  // likewise
    // Of each warp, once it has issued its quarter:
    WgmmaRegisters* d[kGroupWarps] = {};
    WgmmaRegisters* a[kGroupWarps] = {};  // or nullptr
    std::uint64_t due[kGroupWarps] = {kNotDue, kNotDue, kNotDue, kNotDue};
};

// A warp's quarter of the wgmmas of its warpgroup: its own 16 rows, at its own time. Operations
// have numbers, from 1.
struct WgmmaWarp {
    std::uint32_t actor = 0;                           // in the vector clocks; 0: none yet
    std::uint32_t issued = 0, landed = 0, waited = 0;  // up to which number
    std::vector<std::uint32_t> groups;                 // committed: the last number of each
    std::uint32_t statements = 0;                      // run so far, of those that a group shares
    std::uint64_t fences = 0;
    std::vector<std::unique_ptr<WgmmaRegisters>> registers;

    // setmaxnreg
    std::uint32_t count = 0;    // registers of a thread
    std::uint32_t wanted = 0;   // blocked until the pool can give this many, or 0
    std::uint32_t changes = 0;  // statements run so far
};

struct Warpgroup {
    struct Change {
        std::uint32_t count;
        bool is_increase;
        Site site;
    };

    // Warps may drift, but run the same statements.
    struct Statement {
        const char* what;
        std::uint32_t value;
        Site site;
    };

    std::deque<WgmmaOp> ops;            // that some warp has not waited for
    std::uint32_t first = 1;            // number of the first of them
    std::deque<Statement> statements;   // that some warp has not run
    std::uint32_t first_statement = 0;  // number of the first of them
    std::vector<Change> changes;        // setmaxnreg, in order
};

}  // namespace quatt::simt
