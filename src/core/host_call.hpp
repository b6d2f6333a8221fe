// One call of a host kernel: lengths, descales and views read from host memory, and its loops.
// While one exists its thread has the library's floating-point state.
#pragma once
#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>

#include "core/arena.hpp"
#include "core/callers_threads.hpp"
#include "core/float_state.hpp"
#include "core/kernel.hpp"
#include "core/tensor_view.hpp"
#include "recipe/attend.hpp"

namespace quatt::core {

struct HostSegment {
    std::int64_t q_begin = 0, q_len = 0, k_begin = 0,
                 k_len = 0;  // tokens; of the stream, or of the batch laid end to end
};

// Host copies of cu_seqlens must hold what the tensors, in host memory, hold: a kernel goes by the
// tensors, and whoever set the copies may have planned by them.
void check_host_copies(const quatt_tensors& t, const Shape& s, Reasons& reasons);

class HostCall {
public:
    HostCall(const Plan& plan, const Request& request)
        : plan_(plan), request_(request), p_(plan.problem), s_(plan.shape), t_(request.tensors) {}

    // Lengths and scales are data: they are refused here, before anything is written.
    [[nodiscard]] Status check_values() const;

    [[nodiscard]] HostSegment segment(std::int64_t b) const;
    [[nodiscard]] recipe::HeadView input(const quatt_tensor& x, const quatt_tensor& scale,
                                         std::int64_t b, std::int64_t token, std::int64_t tokens,
                                         std::int64_t head, std::int64_t kv_head) const;
    [[nodiscard]] recipe::HeadOutput output(std::int64_t b, std::int64_t token,
                                            std::int64_t head) const;
    [[nodiscard]] recipe::HeadProblem head_problem(const HostSegment& g, std::int64_t b,
                                                   std::int64_t head) const;

    // Quantises a head of segment b for the KV heads [first, first + count) and the query heads
    // that share them: i counts those query heads, then the k, then the v heads. Slots of `to`
    // count from the range's first.
    void quantize_head(const Operands& to, std::int64_t first, std::int64_t count, std::int64_t b,
                       std::int64_t i) const;
    // Which i, of so many KV heads, the call's work quantises: from .first to before .second.
    [[nodiscard]] std::pair<std::int64_t, std::int64_t> operands_of(std::int64_t count) const;

    // Rows of segment g to compute: all, or those of `rows` that lie in it (row - begin of the
    // returned span's owner).
    [[nodiscard]] std::span<const std::int64_t> chosen_rows(const HostSegment& g) const;

    [[nodiscard]] bool some_rows() const { return p_.row_count > 0; }

    // Fills blocks[0..segments], blocks of so many rows before each segment, and returns their
    // number.
    [[nodiscard]] std::int64_t count_blocks(std::int64_t* blocks, std::int64_t block_rows) const;
    // Calls f(head problem, rows, segment index, segment) for one block of kRows rows of a head.
    template <std::int64_t kRows, class F>
    void with_rows(const std::int64_t* blocks, std::int64_t block, std::int64_t head, F&& f) const {
        const std::int64_t b =
            std::upper_bound(blocks, blocks + s_.segments + 1, block) - blocks - 1;
        const HostSegment g = segment(b);
        const std::int64_t first = (block - blocks[b]) * kRows;
        std::array<std::int64_t, kRows> rows;
        std::int64_t n = 0;
        if (some_rows()) {
            const auto chosen = chosen_rows(g).subspan(static_cast<std::size_t>(first));
            for (; n < std::min<std::int64_t>(kRows, static_cast<std::int64_t>(chosen.size()));
                 n++) {
                rows[static_cast<std::size_t>(n)] =
                    chosen[static_cast<std::size_t>(n)] - (s_.packed ? g.q_begin : 0);
            }
        } else {
            for (; n < std::min(kRows, g.q_len - first); n++) {
                rows[static_cast<std::size_t>(n)] = first + n;
            }
        }
        f(head_problem(g, b, head),
          std::span<const std::int64_t>(rows.data(), static_cast<std::size_t>(n)), b, g);
    }

    // Calls f(worker, i) for every i in [0, n), as ThreadPool::run does, in the plan's threads or
    // in the caller's.
    template <class F>
    [[nodiscard]] Status run(std::int64_t n, F&& f) const {
        static_assert(std::is_nothrow_invocable_v<F&, int, std::int64_t>);
        if (plan_.pool != nullptr) {
            plan_.pool->run(n, std::forward<F>(f));
            return {};
        }
        return run_in_callers_threads(
            p_, plan_.choice.threads, n, std::addressof(f),
            [](void* context, int worker, std::int64_t i) noexcept {
                (*static_cast<std::remove_reference_t<F>*>(context))(worker, i);
            },
            state_);
    }

    // Zeroes the tail where that was asked for, and writes the status word, with the bits that
    // packed K and V keep.
    void finish() const;

private:
    // `token` counts over the whole batch for dense tensors.
    [[nodiscard]] std::int64_t offset(const HeadStrides& st, std::int64_t b,
                                      std::int64_t token) const {
        return s_.packed ? token * st.token : b * st.batch;
    }
    [[nodiscard]] float* row_values(const quatt_tensor& t, std::int64_t b, std::int64_t token,
                                    std::int64_t head, std::int64_t& stride) const;
    [[nodiscard]] std::int64_t keys_of(std::int64_t b) const;
    [[nodiscard]] static float descale(const quatt_tensor& t, std::int64_t b, std::int64_t kv_head);

    const Plan& plan_;
    const Request& request_;
    const quatt_problem& p_;
    const Shape& s_;
    const quatt_tensors& t_;
    FloatState state_;
    mutable std::atomic<std::int32_t> data_bits_{0};  // QUATT_DATA_*, of all heads
};

}  // namespace quatt::core
