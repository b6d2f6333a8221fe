// What the three GPU devices (cuda, emu, simt) share on the host.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>

#include "core/kernel.hpp"
#include "cuda/call.hpp"
#include "cuda/schedules.hpp"

namespace quatt::cuda {

// `words`: of the support table, with spaces between them.
[[nodiscard]] constexpr bool is_among(std::string_view words, std::string_view word) {
    for (std::size_t end = 0; !words.empty(); words.remove_prefix(end)) {
        end = std::min(words.find(' '), words.size());
        if (words.substr(0, end) == word) {
            return true;
        }
        end = std::min(end + 1, words.size());
    }
    return false;
}

[[nodiscard]] constexpr bool is_on(const schedule::ScheduleRow& s, quatt_backend device) {
    return device != QUATT_BACKEND_EMU || s.not_on_emu == nullptr;
}

// The rows of a device: one a schedule that it has.
template <quatt_backend kDevice>
[[nodiscard]] constexpr auto gpu_rows(decltype(core::Kernel::refuse) refuse,
                                      decltype(core::Kernel::choose) choose,
                                      decltype(core::Kernel::run) run) {
    constexpr auto count =
        std::count_if(kSchedules.begin(), kSchedules.end(),
                      [](const schedule::ScheduleRow* s) { return is_on(*s, kDevice); });
    std::array<core::Kernel, static_cast<std::size_t>(count)> rows;
    std::size_t n = 0;
    for (const schedule::ScheduleRow* s : kSchedules) {
        if (is_on(*s, kDevice)) {
            rows[n++] = {
                .name = s->name,
                .compute = s->compute,
                .recipes = s->recipes,
                .head_dims = s->head_dims,
                .dtypes = s->dtypes,
                .features = "dense packed causal gqa lse kv_lens zero_tail status_word",
                .variant = s,
                .refuse = refuse,
                .choose = choose,
                .run = run,
            };
        }
    }
    return rows;
}

// Functions of a row whose variant is a schedule::ScheduleRow. The device's compute capability is
// known.
void refuse_gpu(const core::Kernel& row, const quatt_problem& p, const quatt_device& d,
                core::Reasons& reasons);
[[nodiscard]] core::Choice choose_gpu(const core::Kernel& row, const quatt_problem& p,
                                      const core::Shape& s, const quatt_device& d);
[[nodiscard]] Call make_call(const quatt_problem& p, const core::Shape& s, const quatt_device& d,
                             const quatt_tensors& t);
// The call of a plan with these tensors; refuses tensors that are less aligned than the plan's.
[[nodiscard]] Status prepare_call(const core::Plan& plan, const core::Request& request, Call& call);

}  // namespace quatt::cuda
