#include "simt/launch.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <thread>

#include "simt/block.hpp"

namespace quatt::simt {
namespace {

constexpr std::uint32_t kMaxThreads = 1024;
constexpr std::uint32_t kMaxCluster = 8;  // what every GPU with clusters has
constexpr std::uint32_t kRegisters = 65536, kMaxRegisters = 256;  // of a multiprocessor, a thread

void add(Statistics& sum, const Statistics& part) {
    sum.steps += part.steps;
    sum.switches += part.switches;
    sum.collectives += part.collectives;
    sum.wgmmas += part.wgmmas;
    sum.ldmatrix_rows += part.ldmatrix_rows;
    sum.ldmatrix_conflicts += part.ldmatrix_conflicts;
    sum.stack_bytes = std::max(sum.stack_bytes, part.stack_bytes);
}

bool is_before(const SyncSite& a, const SyncSite& b) {
    if (const int files = std::strcmp(a.site.file_name(), b.site.file_name()); files != 0)
        return files < 0;
    if (a.site.line() != b.site.line()) return a.site.line() < b.site.line();
    if (a.site.column() != b.site.column()) return a.site.column() < b.site.column();
    return std::strcmp(a.instruction, b.instruction) < 0;
}

void add(std::vector<SyncSite>& into, const std::vector<SyncSite>& from) {
    for (const SyncSite& site : from) {
        const auto same = std::find_if(into.begin(), into.end(), [&](const SyncSite& known) {
            return known.kernel == site.kernel && !is_before(known, site) &&
                   !is_before(site, known);
        });
        if (same == into.end())
            into.push_back(site);
        else
            same->count += site.count;
    }
}

Result refused(const LaunchConfig& config, const std::string& why) {
    Result result;
    Report& report = result.reports.emplace_back();
    report.site = Site::current();
    report.fault = Fault::kBadOperand;
    report.kernel = config.kernel;
    report.detail = why;
    return result;
}

}  // namespace

Result launch(const LaunchConfig& config, const Options& options, void (*call)(const void*),
              const void* kernel) {
    const std::uint64_t threads =
        std::uint64_t{config.threads.x} * config.threads.y * config.threads.z;
    if (threads == 0 || threads > kMaxThreads || threads % kLanes != 0)
        return refused(config, "a block of " + std::to_string(threads) +
                                   " threads; it may be a multiple of 32 up to 1024");
    if (config.shared_bytes > kMaxSharedBytes)
        return refused(config, std::to_string(config.shared_bytes) + " bytes of shared memory");
    if (config.cluster < 1 || config.cluster > kMaxCluster || config.grid.x % config.cluster != 0)
        return refused(config, "a cluster of " + std::to_string(config.cluster) + " blocks in " +
                                   std::to_string(config.grid.x) +
                                   "; it may be 1 to 8 and a divisor");
    const std::uint64_t blocks = std::uint64_t{config.grid.x} * config.grid.y * config.grid.z;
    const std::uint32_t fitting = kRegisters / static_cast<std::uint32_t>(threads) / 8 * 8;
    const std::uint32_t registers =
        config.registers != 0 ? config.registers : std::min(fitting, kMaxRegisters);
    const Launch description{config.kernel, config.grid,    config.threads, config.shared_bytes,
                             registers,     config.cluster, config.follows};

    // Each block's reports stay apart until the end, so that the order of blocks decides which
    // occurrence is shown, and not the order of threads.
    std::vector<std::vector<Report>> reports(blocks);
    std::atomic<std::uint64_t> next{0};
    const auto work = [&](Statistics& statistics, std::vector<SyncSite>& sites) {
        Stacks stacks(static_cast<unsigned>(threads * config.cluster), options.stack_bytes);
        Cluster cluster(description, options, stacks);
        for (std::uint64_t i = next++; i < blocks / config.cluster; i = next++) {
            const std::uint64_t first = i * config.cluster;
            const Dim3 index{static_cast<std::uint32_t>(first % config.grid.x),
                             static_cast<std::uint32_t>(first / config.grid.x % config.grid.y),
                             static_cast<std::uint32_t>(first / config.grid.x / config.grid.y)};
            cluster.run(index, call, kernel);
            for (std::uint32_t rank = 0; rank < config.cluster; rank++)
                reports[first + rank] = cluster.blocks[rank]->reporter().reports();
        }
        for (const auto& block : cluster.blocks) {
            add(statistics, block->statistics());
            add(sites, block->sites());
        }
    };

    unsigned workers = options.workers != 0 ? options.workers : std::thread::hardware_concurrency();
    workers = static_cast<unsigned>(
        std::clamp<std::uint64_t>(workers, 1, std::max<std::uint64_t>(blocks, 1)));
    std::vector<Statistics> statistics(workers);
    std::vector<std::vector<SyncSite>> sites(workers);
    std::vector<std::exception_ptr> failures(workers);  // of the executor: no memory for stacks
    const auto guarded = [&](unsigned w) {
        try {
            work(statistics[w], sites[w]);
        } catch (...) {
            failures[w] = std::current_exception();
        }
    };
    std::vector<std::thread> pool;
    for (unsigned w = 1; w < workers; w++)
        pool.emplace_back(guarded, w);
    guarded(0);
    for (std::thread& thread : pool)
        thread.join();
    for (const std::exception_ptr& failure : failures)
        if (failure) std::rethrow_exception(failure);

    Result result;
    for (const Statistics& part : statistics)
        add(result.statistics, part);
    for (const std::vector<Report>& block : reports)
        Reporter::merge(result.reports, block);
    if (options.sites != nullptr) {
        std::vector<SyncSite> passed;
        for (const std::vector<SyncSite>& part : sites)
            add(passed, part);
        std::sort(passed.begin(), passed.end(), is_before);
        add(*options.sites, passed);
    }
    return result;
}

}  // namespace quatt::simt
