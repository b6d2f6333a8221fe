// How many threads can run at once: the cores that this thread may use, and the share of them that
// its control group grants.
#pragma once
#include <string>

namespace quatt::core {

[[nodiscard]] int cpu_count();

// The parts. Cores in the affinity mask of the calling thread:
[[nodiscard]] int affinity_count() noexcept;
// The CPU quota of the process, in whole cores, rounded up; 0 where there is none. Of version 2 of
// control groups (cpu.max) and 1 (cpu.cfs_quota_us); the least of the group and those above it.
// `root` stands before /proc and the mount points that it names: "" but for tests.
[[nodiscard]] int quota_count(const std::string& root);

}  // namespace quatt::core
