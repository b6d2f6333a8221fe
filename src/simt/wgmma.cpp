// wgmma: who issues it, when it takes place, and what it computes.
#include "simt/wgmma.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "formats/e4m3.hpp"
#include "formats/hopper_accumulator.hpp"
#include "simt/block.hpp"

namespace quatt::simt {
namespace {

// Accumulators of a running wgmma: a signalling NaN, which no arithmetic of the kernel leaves as it
// is, so that a write in flight shows.
constexpr std::uint32_t kPoison = 0x7FA5A5A5u;
// Arrays of registers that are remembered for a warp; the oldest is dropped.
constexpr std::size_t kMaxRegisterSets = 64;
constexpr std::uint32_t kWarpRows = kWgmmaM / kGroupWarps;

using Word [[gnu::may_alias]] = std::uint32_t;

// Reads an array on another fiber's stack, whose scope may have ended: wrong in a kernel, and
// reported as what it is there, but no fault of the executor.
[[gnu::noinline, gnu::no_sanitize_address]] void peek(std::uint32_t* to, const std::uint32_t* from,
                                                      std::uint32_t words) {
    const volatile Word* source = from;
    for (std::uint32_t i = 0; i < words; i++)
        to[i] = source[i];
}

[[nodiscard]] std::vector<std::uint32_t> values(const WgmmaRegisters& r) {
    std::vector<std::uint32_t> now(std::size_t{kLanes} * r.words);
    for (std::uint32_t lane = 0; lane < kLanes; lane++)
        peek(&now[std::size_t{lane} * r.words], r.lanes[lane], r.words);
    return now;
}

[[nodiscard]] bool is_poison(const WgmmaRegisters& r) {
    const std::vector<std::uint32_t> now = values(r);
    return std::all_of(now.begin(), now.end(), [](std::uint32_t word) { return word == kPoison; });
}

// Register i of a lane in the accumulator's layout.
[[nodiscard]] std::size_t place(std::uint32_t lane, std::uint32_t i, std::uint32_t n) {
    const std::uint32_t row = lane / 4 + 8 * (i / 2 % 2),
                        column = 8 * (i / 4) + 2 * (lane % 4) + i % 2;
    return std::size_t{row} * n + column;
}

[[nodiscard]] const std::array<float, 256>& decoded() {
    static const std::array<float, 256> table = [] {
        std::array<float, 256> values;
        for (std::uint32_t code = 0; code < 256; code++)
            values[code] = formats::E4m3::decode(static_cast<std::uint8_t>(code));
        return values;
    }();
    return table;
}

[[nodiscard]] std::vector<std::uint32_t> chunks(const MatrixDescriptor& matrix,
                                                std::uint32_t rows) {
    std::vector<std::uint32_t> at(std::size_t{rows} * 2);
    for (std::uint32_t i = 0; i < 2 * rows; i++)
        at[i] = matrix.address(i / 2, i % 2);
    return at;
}

[[nodiscard]] bool agrees(const Wgmma& x, const Wgmma& y) {
    return x.n == y.n && x.b == y.b && x.accumulate == y.accumulate && x.a == y.a &&
           (x.a_registers == nullptr) == (y.a_registers == nullptr);
}

}  // namespace

// ---- descriptors

MatrixDescriptor::MatrixDescriptor(std::uint64_t bits) {
    const auto bytes = [&](unsigned first) {
        return static_cast<std::uint32_t>(bits >> first & 0x3FFF) * 16;
    };
    constexpr Swizzle kModes[4] = {Swizzle::kNone, Swizzle::k128B, Swizzle::k64B, Swizzle::k32B};
    constexpr std::uint64_t kFields = 0xC00E'3FFF'3FFF'3FFF;
    start = bytes(0);
    leading = bytes(16);
    stride = bytes(32);
    base = static_cast<std::uint32_t>(bits >> 49 & 7);
    swizzle = kModes[bits >> 62];
    has_stray_bits = (bits & ~kFields) != 0;
}

std::uint32_t MatrixDescriptor::address(std::uint32_t row, std::uint32_t chunk) const {
    const std::uint32_t group = start + row / 8 * stride;
    if (swizzle == Swizzle::kNone) return group + row % 8 * kChunkBytes + chunk * leading;
    const std::uint32_t shift = 128 * base;
    return swizzled(swizzle, group + row % 8 * span_bytes(swizzle) + chunk * kChunkBytes - shift) +
           shift;
}

std::string MatrixDescriptor::invalid(std::uint32_t rows, std::uint32_t shared_bytes) const {
    if (has_stray_bits) return "bits outside the fields are set";
    if (swizzle == Swizzle::kNone) {
        if (leading < 128 || (rows > 8 && stride < 128))
            return "core matrices overlap: offsets of " + std::to_string(leading) + " and " +
                   std::to_string(stride) + " bytes";
        if (base != 0) return "a base offset without a swizzle";
    } else {
        const std::uint32_t span = span_bytes(swizzle), pattern = 8 * span;
        const std::uint32_t at = (start - 128 * base) % pattern;
        if (at >= span || at % kWgmmaK != 0)
            return "address " + std::to_string(start) +
                   " is no step of 32 bytes in the first row of a " + std::to_string(pattern) +
                   "-byte pattern";
        if (rows > 8 && (stride == 0 || stride % pattern != 0))
            return "a stride of " + std::to_string(stride) + " bytes with patterns of " +
                   std::to_string(pattern);
    }
    for (std::uint32_t i = 0; i < 2 * rows; i++)
        if (address(i / 2, i % 2) + kChunkBytes > shared_bytes)
            return "row " + std::to_string(i / 2) + " is at address " +
                   std::to_string(address(i / 2, i % 2)) + " of " + std::to_string(shared_bytes);
    return {};
}

// ---- registers

bool WgmmaRegisters::is_same(const std::uint32_t* const* other, std::uint32_t count) const {
    return words == count && std::equal(lanes, lanes + kLanes, other);
}

bool WgmmaRegisters::overlaps(const std::uint32_t* const* other, std::uint32_t count) const {
    return lanes[0] < other[0] + count && other[0] < lanes[0] + words;
}

WgmmaRegisters& Block::use_registers(std::uint32_t warp, std::uint32_t* const* lanes,
                                     std::uint32_t words, const Site& site) {
    auto& known = wgmma_warps_[warp].registers;
    WgmmaRegisters* found = nullptr;
    for (const auto& r : known) {
        if (r->is_same(lanes, words))
            found = r.get();
        else if (r->last_op != 0 && r->overlaps(lanes, words))
            reporter_.add(Fault::kInFlight, site, t_lane->thread, r->site, [&] {
                return "part of these registers is in use by the wgmma of " + describe(r->site);
            });
    }
    if (found != nullptr) return *found;
    if (known.size() >= kMaxRegisterSets) {
        const auto oldest =
            std::find_if(known.begin(), known.end(), [](const auto& r) { return r->last_op == 0; });
        if (oldest != known.end()) known.erase(oldest);
    }
    WgmmaRegisters& r = *known.emplace_back(std::make_unique<WgmmaRegisters>());
    std::copy_n(lanes, kLanes, r.lanes);
    r.words = words;
    return r;
}

void Block::use_a_registers(std::uint32_t warp, WgmmaOp& op, Wgmma* const* lanes,
                            const Site& site) {
    std::uint32_t* at[kLanes];
    for (std::uint32_t lane = 0; lane < kLanes; lane++)
        at[lane] = const_cast<std::uint32_t*>(lanes[lane]->a_registers);
    WgmmaRegisters& r = use_registers(warp, at, 4, site);
    std::vector<std::uint32_t> now = values(r);
    if (options_.check_races && !r.seen.empty() && now != r.seen) {
        if (r.last_op != 0)
            reporter_.add(Fault::kInFlight, site, t_lane->thread, r.site, [&] {
                return "A was written while the wgmma of " + describe(r.site) + " reads it";
            });
        else
            report(Fault::kWgmmaFence, site, "A was written since the last fence");
    }
    r.seen = std::move(now);
    r.is_written = false;
    r.last_op = wgmma_warps_[warp].issued;
    r.site = site;
    op.a[warp % kGroupWarps] = &r;
}

void Block::use_accumulators(std::uint32_t warp, WgmmaOp& op, Wgmma* const* lanes,
                             const Site& site) {
    WgmmaWarp& state = wgmma_warps_[warp];
    const std::uint32_t n = op.operands.n, words = n / 2;
    std::uint32_t* at[kLanes];
    for (std::uint32_t lane = 0; lane < kLanes; lane++)
        at[lane] = reinterpret_cast<std::uint32_t*>(lanes[lane]->d);
    WgmmaRegisters& r = use_registers(warp, at, words, site);
    if (r.last_op != 0) {
        if (options_.check_races && !is_poison(r))
            reporter_.add(Fault::kInFlight, site, t_lane->thread, r.site, [&] {
                return "accumulators were written during the wgmma of " + describe(r.site);
            });
    } else {
        const std::vector<std::uint32_t> now = values(r);
        // Registers that came back from a wait have been read since, or the wait was for nothing;
        // and those that are to be overwritten need not hold anything yet that could be compared.
        const bool is_dirty =
            op.operands.accumulate ? now != r.seen : state.fences == r.fences_at_wait;
        if (options_.check_races && !r.seen.empty() && is_dirty)
            report(Fault::kWgmmaFence, site, "the accumulators were in use since the last fence");
        r.accumulators.resize(std::size_t{kWarpRows} * n);
        for (std::uint32_t lane = 0; lane < kLanes; lane++)
            for (std::uint32_t i = 0; i < words; i++)
                r.accumulators[place(lane, i, n)] =
                    formats::bit_cast<float>(now[std::size_t{lane} * words + i]);
        for (std::uint32_t* registers : r.lanes)
            std::fill_n(static_cast<Word*>(registers), words, kPoison);
    }
    r.is_written = true;
    r.last_op = state.issued;
    r.site = site;
    op.d[warp % kGroupWarps] = &r;
}

// The wgmmas that used these registers are done.
void Block::give_back(std::uint32_t warp, WgmmaRegisters& r, const Site& site) {
    r.last_op = 0;
    r.fences_at_wait = wgmma_warps_[warp].fences;
    if (!r.is_written) {
        if (options_.check_races && values(r) != r.seen)
            reporter_.add(Fault::kInFlight, r.site, warp * kLanes, site,
                          [&] { return "A was written before the wait of " + describe(site); });
        return;
    }
    if (!is_poison(r)) {
        // They may not even be registers of this array any more: leave them alone.
        if (options_.check_races)
            reporter_.add(Fault::kInFlight, r.site, warp * kLanes, site, [&] {
                return "accumulators were written before the wait of " + describe(site);
            });
        return;
    }
    const std::uint32_t n = 2 * r.words;
    r.seen.resize(std::size_t{kLanes} * r.words);
    for (std::uint32_t lane = 0; lane < kLanes; lane++)
        for (std::uint32_t i = 0; i < r.words; i++) {
            const auto word = formats::bit_cast<std::uint32_t>(r.accumulators[place(lane, i, n)]);
            static_cast<Word*>(r.lanes[lane])[i] = word;
            r.seen[std::size_t{lane} * r.words + i] = word;
        }
}

// ---- issue

std::uint32_t Block::warp_in_group(const char* what, const Site& site) {
    const std::uint32_t warp = t_lane->thread / kLanes;
    if (warp / kGroupWarps >= warpgroups_.size())
        give_up(Fault::kBadOperand, site,
                std::string(what) + " by warp " + std::to_string(warp) +
                    ": its four, from a multiple of 4 on, are not all in the block");
    return warp;
}

void Block::wgmma(Wgmma operands, const Site& site) {
    collective("wgmma", site, operands, [&](Wgmma* const* lanes) { issue_wgmma(lanes, site); });
}

// wgmma, fence, commit and wait are run by all warps of a warpgroup, in one order.
void Block::join_statement(std::uint32_t warp, const char* what, std::uint32_t value,
                           const Site& site) {
    Warpgroup& group = warpgroups_[warp / kGroupWarps];
    const std::uint32_t number = wgmma_warps_[warp].statements++;
    if (number - group.first_statement == group.statements.size())
        return group.statements.push_back({what, value, site});
    const Warpgroup::Statement& other = group.statements[number - group.first_statement];
    if (std::strcmp(other.what, what) != 0 || other.value != value || !is_same(other.site, site))
        give_up(Fault::kDivergence, site,
                std::string(what) + " where another warp of the warpgroup ran " + other.what +
                    " of " + describe(other.site));
    std::uint32_t all = number + 1;
    for (std::uint32_t w = 0; w < kGroupWarps; w++)
        all = std::min(all, wgmma_warps_[warp / kGroupWarps * kGroupWarps + w].statements);
    for (; group.first_statement < all; group.first_statement++)
        group.statements.pop_front();
}

// The operation that this warp is the first to issue, or that others of its warpgroup have issued.
WgmmaOp& Block::join_wgmma(std::uint32_t warp, const Wgmma& operands, const Site& site) {
    Warpgroup& group = warpgroups_[warp / kGroupWarps];
    const std::uint32_t number = ++wgmma_warps_[warp].issued;
    if (number - group.first < group.ops.size()) {
        WgmmaOp& op = group.ops[number - group.first];
        if (!agrees(op.operands, operands))
            give_up(Fault::kDivergence, site,
                    "the warps of the warpgroup bring different operands");
        return op;
    }
    WgmmaOp& op = group.ops.emplace_back();
    op.operands = operands;
    op.site = site;
    const auto add = [&](std::uint64_t bits, std::uint32_t rows, const char* name) {
        const MatrixDescriptor matrix(bits);
        const std::string why = matrix.invalid(rows, launch_.shared_bytes);
        if (why.empty()) return chunks(matrix, rows);
        report(Fault::kBadOperand, site, "descriptor of " + std::string(name) + ": " + why);
        op.is_valid = false;
        return std::vector<std::uint32_t>();
    };
    op.b_chunks = add(operands.b, operands.n, "B");
    if (operands.a_registers == nullptr) op.a_chunks = add(operands.a, kWgmmaM, "A");
    return op;
}

void Block::issue_wgmma(Wgmma* const* lanes, const Site& site) {
    const Wgmma& mine = *lanes[0];
    const std::uint32_t warp = warp_in_group("wgmma", site);
    if (mine.n == 0 || mine.n % 8 != 0 || mine.n > kWgmmaMaxN)
        give_up(Fault::kBadOperand, site,
                "N = " + std::to_string(mine.n) + ", not a multiple of 8 up to 256");
    for (std::uint32_t lane = 1; lane < kLanes; lane++)
        if (!agrees(mine, *lanes[lane]))
            give_up(Fault::kBadOperand, site, "lanes of a warp bring different operands");
    if (options_.check_races && wgmma_warps_[warp].fences == 0)
        report(Fault::kWgmmaFence, site, "there was none before the first wgmma");

    join_statement(warp, "wgmma", 0, site);
    WgmmaOp& op = join_wgmma(warp, mine, site);
    WgmmaWarp& state = wgmma_warps_[warp];
    const std::uint32_t in_group = warp % kGroupWarps;
    if (state.actor == 0) state.actor = clocks_.add_actor();
    if (op.is_valid) {
        const std::uint32_t first = first_actor_ + warp * kLanes;
        shadow_.wgmma_reads(first, state.actor, state.issued, op.b_chunks, site);
        if (!op.a_chunks.empty())
            shadow_.wgmma_reads(first, state.actor, state.issued,
                                std::span(op.a_chunks)
                                    .subspan(std::size_t{2} * kWarpRows * in_group, 2 * kWarpRows),
                                site);
    }
    if (mine.a_registers != nullptr) use_a_registers(warp, op, lanes, site);
    use_accumulators(warp, op, lanes, site);
    // NOTE: the strict reading: the warps do not wait for each other. Each quarter is done by
    // itself, and another warp may not even have issued its own.
    const Completion how = draw_completion();
    if (how == Completion::kAtOnce) land_wgmmas(warp, state.issued);
    if (how == Completion::kMixed) op.due[in_group] = draw_due();
}

// ---- the operation itself

// The warp's quarters, in order, up to `number`.
void Block::land_wgmmas(std::uint32_t warp, std::uint32_t number) {
    WgmmaWarp& state = wgmma_warps_[warp];
    const Warpgroup& group = warpgroups_[warp / kGroupWarps];
    while (state.landed < number) {
        state.landed++;
        statistics_.wgmmas += warp % kGroupWarps == 0 ? 1 : 0;
        land_wgmma(group.ops[state.landed - group.first], warp % kGroupWarps);
    }
}

// One warp's quarter: rows 16 w to 16 w + 15.
void Block::land_wgmma(const WgmmaOp& op, std::uint32_t w) {
    const std::uint32_t n = op.operands.n;
    const std::array<float, 256>& value = decoded();
    std::vector<float> b(std::size_t{kWgmmaK} * n, value[formats::E4m3::kNan]);
    for (std::size_t i = 0; i < op.b_chunks.size() && op.is_valid; i++) {
        const std::uint8_t* codes = shared(op.b_chunks[i]);
        float* column = &b[i % 2 * kChunkBytes * n + i / 2];
        for (std::size_t k = 0; k < kChunkBytes; k++)
            column[k * n] = value[codes[k]];
    }
    float a[kWarpRows][kWgmmaK] = {};
    if (op.a[w] != nullptr) {
        const std::vector<std::uint32_t> codes = values(*op.a[w]);
        for (std::uint32_t i = 0; i < kLanes * 16; i++) {
            const std::uint32_t lane = i / 16, word = i / 4 % 4, byte = i % 4;
            const std::uint32_t code = codes[std::size_t{lane} * 4 + word] >> (8 * byte) & 0xFFu;
            a[lane / 4 + 8 * (word % 2)][4 * (lane % 4) + 16 * (word / 2) + byte] = value[code];
        }
    } else if (op.is_valid && !op.a_chunks.empty()) {
        for (std::uint32_t i = 0; i < kWarpRows * kWgmmaK; i++) {
            const std::uint32_t row = i / kWgmmaK, k = i % kWgmmaK;
            const std::uint32_t chunk = 2 * (w * kWarpRows + row) + k / kChunkBytes;
            a[row][k] = value[*shared(op.a_chunks[chunk] + k % kChunkBytes)];
        }
    }
    std::vector<float>& c = op.d[w]->accumulators;
    if (!op.operands.accumulate) std::fill(c.begin(), c.end(), 0.0f);
    for (std::uint32_t row = 0; row < kWarpRows; row++)
        formats::hopper_row(&c[std::size_t{row} * n], a[row], b.data(), n);
}

void Block::land_due_wgmmas() {
    for (std::uint32_t warp = 0; warp < kGroupWarps * warpgroups_.size(); warp++) {
        const WgmmaWarp& state = wgmma_warps_[warp];
        std::uint32_t last = 0;
        for (std::uint32_t number = state.landed + 1; number <= state.issued; number++) {
            const Warpgroup& group = warpgroups_[warp / kGroupWarps];
            const std::uint64_t due = group.ops[number - group.first].due[warp % kGroupWarps];
            if (due == WgmmaOp::kNotDue) continue;
            if (due <= steps_)
                last = number;
            else
                next_due_ = std::min(next_due_, due);
        }
        land_wgmmas(warp, last);
    }
}

// ---- fences, groups, waits

void Block::wgmma_fence(const Site& site) {
    if (skips("wgmma.fence", site)) return;
    char none = 0;
    collective("wgmma.fence", site, none, [&](char* const*) {
        const std::uint32_t index = warp_in_group("wgmma.fence", site);
        join_statement(index, "wgmma.fence", 0, site);
        WgmmaWarp& warp = wgmma_warps_[index];
        warp.fences++;
        if (!options_.check_races) return;
        for (const auto& r : warp.registers)
            if (r->last_op == 0) r->seen = values(*r);
    });
}

void Block::wgmma_commit(const Site& site) {
    if (skips("wgmma.commit_group", site)) return;
    char none = 0;
    collective("wgmma.commit_group", site, none, [&](char* const*) {
        const std::uint32_t index = warp_in_group("wgmma.commit_group", site);
        join_statement(index, "wgmma.commit_group", 0, site);
        wgmma_warps_[index].groups.push_back(wgmma_warps_[index].issued);
    });
}

void Block::wgmma_wait(std::uint32_t groups_left, const Site& site) {
    if (skips("wgmma.wait_group", site)) return;
    collective("wgmma.wait_group", site, groups_left, [&](std::uint32_t* const*) {
        const std::uint32_t index = warp_in_group("wgmma.wait_group", site);
        join_statement(index, "wgmma.wait_group", groups_left, site);
        WgmmaWarp& warp = wgmma_warps_[index];
        if (warp.groups.size() <= groups_left) return;
        const std::size_t over = warp.groups.size() - groups_left;
        const std::uint32_t number = warp.groups[over - 1];
        warp.groups.erase(warp.groups.begin(),
                          warp.groups.begin() + static_cast<std::ptrdiff_t>(over));
        if (number > warp.waited) finish_wait(index, number, site);
    });
}

void Block::finish_wait(std::uint32_t warp, std::uint32_t number, const Site& site) {
    WgmmaWarp& state = wgmma_warps_[warp];
    Warpgroup& group = warpgroups_[warp / kGroupWarps];
    land_wgmmas(warp, number);
    for (const auto& r : state.registers)
        if (r->last_op != 0 && r->last_op <= number) give_back(warp, *r, site);
    for (std::uint32_t lane = 0; lane < kLanes; lane++)
        clocks_.learn(first_actor_ + warp * kLanes + lane, state.actor, number);
    state.waited = number;
    shadow_.wgmma_waited(warp, number);
    std::uint32_t all = number;
    for (std::uint32_t w = 0; w < kGroupWarps; w++)
        all = std::min(all, wgmma_warps_[warp / kGroupWarps * kGroupWarps + w].waited);
    for (; group.first <= all; group.first++)
        group.ops.pop_front();
}

// A thread must not end before what its warp started: nothing could land in its registers.
void Block::leave_wgmma(const Lane& lane) {
    const WgmmaWarp& warp = wgmma_warps_[lane.thread / kLanes];
    if (warp.issued == warp.waited) return;
    const bool is_committed = !warp.groups.empty() && warp.groups.back() == warp.issued;
    const Warpgroup& group = warpgroups_[lane.thread / kLanes / kGroupWarps];
    report(Fault::kInFlight, group.ops[warp.issued - group.first].site,
           is_committed ? "the thread ends without a wait for this wgmma"
                        : "the thread ends and this wgmma is in no committed group");
    cancelling_ = true;
}

// At the end, every warp must have run what the others of its warpgroup have. One that has run
// nothing does not take part: the kernel's idea of a warpgroup is another.
void Block::end_warpgroups() {
    for (std::size_t g = 0; g < warpgroups_.size(); g++) {
        const Warpgroup& group = warpgroups_[g];
        if (group.statements.empty()) continue;
        std::string warps;
        for (std::size_t w = g * kGroupWarps; w < (g + 1) * kGroupWarps; w++)
            if (wgmma_warps_[w].statements == group.first_statement)
                warps += " " + std::to_string(w);
        const Warpgroup::Statement& missed = group.statements.front();
        report(group.first_statement == 0 ? Fault::kBadOperand : Fault::kDivergence, missed.site,
               std::string(missed.what) + " was not run by warps" + warps + " of warpgroup " +
                   std::to_string(g) + "; that is four warps from a multiple of 4 on");
    }
}

void Block::report_waiting_registers() {
    for (std::size_t w = 0; w < wgmma_warps_.size(); w++)
        if (wgmma_warps_[w].wanted != 0)
            report(Fault::kRegisterPool, lanes_[w * kLanes].site,
                   "warp " + std::to_string(w) + " wants " +
                       std::to_string(wgmma_warps_[w].wanted) + " registers a thread and has " +
                       std::to_string(wgmma_warps_[w].count) + "; " +
                       std::to_string(free_registers_) + " are free");
}

}  // namespace quatt::simt
