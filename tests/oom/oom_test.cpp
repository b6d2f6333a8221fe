// The n-th allocation fails, for every n until a whole sequence of calls needs no more: each
// failure is a status, nothing is thrown across the C interface, nothing is left behind. Threads
// that cannot be made are done without.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <quatt/quatt.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <limits>
#include <ostream>
#include <string>
#include <thread>
#include <vector>

// NOTE: as in tests/api/memory_test.cpp: the C library lets a program define malloc itself, unless
// a sanitizer has taken the place. operator new and the exceptions' memory come through here too.
#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define QUATT_TEST_OWNS_MALLOC 1

namespace {

constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();
std::atomic<std::int64_t> allocations_left{kNever};  // before one fails; one only
std::atomic<std::int64_t> threads_left{kNever};      // before all fail
std::atomic<std::int64_t> live{0};
std::atomic<bool> failed{false};

bool fails() {
    if (allocations_left.load(std::memory_order_relaxed) == kNever ||
        allocations_left.fetch_sub(1, std::memory_order_relaxed) != 0) {
        return false;
    }
    failed = true;
    errno = ENOMEM;
    return true;
}

void* counted(void* p) {
    live.fetch_add(p != nullptr ? 1 : 0, std::memory_order_relaxed);
    return p;
}

}  // namespace

extern "C" {
void* __libc_malloc(std::size_t);
void* __libc_calloc(std::size_t, std::size_t);
void* __libc_realloc(void*, std::size_t);
void* __libc_memalign(std::size_t, std::size_t);
void __libc_free(void*);

void* malloc(std::size_t n) {
    return fails() ? nullptr : counted(__libc_malloc(n));
}
void* calloc(std::size_t n, std::size_t size) {
    return fails() ? nullptr : counted(__libc_calloc(n, size));
}
void* realloc(void* p, std::size_t n) {
    if (fails()) {
        return nullptr;
    }
    void* q = __libc_realloc(p, n);
    live.fetch_add((p == nullptr ? 1 : 0) - (q == nullptr && n == 0 ? 1 : 0),
                   std::memory_order_relaxed);
    return q;
}
void* aligned_alloc(std::size_t align, std::size_t n) {
    return fails() ? nullptr : counted(__libc_memalign(align, n));
}
int posix_memalign(void** p, std::size_t align, std::size_t n) {
    *p = fails() ? nullptr : counted(__libc_memalign(align, n));
    return *p == nullptr ? ENOMEM : 0;
}
void free(void* p) {
    live.fetch_sub(p != nullptr ? 1 : 0, std::memory_order_relaxed);
    __libc_free(p);
}

using PthreadCreate = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*start)(void*),
                   void* argument) {
    static const auto next = reinterpret_cast<PthreadCreate>(::dlsym(RTLD_NEXT, "pthread_create"));
    if (threads_left.load() != kNever && threads_left.fetch_sub(1) <= 0) {
        return EAGAIN;
    }
    return next(thread, attributes, start, argument);
}
}

namespace {

// What the calls work on; nothing in it is allocated while they do.
struct Memory {
    std::array<float, 3 * 2 * 4> q{}, out{};
    std::array<float, 5 * 4> k{}, v{};
    alignas(64) std::array<std::byte, 1 << 21> workspace{}, packed{};
    std::array<char, 1 << 14> text{};

    Memory() {
        for (std::size_t i = 0; i < q.size(); i++) {
            q[i] = static_cast<float>(i % 5) - 2;
        }
        for (std::size_t i = 0; i < k.size(); i++) {
            k[i] = static_cast<float>(i % 7) - 3;
            v[i] = static_cast<float>(i % 3) + 1;
        }
    }
};

constexpr const char* kCalls[] = {
    "device_init",   "recipe_init",     "query",        "explain",     "describe",    "plan_create",
    "plan_get_info", "plan_describe",   "run",          "attention",   "kernel_info", "quantize",
    "attend",        "a refused query", "a bad device", "a bad recipe"};

struct Outcome {
    std::size_t call = std::size(kCalls);  // the first that failed
    quatt_status status = QUATT_OK;
    bool explained = true;  // the failed call left a message
    bool whole = true;      // every text came whole
    bool null_plan = true;  // no plan where none was made
};

// Every call once, in order, up to the first that fails.
Outcome sequence(Memory& m, const char* device_name, const char* recipe, std::int32_t threads) {
    Outcome o;
    quatt_device device{}, other{};
    quatt_problem p, bad;
    quatt_recipe none{};
    quatt_problem_init(&p);
    const std::array<std::int64_t, 4> q_extent = {1, 3, 2, 4}, k_extent = {1, 5, 1, 4};
    p.tensors.q = quatt_tensor_contiguous(m.q.data(), QUATT_F32, 4, q_extent.data());
    p.tensors.k = quatt_tensor_contiguous(m.k.data(), QUATT_F32, 4, k_extent.data());
    p.tensors.v = quatt_tensor_contiguous(m.v.data(), QUATT_F32, 4, k_extent.data());
    p.tensors.out = quatt_tensor_contiguous(m.out.data(), QUATT_F32, 4, q_extent.data());
    p.softmax_scale = 0.5f;
    p.threads = threads;
    const std::int64_t row = 1;
    if (device_name != std::string_view("cpu")) {
        p.rows = &row;  // a plan keeps a copy
        p.row_count = 1;
    }
    quatt_plan_info info{};
    info.struct_size = sizeof info;
    quatt_kernel_info kernel{};
    kernel.struct_size = sizeof kernel;
    auto* const sentinel = reinterpret_cast<quatt_plan*>(&info);
    quatt_plan* plan = sentinel;
    std::size_t needed = 0;

    const auto is = [&](std::size_t call, quatt_status got, quatt_status want = QUATT_OK) {
        const bool good = got == want;
        if (!good) {
            o.call = call;
            o.status = got;
        }
        o.explained = o.explained && (got == QUATT_OK || quatt_last_error()[0] != 0);
        return good;
    };
    const auto text = [&](std::size_t call, quatt_status got) {
        const bool good = is(call, got);
        o.whole = o.whole && (!good || (needed < m.text.size() &&
                                        std::strlen(m.text.data()) + 1 == needed && needed > 80));
        return good;
    };
    const quatt_status packs =
        device_name == std::string_view("cpu") ? QUATT_OK : QUATT_UNSUPPORTED;
    const bool all =
        is(0, quatt_device_init(&device, device_name)) &&
        is(1, quatt_recipe_init(&p.recipe, recipe)) && is(2, quatt_query(&p, &device, &info)) &&
        text(3, quatt_explain(&p, &device, m.text.data(), m.text.size(), &needed)) &&
        text(4, quatt_problem_describe(&p, m.text.data(), m.text.size(), &needed)) &&
        is(5, quatt_plan_create(&p, &device, &plan)) && is(6, quatt_plan_get_info(plan, &info)) &&
        text(7, quatt_plan_describe(plan, m.text.data(), m.text.size(), &needed)) &&
        is(8, quatt_run(plan, &p.tensors, m.workspace.data(), m.workspace.size(), nullptr)) &&
        is(9, quatt_attention(&p, &device)) && is(10, quatt_kernel_get_info(0, &kernel)) &&
        is(11,
           quatt_quantize(plan, &p.tensors, m.packed.data(), m.packed.size(), m.workspace.data(),
                          m.workspace.size(), nullptr),
           packs) &&
        is(12,
           quatt_attend(plan, &p.tensors, m.packed.data(), m.packed.size(), m.workspace.data(),
                        m.workspace.size(), nullptr),
           packs);
    if (plan != sentinel) {
        quatt_plan_destroy(plan);
    }
    o.null_plan = o.call != 5 || plan == nullptr;
    // Refusals need memory for their message. Only the first of these may fail to have it.
    bad = p;
    bad.causal = 7;
    bad.tensors.k.extent[2] = 3;
    (void)(all && is(13, quatt_query(&bad, &device, &info), QUATT_INVALID_ARGUMENT) &&
           is(14, quatt_device_init(&other, "no such device"), QUATT_INVALID_ARGUMENT) &&
           is(15, quatt_recipe_init(&none, "no such recipe"), QUATT_INVALID_ARGUMENT));
    (void)quatt_cpu_features();  // neither can fail nor throw
    return o;
}

std::size_t threads_now() {
    const std::filesystem::directory_iterator tasks("/proc/self/task");
    return static_cast<std::size_t>(std::distance(begin(tasks), end(tasks)));
}

// Waits until there are `want`: a thread that has been joined may be listed a little longer. With
// one too many it never ends, and ctest's limit ends the test.
template <class T>
void wait_for_threads(std::size_t want, const T& where) {
    for (int i = 1; threads_now() != want; i++) {
        if (i % 1000 == 0) {
            std::cerr << where << ": " << threads_now() << " threads instead of " << want << '\n';
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
}

struct Way {
    const char* device;
    const char* recipe;
    std::int32_t threads;

    friend std::ostream& operator<<(std::ostream& out, const Way& w) {
        return out << w.device << ' ' << w.recipe << ' ' << w.threads << " threads";
    }
};
std::string name_of(const testing::TestParamInfo<Way>& info) {
    return std::string(info.param.device) + "_" + info.param.recipe + "_" +
           std::to_string(info.param.threads);
}

class OutOfMemory : public testing::TestWithParam<Way> {};
INSTANTIATE_TEST_SUITE_P(Ways, OutOfMemory,
                         testing::Values(Way{"cpu", "fp8", 1}, Way{"cpu", "bf16", 3},
                                         Way{"emulate", "nvfp4", 1}, Way{"emulate", "fp8", 3},
                                         Way{"reference", "bf16", 1}, Way{"reference", "bf16", 3}),
                         name_of);

// The first pass begins cold, so that what is made once in a process meets failures as well; the
// second counts what lives.
TEST_P(OutOfMemory, EveryFailureIsAStatus) {
    const auto [device, recipe, threads] = GetParam();
    static Memory m;
    std::vector<std::string> called(std::size(kCalls));
    std::array<float, 24> want{};
    for (const bool cold : {true, false}) {
        std::int64_t before = 0;
        const std::size_t tasks = threads_now();
        for (std::int64_t n = 0;; n++) {
            ASSERT_LT(n, 100000);
            m.out.fill(-1);
            before = live;
            failed = false;
            allocations_left = n;
            const Outcome o = sequence(m, device, recipe, threads);
            allocations_left = kNever;
            const bool hit = failed;
            // What a message left in this thread is the same after each round.
            quatt_device none{};
            (void)quatt_device_init(&none, "a name that no device has, and a long one");
            const std::int64_t after = live;

            const std::string where = "allocation " + std::to_string(n) + ", call " +
                                      (o.call < std::size(kCalls) ? kCalls[o.call] : "none");
            if (o.status != QUATT_OK) {
                EXPECT_TRUE(hit) << where << ": fails though there is memory";
                EXPECT_EQ(o.status, QUATT_OUT_OF_MEMORY) << where;
            }
            EXPECT_TRUE(o.explained && o.whole && o.null_plan)
                << where << ": " << o.explained << o.whole << o.null_plan;
            wait_for_threads(tasks, where);
            if (!cold && n > 0) {
                EXPECT_EQ(after, before) << where << " leaks";
            }
            if (o.status == QUATT_OK) {
                // Whole, or with fewer threads than asked for: the result is the same.
                EXPECT_TRUE(!hit || threads > 1) << where << ": a failure was not noticed";
                if (!hit && cold) {
                    want = m.out;
                }
                EXPECT_TRUE(cold || m.out == want) << where;
            }
            if (!hit) {
                EXPECT_EQ(o.status, QUATT_OK) << where;
                EXPECT_GT(n, 20) << "the sequence allocates";
                break;
            }
        }
    }
}

TEST_P(OutOfMemory, ThreadsThatCannotBeMadeAreDoneWithout) {
    const auto [device, recipe, threads] = GetParam();
    static Memory m;
    m.out.fill(-1);  // some ways compute some rows only
    ASSERT_EQ(sequence(m, device, recipe, threads).status, QUATT_OK);
    const std::array<float, 24> want = m.out;
    const std::size_t tasks = threads_now();
    for (std::int64_t n = 0; n < threads; n++) {
        m.out.fill(-1);
        threads_left = n;
        const Outcome o = sequence(m, device, recipe, threads);
        threads_left = kNever;
        EXPECT_EQ(o.status, QUATT_OK) << n;
        EXPECT_EQ(m.out, want) << n;
        wait_for_threads(tasks, n);
    }
}

}  // namespace

#else

TEST(OutOfMemory, EveryFailureIsAStatus) {
    GTEST_SKIP() << "malloc belongs to the sanitizer";
}

#endif
