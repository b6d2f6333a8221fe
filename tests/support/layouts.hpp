// What the tests of views share: the same numbers at other addresses.
#pragma once
#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <utility>
#include <vector>

#include "support/attention.hpp"

namespace quatt::test {

// Address space without memory behind it until it is touched.
class SparseMemory {
public:
    explicit SparseMemory(std::size_t size_bytes) : size_(size_bytes) {
        data_ = ::mmap(nullptr, size_, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    }
    ~SparseMemory() {
        if (ok()) {
            ::munmap(data_, size_);
        }
    }
    SparseMemory(const SparseMemory&) = delete;
    SparseMemory& operator=(const SparseMemory&) = delete;
    [[nodiscard]] bool ok() const { return data_ != MAP_FAILED; }
    [[nodiscard]] std::byte* data() const { return static_cast<std::byte*>(data_); }

private:
    void* data_;
    std::size_t size_;
};

// Gives `to` the codes of `from`, which has the same extents and dtype.
inline void copy_codes(Buffer& to, const quatt_tensor& from) {
    for_each_index(extents_of(from),
                   [&](const Extents& i) { to.set_code(i, code_at(from, offset(from, i))); });
}

// A copy of a contiguous tensor of one item and one head, with tokens `stride` elements apart.
[[nodiscard]] inline quatt_tensor with_tokens_apart(quatt_tensor t, std::int64_t stride,
                                                    const SparseMemory& memory) {
    const auto size = static_cast<std::int64_t>(quatt_dtype_bytes(t.dtype));
    const std::int64_t row_bytes = t.extent[t.rank - 1] * size;
    for (std::int64_t i = 0; i < t.extent[t.rank - 3]; i++) {
        std::memcpy(memory.data() + i * stride * size,
                    static_cast<const std::byte*>(t.data) + i * row_bytes,
                    static_cast<std::size_t>(row_bytes));
    }
    t.data = memory.data();
    t.stride[t.rank - 3] = stride;
    return t;
}

// Tokens `stride` elements apart, in one of q, k, v and out at a time, give the bits of a
// contiguous tensor. `c` has one item and one head.
inline void expect_tokens_apart_change_nothing(Case& c, const Way& way, std::int64_t stride) {
    const std::int64_t tokens = std::max(c.spec.tokens_q, c.spec.tokens_k);
    const SparseMemory memory(static_cast<std::size_t>(tokens * stride) *
                              std::max(quatt_dtype_bytes(c.spec.q), quatt_dtype_bytes(c.spec.out)));
    ASSERT_TRUE(memory.ok());
    const Bits near = bits_of(c, way);
    for (const auto& [name, member] : {std::pair{"q", &quatt_tensors::q},
                                       {"k", &quatt_tensors::k},
                                       {"v", &quatt_tensors::v},
                                       {"out", &quatt_tensors::out}}) {
        quatt_tensor far{};
        const Bits bits = bits_of(c, way, [&, member = member](Problem& p) {
            far = with_tokens_apart(p.tensors.*member, stride, memory);
            p.tensors.*member = far;
        });
        EXPECT_EQ(bits.lse, near.lse) << name << ": " << c.spec;
        EXPECT_EQ(member == &quatt_tensors::out ? codes_of(far) : bits.out, near.out)
            << name << ": " << c.spec;
    }
}

// Axes in any order in memory, with gaps, and some of them backwards.
[[nodiscard]] inline Strider random_strides(Random& random, bool input) {
    const std::uint64_t seed = random.bits();
    return [seed, input](const Extents& extents) {
        Random r(seed);
        std::vector<std::size_t> order(extents.size());
        std::iota(order.begin(), order.end(), std::size_t{0});
        for (std::size_t i = order.size(); i > 1; i--) {
            std::swap(order[i - 1],
                      order[static_cast<std::size_t>(r.in(0, static_cast<std::int64_t>(i) - 1))]);
        }
        Extents strides(extents.size());
        std::int64_t step = r.in(1, 3);
        for (const std::size_t axis : order) {
            // Stride 0 for batch and heads only: rounding errors of equal channels or keys would
            // all be the same, and not noise.
            const bool shared = input && axis != extents.size() - 1 && axis + 3 != extents.size();
            strides[axis] = shared && r.chance(.15) ? 0 : r.chance(.1) ? -step : step;
            step =
                step * std::max<std::int64_t>(extents[axis], 1) + (r.chance(.5) ? r.in(0, 5) : 0);
            if (extents[axis] == 1 && r.chance(.5)) {
                strides[axis] = r.in(-7, 7);  // never used
            }
        }
        return strides;
    };
}

}  // namespace quatt::test
