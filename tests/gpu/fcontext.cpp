#include <ucontext.h>

#include <boost/context/detail/fcontext.hpp>
#include <cstdint>
#include <new>

namespace boost::context::detail {
namespace {

// A context that waits: at the top of a new stack, or in the frame of the jump that left it.
struct Waiting {
    ucontext_t state;
    void (*entry)(transfer_t);
    transfer_t arrived;  // what the jump to it brings
};

// makecontext passes ints only.
void start(unsigned high, unsigned low) {
    auto* self = reinterpret_cast<Waiting*>(std::uintptr_t{high} << 32 | low);
    self->entry(self->arrived);
}

}  // namespace

fcontext_t make_fcontext(void* stack_top, std::size_t bytes, void (*entry)(transfer_t)) {
    const auto top = reinterpret_cast<std::uintptr_t>(stack_top);
    const std::uintptr_t at = (top - sizeof(Waiting)) / 64 * 64;
    auto* self = new (reinterpret_cast<void*>(at)) Waiting{};
    getcontext(&self->state);
    self->entry = entry;
    self->state.uc_stack.ss_sp = reinterpret_cast<void*>(top - bytes);
    self->state.uc_stack.ss_size = bytes - (top - at);
    self->state.uc_link = nullptr;
    const auto address = reinterpret_cast<std::uintptr_t>(self);
    makecontext(&self->state, reinterpret_cast<void (*)()>(start), 2,
                static_cast<unsigned>(address >> 32), static_cast<unsigned>(address));
    return self;
}

transfer_t jump_fcontext(fcontext_t to, void* data) {
    Waiting self{};
    auto* target = static_cast<Waiting*>(to);
    target->arrived = {&self, data};
    swapcontext(&self.state, &target->state);
    return self.arrived;
}

}  // namespace boost::context::detail
