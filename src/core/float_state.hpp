// The floating-point state that the library computes under, whatever the caller's is: rounding to
// nearest, subnormal numbers as they are, no exception that stops the program. Results would
// otherwise depend on the thread that computes them.
#pragma once
#include <cstdint>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace quatt::core {

class FloatState {
public:
    // The library's from here on, in this thread; what was there before, flags included, comes
    // back at the end.
    FloatState() : before_(get()) { set(kOwn); }
    ~FloatState() { set(before_); }
    FloatState(const FloatState&) = delete;
    FloatState& operator=(const FloatState&) = delete;

    // Calls f, which is the caller's, under the caller's state.
    template <class F>
    void with_callers(F&& f) const {
        struct Back {
            ~Back() { set(kOwn); }
        } const back;
        set(before_);
        f();
    }

private:
#if defined(__x86_64__)
    static constexpr std::uint64_t kOwn = 0x1F80;  // MXCSR: all exceptions masked, nothing else
    static std::uint64_t get() {
        return _mm_getcsr();
    }
    static void set(std::uint64_t state) {
        _mm_setcsr(static_cast<unsigned>(state));
    }
#elif defined(__aarch64__)
    static constexpr std::uint64_t kOwn = 0;  // FPCR
    static std::uint64_t get() {
        std::uint64_t state = 0;
        asm volatile("mrs %0, fpcr" : "=r"(state));
        return state;
    }
    static void set(std::uint64_t state) {
        asm volatile("msr fpcr, %0" : : "r"(state) : "memory");
    }
#else
    static constexpr std::uint64_t kOwn = 0;
    static std::uint64_t get() {
        return 0;
    }
    static void set(std::uint64_t) {}
#endif

    std::uint64_t before_;
};

}  // namespace quatt::core
