// Stacks and switches: one fiber is one CUDA thread.
#pragma once

#include <boost/context/detail/fcontext.hpp>
#include <cstddef>
#include <cstdint>

namespace quatt::simt {

// Memory for the stacks of one block, with a guard page below each: an overflow faults at once
// instead of eating a neighbour.
class Stacks {
public:
    Stacks(unsigned count, std::size_t bytes);
    ~Stacks();
    Stacks(const Stacks&) = delete;
    Stacks& operator=(const Stacks&) = delete;

    [[nodiscard]] void* low(unsigned i) const { return base_ + i * stride_ + guard_; }
    [[nodiscard]] void* top(unsigned i) const { return base_ + (i + 1) * stride_; }
    [[nodiscard]] std::size_t bytes() const { return stride_ - guard_; }
    // Deepest use so far, from the bytes that are no longer zero.
    [[nodiscard]] std::size_t used(unsigned i) const;

private:
    std::uint8_t* base_ = nullptr;
    std::size_t guard_, stride_;
    unsigned count_;
};

// A fiber's saved state and what the sanitizers need to follow it.
struct Fiber {
    boost::context::detail::fcontext_t context = nullptr;
    const void* stack_low = nullptr;
    std::size_t stack_bytes = 0;
    void* asan_fake_stack = nullptr;
    void* tsan_fiber = nullptr;

    [[nodiscard]] bool is_on_stack(const void* p) const {
        const auto* low = static_cast<const std::uint8_t*>(stack_low);
        return p >= low && p < low + stack_bytes;
    }
};

// Prepares `fiber` to call `entry` at its first switch_fiber. `entry` begins with fiber_started
// and ends with a switch that never comes back.
void make_fiber(Fiber& fiber, void* stack_low, void* stack_top,
                void (*entry)(boost::context::detail::transfer_t));
void destroy_fiber(Fiber& fiber);
// Makes `fiber` stand for the calling OS thread's own stack.
void adopt_thread(Fiber& fiber);

// Saves the running fiber in `from` and goes on with `to`; returns when something switches back.
// `from_ends` says that it never will. Never called inside a catch block: the exception that is
// being handled belongs to the OS thread, not to the fiber.
void switch_fiber(Fiber& from, Fiber& to, bool from_ends = false);
void fiber_started(boost::context::detail::transfer_t transfer);

}  // namespace quatt::simt
