#include "core/cpu_count.hpp"

#if defined(__linux__)
#include <fcntl.h>
#include <sched.h>
#include <unistd.h>
#endif

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <string_view>
#include <thread>
#include <vector>

namespace quatt::core {

#if defined(__linux__)

namespace {

// All of a file; "" where it cannot be read.
// NOTE: not by a stream, which takes a failed allocation for the end of the file.
std::string contents(const std::string& path) {
    struct File {
        int descriptor;
        ~File() {
            if (descriptor >= 0) {
                close(descriptor);
            }
        }
    } const file{open(path.c_str(), O_RDONLY | O_CLOEXEC)};
    std::string all;
    std::array<char, 1024> part;
    for (ssize_t n = 0;
         file.descriptor >= 0 && (n = read(file.descriptor, part.data(), part.size())) > 0;) {
        all.append(part.data(), static_cast<std::size_t>(n));
    }
    return all;
}

std::vector<std::string_view> split(std::string_view s, char at) {
    std::vector<std::string_view> parts;
    for (;;) {
        const std::size_t end = s.find(at);
        parts.push_back(s.substr(0, end));
        if (end == std::string_view::npos) {
            return parts;
        }
        s.remove_prefix(end + 1);
    }
}

bool lists(std::string_view names, std::string_view name) {
    const auto all = split(names, ',');
    return std::find(all.begin(), all.end(), name) != all.end();
}

// mountinfo writes a space as \040.
std::string unescaped(std::string_view s) {
    std::string out;
    for (std::size_t i = 0; i < s.size(); i++) {
        unsigned code = 0;
        const char* digits = s.data() + i + 1;
        if (s[i] == '\\' && i + 3 < s.size() &&
            std::from_chars(digits, digits + 3, code, 8).ptr == digits + 3) {
            out += static_cast<char>(code);
            i += 3;
        } else {
            out += s[i];
        }
    }
    return out;
}

struct Mount {
    std::string root, point;  // the group that it shows, and where
};

// A line: id parent device root point options [optional fields] - type source options
std::optional<Mount> find_mount(std::string_view mountinfo, std::string_view type,
                                std::string_view controller) {
    for (const std::string_view line : split(mountinfo, '\n')) {
        const auto fields = split(line, ' ');
        const auto dash = std::find(fields.begin(), fields.end(), "-");
        if (fields.end() - dash > 3 && dash - fields.begin() > 4 && dash[1] == type &&
            (controller.empty() || lists(dash[3], controller))) {
            return Mount{unescaped(fields[3]), unescaped(fields[4])};
        }
    }
    return {};
}

// A line: number:controllers:group; of version 2 there is one, without controllers.
std::optional<std::string> find_group(std::string_view cgroup, std::string_view controller) {
    for (const std::string_view line : split(cgroup, '\n')) {
        const std::size_t first = line.find(':'), second = line.find(':', first + 1);
        if (second != std::string_view::npos) {
            const std::string_view names = line.substr(first + 1, second - first - 1);
            if (controller.empty() ? names.empty() : lists(names, controller)) {
                return std::string(line.substr(second + 1));
            }
        }
    }
    return {};
}

constexpr double kNone = std::numeric_limits<double>::infinity();

double cores(std::string_view quota, std::string_view period) {
    const auto number = [](std::string_view s) {
        long long n = 0;
        return std::from_chars(s.data(), s.data() + s.size(), n).ec == std::errc() ? n : -1;
    };
    const long long q = number(quota), p = number(period);
    return q > 0 && p > 0 ? static_cast<double>(q) / static_cast<double>(p) : kNone;
}

double quota_of_v2(const std::string& folder) {
    const std::string max = contents(folder + "/cpu.max");  // "max 100000" or "150000 100000"
    const auto parts = split(max, ' ');
    return parts.size() == 2 ? cores(parts[0], parts[1]) : kNone;
}

double quota_of_v1(const std::string& folder) {
    return cores(contents(folder + "/cpu.cfs_quota_us"), contents(folder + "/cpu.cfs_period_us"));
}

// The least quota of a group and of those above it that the mount shows.
double least_quota(const std::string& root, std::string_view mountinfo, std::string_view cgroup,
                   std::string_view type, std::string_view controller,
                   double (*quota_of)(const std::string&)) {
    const std::optional<Mount> mount = find_mount(mountinfo, type, controller);
    const std::optional<std::string> group = find_group(cgroup, controller);
    if (!mount || !group) {
        return kNone;
    }
    // A container may see a mount of its own group under a name that is the host's.
    const std::string shown = mount->root == "/" ? "" : mount->root;
    std::string below;
    if (group->compare(0, shown.size(), shown) == 0 && group->find("/..") == std::string::npos) {
        below = group->substr(shown.size());
    }
    double least = kNone;
    for (;;) {
        least = std::min(least, quota_of(root + mount->point + below));
        const std::size_t slash = below.rfind('/');
        if (slash == std::string::npos) {
            return least;
        }
        below.resize(slash);
    }
}

}  // namespace

int affinity_count() noexcept {
    // The kernel refuses a mask that is shorter than its own.
    for (std::size_t cpus = CPU_SETSIZE; cpus <= CPU_SETSIZE * 64; cpus *= 2) {
        cpu_set_t* const mask = CPU_ALLOC(cpus);
        if (mask == nullptr) {
            break;
        }
        const bool known = sched_getaffinity(0, CPU_ALLOC_SIZE(cpus), mask) == 0;
        const int count = known ? CPU_COUNT_S(CPU_ALLOC_SIZE(cpus), mask) : 0;
        CPU_FREE(mask);
        if (count > 0) {
            return count;
        }
    }
    return static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

int quota_count(const std::string& root) {
    const std::string mountinfo = contents(root + "/proc/self/mountinfo"),
                      cgroup = contents(root + "/proc/self/cgroup");
    const double least =
        std::min(least_quota(root, mountinfo, cgroup, "cgroup2", "", quota_of_v2),
                 least_quota(root, mountinfo, cgroup, "cgroup", "cpu", quota_of_v1));
    return least < 1e6 ? std::max(1, static_cast<int>(std::ceil(least))) : 0;
}

int cpu_count() {
    // Files are read once a process: a plan asks this each time.
    static const int quota = quota_count("");
    const int cores = affinity_count();
    return quota > 0 ? std::min(cores, quota) : cores;
}

#else

int affinity_count() noexcept {
    return static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

int quota_count(const std::string&) {
    return 0;
}

int cpu_count() {
    return affinity_count();
}

#endif

}  // namespace quatt::core
