// What the tests with random problems share: lengths, the count of the answers, and what a refusal
// has to be.
#pragma once
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "support/attention.hpp"

namespace quatt::test {

// Lengths of up to `most_segments` segments of a packed problem, or one without cu_seqlens; then
// kv_lens. s.packed, s.batch and the tokens are set already.
template <class Length>
void set_random_lengths(Spec& s, Random& random, std::int64_t most_segments, const Length& length) {
    std::vector<std::int32_t> keys(static_cast<std::size_t>(s.batch),
                                   static_cast<std::int32_t>(s.tokens_k));
    if (s.packed) {
        if (random.chance(.8)) {
            s.q_lens.resize(static_cast<std::size_t>(random.in(1, most_segments)));
            std::generate(s.q_lens.begin(), s.q_lens.end(), length);
            keys = s.q_lens;
            if (random.chance(.5)) {
                s.k_lens.resize(s.q_lens.size());
                std::generate(s.k_lens.begin(), s.k_lens.end(), length);
                keys = s.k_lens;
            }
        } else {
            s.batch = 1;
            keys = {static_cast<std::int32_t>(s.tokens_k)};
        }
        s.zero_tail = random.chance(.3);
    }
    if (random.chance(.3)) {
        for (const std::int32_t n : keys) {
            s.kv_lens.push_back(static_cast<std::int32_t>(random.in(0, n)));
        }
    }
}

struct Tally {
    int accepted = 0, refused = 0, invalid = 0;
};

inline void record(const Tally& tally) {
    testing::Test::RecordProperty("accepted", tally.accepted);
    testing::Test::RecordProperty("invalid", tally.invalid);
    testing::Test::RecordProperty("unsupported", tally.refused);
}

// Right after a query that answered no: plan and run refuse with the same words, and write nothing.
inline void expect_refused_alike(Case& c, const Problem& p, const Device& device,
                                 quatt_status answer) {
    const std::string message = quatt_last_error();
    ASSERT_FALSE(message.empty());
    c.reset_outputs();
    const Buffer out = c.out, lse = c.lse;
    quatt_plan* plan = nullptr;
    ASSERT_EQ(quatt_plan_create(&p, &device, &plan), answer);
    ASSERT_EQ(message, quatt_last_error());
    ASSERT_EQ(plan, nullptr);
    ASSERT_EQ(quatt_attention(&p, &device), answer);
    ASSERT_EQ(message, quatt_last_error());
    ASSERT_TRUE(out.bytes() == c.out.bytes() && lse.bytes() == c.lse.bytes())
        << "a refused problem wrote";
}

}  // namespace quatt::test
