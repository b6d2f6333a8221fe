// The stack that a run uses of each thread: quatt.h says how much at most.
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/mman.h>

#include <cstring>

#include "support/attention.hpp"

namespace quatt::test {
namespace {

constexpr std::size_t kStack = 1 << 20, kAllowed = 64 << 10;
constexpr unsigned char kUntouched = 0xA5;

// Bytes of stack that f needs in a thread of its own, beside what an empty thread needs.
template <class F>
std::size_t stack_of(F&& f) {
    const auto used = [](void* (*start)(void*), void* argument) {
        void* const memory =
            mmap(nullptr, kStack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        EXPECT_NE(memory, MAP_FAILED);
        std::memset(memory, kUntouched, kStack);
        pthread_attr_t attributes;
        pthread_t thread{};
        pthread_attr_init(&attributes);
        EXPECT_EQ(pthread_attr_setstack(&attributes, memory, kStack), 0);
        EXPECT_EQ(pthread_create(&thread, &attributes, start, argument), 0);
        pthread_join(thread, nullptr);
        pthread_attr_destroy(&attributes);
        const auto* bytes = static_cast<const unsigned char*>(memory);
        std::size_t low = 0;
        while (low < kStack && bytes[low] == kUntouched) {
            low++;
        }
        munmap(memory, kStack);
        return kStack - low;
    };
    static const std::size_t empty = used([](void*) -> void* { return nullptr; }, nullptr);
    return used(
               [](void* argument) -> void* {
                   (*static_cast<std::remove_reference_t<F>*>(argument))();
                   return nullptr;
               },
               &f) -
           empty;
}

class Stack : public testing::TestWithParam<Way> {};
INSTANTIATE_TEST_SUITE_P(Ways, Stack, testing::ValuesIn(all_ways()), name_of);

TEST_P(Stack, OfARunIsSmall) {
    if (kSanitized) {
        GTEST_SKIP() << "a sanitizer's frames are larger";
    }
    const Way way = GetParam();
    Spec s;
    s.packed = true;
    s.q_lens = {200, 1, 30};
    s.k_lens = {300, 70, 64};
    s.heads_q = 4;
    s.dim = 256;
    s.causal = true;
    s.sink = {1, 2, 3, 4};
    Case c(s);
    std::size_t most = 0;
    for (std::int32_t i = -1; i < quatt_kernel_count(); i++) {
        quatt_kernel_info info{};
        info.struct_size = sizeof info;
        Problem p = c.problem(way);
        if (i >= 0) {
            ASSERT_EQ(quatt_kernel_get_info(i, &info), QUATT_OK);
            p.kernel = info.name;
        }
        // In the thread of the call, and in each one of a pool.
        const auto pool = [&](std::int64_t count, auto&& body) {
            for (std::int64_t index = 0; index < count; index++) {
                most = std::max(most, stack_of([&] { body(index); }));
            }
        };
        for (const std::int32_t threads : {1, 2}) {
            p.threads = threads;
            if (threads > 1) {
                p.set_parallel_for(pool);
            }
            const auto plan = Plan::create(p, way.device);
            if (!plan.ok()) {
                ASSERT_GE(i, 0) << plan.status().message();
                continue;
            }
            Workspace w(plan->workspace_bytes());
            Status ran;
            most = std::max(most, stack_of([&] { ran = plan->run(p.tensors, w.span()); }));
            ASSERT_TRUE(ran.ok()) << ran.message();
        }
    }
    EXPECT_LE(most, kAllowed);
    EXPECT_GT(most, 1000u) << "it was measured";
    RecordProperty("stack_bytes", static_cast<int>(most));
}

TEST(StackOfATest, IsMeasured) {
    if (kSanitized) {
        GTEST_SKIP() << "a sanitizer's frames are larger";
    }
    EXPECT_GE(stack_of([] {
                  volatile char large[70000];
                  large[0] = 1;
                  large[69999] = 1;
                  (void)large[0];
              }),
              69000u);
}

}  // namespace
}  // namespace quatt::test
