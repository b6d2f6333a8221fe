#include "simt/fiber.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <new>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

namespace quatt::simt {
namespace {

namespace context = boost::context::detail;

#if defined(__SANITIZE_ADDRESS__)
// A thread's own stack is known only once a fiber has been entered from it.
thread_local Fiber* t_entered_from = nullptr;
#endif

// The shadow of frames that were left by a last switch is still poisoned, and the addresses will be
// used again.
void forget_frames([[maybe_unused]] void* low, [[maybe_unused]] std::size_t bytes) {
#if defined(__SANITIZE_ADDRESS__)
    ASAN_UNPOISON_MEMORY_REGION(low, bytes);
#endif
}

void left(context::transfer_t transfer) {
    static_cast<Fiber*>(transfer.data)->context = transfer.fctx;
}

}  // namespace

Stacks::Stacks(unsigned count, std::size_t bytes)
    : guard_(static_cast<std::size_t>(sysconf(_SC_PAGESIZE))),
      stride_((bytes + guard_ - 1) / guard_ * guard_ + guard_),
      count_(count) {
    void* memory = mmap(nullptr, stride_ * count_, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    base_ = static_cast<std::uint8_t*>(memory);
    for (unsigned i = 0; i < count_; i++)
        mprotect(base_ + i * stride_, guard_, PROT_NONE);
}

Stacks::~Stacks() {
#if defined(__SANITIZE_ADDRESS__)
    // The shadow of frames that ended by a switch is still poisoned, and the address range will
    // be used again.
    for (unsigned i = 0; i < count_; i++)
        ASAN_UNPOISON_MEMORY_REGION(low(i), bytes());
#endif
    munmap(base_, stride_ * count_);
}

std::size_t Stacks::used(unsigned i) const {
    const auto* byte = static_cast<const std::uint8_t*>(low(i));
    std::size_t untouched = 0;
    while (untouched < bytes() && byte[untouched] == 0)
        untouched++;
    return bytes() - untouched;
}

void make_fiber(Fiber& fiber, void* stack_low, void* stack_top,
                void (*entry)(context::transfer_t)) {
    fiber.stack_low = stack_low;
    fiber.stack_bytes = static_cast<std::size_t>(static_cast<std::uint8_t*>(stack_top) -
                                                 static_cast<std::uint8_t*>(stack_low));
    forget_frames(stack_low, fiber.stack_bytes);
    fiber.context = context::make_fcontext(stack_top, fiber.stack_bytes, entry);
#if defined(__SANITIZE_THREAD__)
    fiber.tsan_fiber = __tsan_create_fiber(0);
#endif
}

void destroy_fiber([[maybe_unused]] Fiber& fiber) {
#if defined(__SANITIZE_THREAD__)
    __tsan_destroy_fiber(fiber.tsan_fiber);
    fiber.tsan_fiber = nullptr;
#endif
}

void adopt_thread([[maybe_unused]] Fiber& fiber) {
#if defined(__SANITIZE_THREAD__)
    fiber.tsan_fiber = __tsan_get_current_fiber();
#endif
}

void switch_fiber(Fiber& from, Fiber& to, [[maybe_unused]] bool from_ends) {
#if defined(__SANITIZE_ADDRESS__)
    t_entered_from = &from;
    __sanitizer_start_switch_fiber(from_ends ? nullptr : &from.asan_fake_stack, to.stack_low,
                                   to.stack_bytes);
#endif
#if defined(__SANITIZE_THREAD__)
    __tsan_switch_to_fiber(to.tsan_fiber, 0);
#endif
    const context::transfer_t transfer = context::jump_fcontext(to.context, &from);
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(from.asan_fake_stack, nullptr, nullptr);
#endif
    left(transfer);
}

void fiber_started(context::transfer_t transfer) {
#if defined(__SANITIZE_ADDRESS__)
    const void* low = nullptr;
    std::size_t bytes = 0;
    __sanitizer_finish_switch_fiber(nullptr, &low, &bytes);
    if (t_entered_from->stack_low == nullptr) {
        t_entered_from->stack_low = low;
        t_entered_from->stack_bytes = bytes;
    }
#endif
    left(transfer);
}

}  // namespace quatt::simt
