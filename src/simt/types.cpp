#include "simt/types.hpp"

#include <algorithm>
#include <cstring>

#include "simt/reporter.hpp"

namespace quatt::simt {

bool is_same(const Site& a, const Site& b) {
    if (a.line() != b.line() || a.column() != b.column()) return false;
    return a.file_name() == b.file_name() || std::strcmp(a.file_name(), b.file_name()) == 0;
}

std::string describe(const Site& site) {
    const char* slash = std::strrchr(site.file_name(), '/');
    const char* file = slash != nullptr ? slash + 1 : site.file_name();
    return std::string(file) + ":" + std::to_string(site.line());
}

namespace {

std::string text(const Dim3& d) {
    return "(" + std::to_string(d.x) + "," + std::to_string(d.y) + "," + std::to_string(d.z) + ")";
}

}  // namespace

const char* name(Fault fault) {
    switch (fault) {
        case Fault::kGlobalBounds:
            return "global memory out of bounds";
        case Fault::kSharedBounds:
            return "shared memory out of bounds";
        case Fault::kMisaligned:
            return "misaligned address";
        case Fault::kUninitialised:
            return "read of shared memory never written";
        case Fault::kReadRace:
            return "read not ordered after the write";
        case Fault::kWriteRace:
            return "write not ordered after earlier accesses";
        case Fault::kInFlight:
            return "bytes of a copy in flight";
        case Fault::kProxyFence:
            return "proxy fence missing";
        case Fault::kWgmmaFence:
            return "wgmma fence missing";
        case Fault::kEarlyStart:
            return "early start";
        case Fault::kEarlyExit:
            return "block of a cluster ends too early";
        case Fault::kBarrierMisuse:
            return "barrier misuse";
        case Fault::kMbarrierMisuse:
            return "mbarrier misuse";
        case Fault::kRegisterPool:
            return "register pool misuse";
        case Fault::kDivergence:
            return "divergent collective";
        case Fault::kDeadlock:
            return "deadlock";
        case Fault::kStepLimit:
            return "step limit";
        case Fault::kBadOperand:
            return "operand not allowed";
        case Fault::kException:
            return "exception";
    }
    return "unknown fault";
}

std::string to_string(const Report& report) {
    std::string line = report.kernel + ": " + name(report.fault) + " at " + describe(report.site);
    if (!report.detail.empty()) line += ": " + report.detail;
    line += "; block " + text(report.block) + " thread " + std::to_string(report.thread);
    if (report.count > 1) line += ", " + std::to_string(report.count) + " times";
    return line;
}

void Reporter::merge(std::vector<Report>& into, const std::vector<Report>& block) {
    for (const Report& report : block) {
        const auto same = std::find_if(into.begin(), into.end(), [&](const Report& known) {
            return known.fault == report.fault && is_same(known.site, report.site) &&
                   is_same(known.against, report.against);
        });
        if (same == into.end())
            into.push_back(report);
        else
            same->count += report.count;
    }
}

bool Result::has(Fault fault) const {
    return std::any_of(reports.begin(), reports.end(),
                       [&](const Report& report) { return report.fault == fault; });
}

std::string Result::summary() const {
    std::string lines;
    for (const Report& report : reports)
        lines += to_string(report) + "\n";
    return lines;
}

}  // namespace quatt::simt
