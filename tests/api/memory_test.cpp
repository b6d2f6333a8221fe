// Memory: a run allocates nothing, needs what the plan says, writes its outputs, and reads within
// its tensors.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>

#include "support/attention.hpp"

namespace {
std::atomic<std::int64_t> allocations{0};
}  // namespace

// NOTE: the C library lets a program define malloc itself; its own stays reachable under these
// names. A sanitizer has already taken the place.
#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define QUATT_TEST_COUNTS_ALLOCATIONS 1
extern "C" {
void* __libc_malloc(std::size_t);
void* __libc_calloc(std::size_t, std::size_t);
void* __libc_realloc(void*, std::size_t);
void* __libc_memalign(std::size_t, std::size_t);

void* malloc(std::size_t n) {
    allocations.fetch_add(1, std::memory_order_relaxed);
    return __libc_malloc(n);
}
void* calloc(std::size_t n, std::size_t size) {
    allocations.fetch_add(1, std::memory_order_relaxed);
    return __libc_calloc(n, size);
}
void* realloc(void* p, std::size_t n) {
    allocations.fetch_add(1, std::memory_order_relaxed);
    return __libc_realloc(p, n);
}
void* aligned_alloc(std::size_t align, std::size_t n) {
    allocations.fetch_add(1, std::memory_order_relaxed);
    return __libc_memalign(align, n);
}
int posix_memalign(void** p, std::size_t align, std::size_t n) {
    allocations.fetch_add(1, std::memory_order_relaxed);
    *p = __libc_memalign(align, n);
    return *p == nullptr ? ENOMEM : 0;
}
}
#else
#define QUATT_TEST_COUNTS_ALLOCATIONS 0
#endif

namespace quatt::test {
namespace {

class Memory : public testing::TestWithParam<Way> {};
INSTANTIATE_TEST_SUITE_P(Ways, Memory, testing::ValuesIn(all_ways()), name_of);

Spec with_everything(bool packed) {
    Spec s;
    s.packed = packed;
    s.batch = 2;
    s.tokens_q = 40;
    s.tokens_k = 120;
    s.heads_q = 4;
    s.heads_kv = 2;
    s.dim = 20;
    s.dim_v = 12;
    s.causal = true;
    s.left = 100;
    s.sink = {1, 2, 3, 4};
    s.q = s.k = s.v = QUATT_E4M3;
    s.descale_rank = 2;
    if (packed) {
        s.q_lens = {10, 20};
        s.k_lens = {50, 60};
        s.zero_tail = true;
    }
    s.kv_lens = {40, 60};
    return s;
}

TEST_P(Memory, ARunAllocatesNothing) {
    if (QUATT_TEST_COUNTS_ALLOCATIONS == 0) {
        GTEST_SKIP() << "malloc belongs to the sanitizer";
    }
    const Way way = GetParam();
    for (const bool packed : {false, true}) {
        for (const std::int32_t threads : {1, 3}) {
            Case c(with_everything(packed));
            Problem p = c.problem(way);
            p.threads = threads;
            const auto plan = Plan::create(p, way.device);
            ASSERT_TRUE(plan.ok()) << plan.status().message();
            Workspace w(plan->workspace_bytes());
            const std::int64_t at_first = allocations;
            const Status first = plan->run(p.tensors, w.span());  // the first run too
            const std::int64_t between = allocations;
            const Status second = plan->run(p.tensors, w.span());
            const std::int64_t after = allocations;
            ASSERT_TRUE(first.ok() && second.ok()) << first.message();
            EXPECT_EQ(between - at_first, 0);
            EXPECT_EQ(after - between, 0);
            if (plan->packed_bytes() > 0) {
                Workspace keys(plan->packed_bytes());
                const std::int64_t start = allocations;
                const Status quantized = plan->quantize(p.tensors, keys.span(), w.span());
                const Status attended = plan->attend(p.tensors, keys.span(), w.span());
                const std::int64_t end = allocations;
                ASSERT_TRUE(quantized.ok() && attended.ok()) << attended.message();
                EXPECT_EQ(end - start, 0);
            }
        }
    }
    const std::int64_t before = allocations;
    std::free(std::malloc(10));
    EXPECT_GT(allocations, before) << "the count counts";
}

// ---- workspace --------------------------------------------------------------------------------

// Never less for a larger problem.
TEST_P(Memory, WorkspaceIsMonotoneInEachExtent) {
    const Way way = GetParam();
    struct Axes {
        std::int64_t batch = 2, sq = 100, sk = 150, groups = 2, heads_kv = 2, dim = 40, dim_v = 30;
    };
    const auto bytes_of = [&](const Axes& a, bool packed) {
        const auto view = [&](std::int64_t tokens, std::int64_t heads, std::int64_t channels) {
            return packed ? Tensor(nullptr, DType::bf16, {tokens, heads, channels})
                          : Tensor(nullptr, DType::bf16, {a.batch, tokens, heads, channels});
        };
        Problem p(way.value(), view(a.sq, a.groups * a.heads_kv, a.dim),
                  view(a.sk, a.heads_kv, a.dim), view(a.sk, a.heads_kv, a.dim_v),
                  view(a.sq, a.groups * a.heads_kv, a.dim_v));
        p.threads = 2;
        if (packed) {
            p.tensors.cu_seqlens_q = Tensor(nullptr, DType::i32, {a.batch + 1});
        }
        const auto info = query(p, way.device);
        EXPECT_TRUE(info.ok()) << info.status().message();
        return info.ok() ? info->workspace_bytes : 0;
    };
    for (const bool packed : {false, true}) {
        for (const auto& [name, member, most] :
             {std::tuple{"batch", &Axes::batch, std::int64_t{70}},
              {"Sq", &Axes::sq, std::int64_t{300}},
              {"Sk", &Axes::sk, std::int64_t{300}},
              {"group", &Axes::groups, std::int64_t{9}},
              {"Hkv", &Axes::heads_kv, std::int64_t{9}},
              {"D", &Axes::dim, std::int64_t{256}},
              {"Dv", &Axes::dim_v, std::int64_t{256}}}) {
            std::size_t last = 0;
            for (std::int64_t n = 1; n <= most; n++) {
                Axes a;
                a.*member = n;
                const std::size_t bytes = bytes_of(a, packed);
                ASSERT_GE(bytes, last) << name << " = " << n;
                last = bytes;
            }
        }
    }
    // Threads too; and lengths within a layout change nothing.
    Case c(with_everything(true));
    Problem p = c.problem(way);
    std::size_t last = 0;
    for (std::int32_t threads = 1; threads < 10; threads++) {
        p.threads = threads;
        const std::size_t bytes = query(p, way.device)->workspace_bytes;
        EXPECT_GE(bytes, last);
        last = bytes;
    }
    c.cu_q.set_integers({0, 1, 2});
    EXPECT_EQ(query(p, way.device)->workspace_bytes, last);
}

// The same layout, any lengths in it: what the plan asked for is enough, and its guards stay (run()
// checks them).
TEST_P(Memory, WorkspaceIsEnoughForAnyLengths) {
    const Way way = GetParam();
    Random random(4);
    for (int n = 0; n < scaled(60); n++) {
        Spec s;
        s.packed = true;
        s.dim = random.in(1, 33);
        s.tokens_q = 200;
        s.tokens_k = 260;
        std::int64_t q = 0, k = 0;
        for (int b = 0; b < 9; b++) {  // cut anywhere: groups and blocks straddle every border
            s.q_lens.push_back(
                static_cast<std::int32_t>(random.in(0, std::min<std::int64_t>(60, 200 - q))));
            s.k_lens.push_back(
                static_cast<std::int32_t>(random.in(0, std::min<std::int64_t>(90, 260 - k))));
            q += s.q_lens.back();
            k += s.k_lens.back();
        }
        s.seed = random.bits();
        ASSERT_TRUE(runs_well(s, way));
    }
}

// ---- pages that fault -------------------------------------------------------------------------

// A copy of a tensor that begins, or ends, where the readable memory does.
class FencedCopy {
public:
    FencedCopy(const quatt_tensor& from, bool at_end)
        : page_(static_cast<std::size_t>(::sysconf(_SC_PAGESIZE))) {
        const std::vector<std::uint32_t> codes = codes_of(from);
        const std::size_t element = quatt_dtype_bytes(from.dtype), bytes = codes.size() * element;
        inner_ = (bytes + page_ - 1) / page_ * page_;
        map_ = static_cast<std::byte*>(
            ::mmap(nullptr, inner_ + 2 * page_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        (void)::mprotect(map_ + page_, inner_, PROT_READ | PROT_WRITE);
        view_ = quatt_tensor_contiguous(map_ + page_ + (at_end ? inner_ - bytes : 0), from.dtype,
                                        from.rank, from.extent);
        for (std::size_t i = 0; i < codes.size(); i++) {
            std::memcpy(static_cast<std::byte*>(view_.data) + i * element, &codes[i], element);
        }
    }
    ~FencedCopy() { ::munmap(map_, inner_ + 2 * page_); }
    FencedCopy(const FencedCopy&) = delete;
    FencedCopy& operator=(const FencedCopy&) = delete;

    void make_read_only() { (void)::mprotect(map_ + page_, inner_, PROT_READ); }
    [[nodiscard]] const quatt_tensor& view() const { return view_; }

private:
    std::size_t page_, inner_ = 0;
    std::byte* map_ = nullptr;
    quatt_tensor view_{};
};

// Inputs are never written, not even for a moment, and nothing outside the tensors is read: either
// would fault.
TEST_P(Memory, ReadsWithinItsInputsOnly) {
    const Way way = GetParam();
    for (const bool packed : {false, true}) {
        Case c(with_everything(packed));
        const Bits want = bits_of(c, way);
        for (const bool at_end : {false, true}) {
            Problem p = c.problem(way);
            std::vector<std::unique_ptr<FencedCopy>> copies;
            for (quatt_tensor* t :
                 {&p.tensors.q, &p.tensors.k, &p.tensors.v, &p.tensors.cu_seqlens_q,
                  &p.tensors.cu_seqlens_k, &p.tensors.kv_lens, &p.tensors.q_descale,
                  &p.tensors.k_descale, &p.tensors.v_descale, &p.tensors.sink}) {
                if (t->dtype != QUATT_NONE) {
                    copies.push_back(std::make_unique<FencedCopy>(*t, at_end));
                    copies.back()->make_read_only();
                    *t = copies.back()->view();
                }
            }
            FencedCopy out(p.tensors.out, at_end), lse(p.tensors.lse, at_end);
            p.tensors.out = out.view();
            p.tensors.lse = lse.view();
            const Status st = run(p, way.device);
            ASSERT_TRUE(st.ok()) << st.message();
            EXPECT_EQ((Bits{codes_of(out.view()), codes_of(lse.view())}), want);
        }
    }
}

}  // namespace
}  // namespace quatt::test
