// One head of a problem, to be computed by the text of docs/recipes.md (recipe/head.hpp).
#pragma once
#include <numeric>

#include "recipe/head.hpp"
#include "support/attention.hpp"

namespace quatt::test {

// Of segment `segment` (dense: item 0), as the problem `p` of `c` has it.
[[nodiscard]] inline support::HeadInputs head_of(const Case& c, const Problem& p,
                                                 std::size_t segment, std::int64_t head) {
    const Spec& s = c.spec;
    const auto values = [&](const Buffer& b, const std::vector<std::int32_t>& lens,
                            std::int64_t tokens, std::int64_t of) {
        const auto end = lens.begin() + static_cast<std::ptrdiff_t>(s.packed ? segment : 0);
        const std::int64_t first = std::accumulate(lens.begin(), end, std::int64_t{0});
        const quatt_tensor t = detail::head_of(b.view(), s.packed, 0, first, tokens, of);
        std::vector<float> all;
        for_each_index(extents_of(t), [&](const Extents& i) {
            all.push_back(static_cast<float>(value_at(t, i)));
        });
        return all;
    };
    support::HeadInputs x;
    x.q_len = s.packed ? s.q_lens[segment] : s.tokens_q;
    x.k_len = s.packed ? s.k_lens[segment] : s.tokens_k;
    x.dim = s.dim;
    x.dim_v = s.dim_v;
    x.softmax_scale = p.softmax_scale;
    x.causal = s.causal;
    const std::int64_t head_kv = head * s.heads_kv / s.heads_q;
    x.q = values(c.q, s.q_lens, x.q_len, head);
    x.k = values(c.k, s.k_lens, x.k_len, head_kv);
    x.v = values(c.v, s.k_lens, x.k_len, head_kv);
    return x;
}

}  // namespace quatt::test
