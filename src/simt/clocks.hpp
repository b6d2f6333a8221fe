// Vector clocks: who knows of whose accesses.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

namespace quatt::simt {

// What one synchronisation object carries from those that arrive to those that wait.
struct Knowledge {
    std::vector<std::uint32_t> known, fenced;
};

// One clock a thread. Actors are the threads of a block, followed by its mbarriers: an
// asynchronous write "by" an mbarrier at time p + 1 is known to whoever has seen its phase p end;
// and by warps, whose quarter of wgmma number p reads "at time p" and is known to whoever has
// waited for it. A thread's accesses carry its own time, which moves on whenever it tells others
// about them.
//
// Beside it, what a thread knows to lie before a proxy fence: only that may be touched by the
// asynchronous proxy.
class Clocks {
public:
    void reset(std::uint32_t threads, std::uint32_t others) {
        threads_ = threads;
        width_ = threads + others;
        used_ = threads;
        has_fence_ = false;
        known_.assign(std::size_t{threads_} * width_, 0);
        fenced_.assign(std::size_t{threads_} * threads_, 0);
        for (std::uint32_t t = 0; t < threads_; t++)
            known(t)[t] = 1;
    }

    [[nodiscard]] const std::uint32_t* known_by(std::uint32_t thread) const {
        return &known_[std::size_t{thread} * width_];
    }
    [[nodiscard]] const std::uint32_t* fenced_for(std::uint32_t thread) const {
        return &fenced_[std::size_t{thread} * threads_];
    }
    [[nodiscard]] std::uint32_t now(std::uint32_t thread) const { return known_by(thread)[thread]; }
    [[nodiscard]] std::uint32_t threads() const { return threads_; }
    // One more actor, of which there are at most `others`.
    [[nodiscard]] std::uint32_t add_actor() { return used_++; }
    // The thread has seen what `actor` did up to `time`.
    void learn(std::uint32_t thread, std::uint32_t actor, std::uint32_t time) {
        known(thread)[actor] = std::max(known(thread)[actor], time);
    }

    // fence.proxy.async
    void fence(std::uint32_t thread) {
        has_fence_ = true;
        std::copy_n(known(thread), threads_, fenced(thread));
        known(thread)[thread]++;
    }

    void release(std::uint32_t thread, Knowledge& into) {
        into.known.resize(std::max<std::size_t>(into.known.size(), used_));
        raise(into.known.data(), known(thread), used_);
        if (has_fence_) {
            into.fenced.resize(threads_);
            raise(into.fenced.data(), fenced(thread), threads_);
        }
        known(thread)[thread]++;
    }

    void acquire(std::uint32_t thread, const Knowledge& from) {
        raise(known(thread), from.known.data(), from.known.size());
        raise(fenced(thread), from.fenced.data(), from.fenced.size());
    }

    // The same for a thread that has released into `from` and done nothing since: it knows no more
    // than `from` does, but for its own time.
    void adopt(std::uint32_t thread, const Knowledge& from) {
        const std::uint32_t own = known(thread)[thread];
        std::copy(from.known.begin(), from.known.end(), known(thread));
        std::copy(from.fenced.begin(), from.fenced.end(), fenced(thread));
        known(thread)[thread] = own;
    }

    static void join(Knowledge& into, const Knowledge& from) {
        into.known.resize(std::max(into.known.size(), from.known.size()));
        into.fenced.resize(std::max(into.fenced.size(), from.fenced.size()));
        raise(into.known.data(), from.known.data(), from.known.size());
        raise(into.fenced.data(), from.fenced.data(), from.fenced.size());
    }

    // All of them learn what any of them knows.
    void meet(std::uint32_t first_thread, std::uint32_t count, Knowledge& scratch) {
        scratch.known.assign(used_, 0);
        scratch.fenced.clear();
        for (std::uint32_t t = first_thread; t < first_thread + count; t++)
            release(t, scratch);
        for (std::uint32_t t = first_thread; t < first_thread + count; t++)
            adopt(t, scratch);
    }

private:
    std::uint32_t* known(std::uint32_t thread) { return &known_[std::size_t{thread} * width_]; }
    std::uint32_t* fenced(std::uint32_t thread) { return &fenced_[std::size_t{thread} * threads_]; }
    static void raise(std::uint32_t* into, const std::uint32_t* from, std::size_t n) {
        for (std::size_t i = 0; i < n; i++)
            into[i] = std::max(into[i], from[i]);
    }

    std::uint32_t threads_ = 0, width_ = 0, used_ = 0;
    bool has_fence_ = false;
    std::vector<std::uint32_t> known_, fenced_;
};

}  // namespace quatt::simt
