#include "core/cpu_count.hpp"

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>
#include <quatt/attention.hpp>

#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

namespace quatt::core {
namespace {

// A root folder with files of /proc and of control groups, gone at the end.
class Root {
public:
    Root() : path_(std::filesystem::temp_directory_path() / ("quatt_root_" + id())) {
        std::filesystem::create_directories(path_);
    }
    ~Root() { std::filesystem::remove_all(path_); }
    Root(const Root&) = delete;
    Root& operator=(const Root&) = delete;

    Root& write(const std::string& name, const std::string& text) {
        const std::filesystem::path path = path_ / name;
        std::filesystem::create_directories(path.parent_path());
        std::ofstream(path) << text;
        return *this;
    }
    [[nodiscard]] int quota() const { return quota_count(path_.string()); }

private:
    static std::string id() {
        static int count = 0;
        return std::to_string(getpid()) + "_" + std::to_string(count++);
    }
    std::filesystem::path path_;
};

constexpr const char* kV2 =
    "24 1 0:22 / /proc rw,nosuid - proc proc rw\n"
    "30 24 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";

TEST(CpuQuota, OfVersion2) {
    struct Case {
        const char* max;
        int count;
    };
    for (const Case& c : {Case{"max 100000\n", 0},
                          {"100000 100000\n", 1},
                          {"50000 100000\n", 1},
                          {"150000 100000\n", 2},
                          {"1600000 100000\n", 16},
                          {"1600001 100000\n", 17},
                          {"", 0},
                          {"rubbish\n", 0},
                          {"100000 0\n", 0}}) {
        Root root;
        root.write("proc/self/mountinfo", kV2)
            .write("proc/self/cgroup", "0::/user.slice/job\n")
            .write("sys/fs/cgroup/user.slice/job/cpu.max", c.max);
        EXPECT_EQ(root.quota(), c.count) << c.max;
    }
}

TEST(CpuQuota, OfVersion2IsTheLeastOfTheGroupsAbove) {
    Root root;
    root.write("proc/self/mountinfo", kV2)
        .write("proc/self/cgroup", "0::/a/b/c\n")
        .write("sys/fs/cgroup/a/b/c/cpu.max", "800000 100000\n");
    EXPECT_EQ(root.quota(), 8);
    root.write("sys/fs/cgroup/a/cpu.max", "300000 100000\n");
    EXPECT_EQ(root.quota(), 3);
    root.write("sys/fs/cgroup/cpu.max", "200000 100000\n");
    EXPECT_EQ(root.quota(), 2) << "the mount's own, as in a container";
    root.write("sys/fs/cgroup/a/b/other/cpu.max", "100000 100000\n");
    EXPECT_EQ(root.quota(), 2) << "a group beside ours";
}

TEST(CpuQuota, OfVersion1) {
    const std::string mounts =
        "31 30 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
        "32 30 0:28 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"
        "33 30 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
        "34 30 0:30 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
    Root root;
    root.write("proc/self/mountinfo", mounts)
        .write("proc/self/cgroup", "5:cpuset:/set\n4:cpu,cpuacct:/job\n3:memory:/job\n0::/\n")
        .write("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "250000\n")
        .write("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us", "100000\n");
    EXPECT_EQ(root.quota(), 3);
    root.write("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "-1\n");
    EXPECT_EQ(root.quota(), 0);
    root.write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "50000\n")
        .write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "50000\n");
    EXPECT_EQ(root.quota(), 1);
}

// A container of version 1 mounts its own group and reads the host's name of it.
TEST(CpuQuota, OfAMountThatShowsAGroupOnly) {
    Root root;
    root.write("proc/self/mountinfo",
               "33 30 0:29 /docker/12ab /sys/fs/cgroup/cpu\\040here ro - cgroup cgroup rw,cpu\n")
        .write("proc/self/cgroup", "4:cpu:/docker/12ab\n")
        .write("sys/fs/cgroup/cpu here/cpu.cfs_quota_us", "400000\n")
        .write("sys/fs/cgroup/cpu here/cpu.cfs_period_us", "100000\n");
    EXPECT_EQ(root.quota(), 4);
    root.write("proc/self/cgroup", "4:cpu:/docker/12ab/job\n")
        .write("sys/fs/cgroup/cpu here/job/cpu.cfs_quota_us", "200000\n")
        .write("sys/fs/cgroup/cpu here/job/cpu.cfs_period_us", "100000\n");
    EXPECT_EQ(root.quota(), 2);
    root.write("proc/self/cgroup", "4:cpu:/../../elsewhere\n");
    EXPECT_EQ(root.quota(), 4) << "a group outside of what is seen: the mount's own counts";
}

TEST(CpuQuota, IsNoneWithoutFiles) {
    EXPECT_EQ(Root().quota(), 0);
    EXPECT_EQ(quota_count("/nowhere"), 0);
    Root root;
    root.write("proc/self/mountinfo", "one two\n - \n\n").write("proc/self/cgroup", ":\n::\nx\n");
    EXPECT_EQ(root.quota(), 0);
}

TEST(CpuCount, IsWhatTheThreadMayUse) {
    std::thread([] {
        cpu_set_t mine, one;
        ASSERT_EQ(sched_getaffinity(0, sizeof mine, &mine), 0);
        EXPECT_EQ(affinity_count(), CPU_COUNT(&mine));
        EXPECT_LE(cpu_count(), CPU_COUNT(&mine));
        CPU_ZERO(&one);
        for (int i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; i++) {
            if (CPU_ISSET(i, &mine)) {
                CPU_SET(i, &one);
            }
        }
        ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
        EXPECT_EQ(affinity_count(), 1);
        EXPECT_EQ(cpu_count(), 1);
        EXPECT_EQ(quatt_cpu_count(), 1);
        const Tensor x(nullptr, DType::f32, {1, 4, 1, 16});
        const auto info = query(Problem(Recipe("fp8"), x, x, x, x), "emulate");
        ASSERT_TRUE(info.ok());
        EXPECT_EQ(info->threads, 1) << "threads = 0";
    }).join();
}

}  // namespace
}  // namespace quatt::core
