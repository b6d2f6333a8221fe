// Same input, same bits: whatever else is in the batch or in the process, and however many threads
// work.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <thread>

#include "support/attention.hpp"

namespace quatt::test {
namespace {

class Determinism : public testing::TestWithParam<Way> {};
INSTANTIATE_TEST_SUITE_P(Ways, Determinism, testing::ValuesIn(all_ways()), name_of);

Spec dense() {
    Spec s;
    s.batch = 3;
    s.tokens_q = 70;
    s.tokens_k = 150;
    s.heads_q = 4;
    s.heads_kv = 2;
    s.dim = 20;
    s.causal = true;
    s.sink = {.5f, -1, 2, 0};
    s.q = s.k = s.v = QUATT_E4M3;
    s.descale_rank = 2;
    s.kv_lens = {150, 77, 0};
    return s;
}

Spec packed() {
    Spec s = dense();
    s.packed = true;
    s.q_lens = {31, 0, 130, 1, 64};
    s.k_lens = {65, 20, 200, 1, 64};
    s.kv_lens = {};
    return s;
}

// Every item, or segment, computed on its own from views of the same memory.
TEST_P(Determinism, AnItemGivesTheBitsItGivesAlone) {
    const Way way = GetParam();
    Case c(dense());
    const Bits together = bits_of(c, way);
    c.reset_outputs();
    for (std::int64_t b = 2; b >= 0; b--) {
        Problem p = c.problem(way);
        for (quatt_tensor* t : {&p.tensors.q, &p.tensors.k, &p.tensors.v, &p.tensors.out,
                                &p.tensors.lse, &p.tensors.kv_lens, &p.tensors.q_descale,
                                &p.tensors.k_descale, &p.tensors.v_descale}) {
            *t = narrowed(*t, 0, b, 1);
        }
        const Status st = run(p, way.device);
        ASSERT_TRUE(st.ok()) << st.message();
    }
    EXPECT_EQ((Bits{c.out.codes(), c.lse.codes()}), together);
}

TEST_P(Determinism, ASegmentGivesTheBitsItGivesAlone) {
    const Way way = GetParam();
    Case c(packed());
    const Bits together = bits_of(c, way);
    // In another company: the segments in two calls of their own cu_seqlens, the first and the
    // rest.
    for (const bool as_dense : {false, true}) {
        c.reset_outputs();
        std::int64_t q0 = 0, k0 = 0;
        for (std::size_t b = 0; b < c.spec.q_lens.size(); b++) {
            Problem p = c.problem(way);
            const std::int64_t nq = c.spec.q_lens[b], nk = c.spec.k_lens[b];
            p.tensors.q = narrowed(p.tensors.q, 0, q0, nq);
            p.tensors.k = narrowed(p.tensors.k, 0, k0, nk);
            p.tensors.v = narrowed(p.tensors.v, 0, k0, nk);
            p.tensors.out = narrowed(p.tensors.out, 0, q0, nq);
            p.tensors.lse = narrowed(p.tensors.lse, 1, q0, nq);
            for (quatt_tensor* t :
                 {&p.tensors.q_descale, &p.tensors.k_descale, &p.tensors.v_descale}) {
                *t = narrowed(*t, 0, static_cast<std::int64_t>(b), 1);
            }
            p.tensors.cu_seqlens_q = p.tensors.cu_seqlens_k = {};
            if (as_dense) {  // [T,H,D] as [1,T,H,D], [H,T] as [1,H,T]
                for (quatt_tensor* t :
                     {&p.tensors.q, &p.tensors.k, &p.tensors.v, &p.tensors.out, &p.tensors.lse}) {
                    for (int i = t->rank; i > 0; i--) {
                        t->extent[i] = t->extent[i - 1];
                        t->stride[i] = t->stride[i - 1];
                    }
                    t->extent[0] = 1;
                    t->rank++;
                }
            }
            const Status st = run(p, way.device);
            ASSERT_TRUE(st.ok()) << st.message();
            q0 += nq;
            k0 += nk;
        }
        EXPECT_EQ((Bits{c.out.codes(), c.lse.codes()}), together)
            << (as_dense ? "as dense" : "packed");
    }
}

// A head does not know its neighbours; a GQA group's K and V are those of its own head.
TEST_P(Determinism, AHeadGivesTheBitsItGivesAlone) {
    const Way way = GetParam();
    Case c(dense());
    const Bits together = bits_of(c, way);
    c.reset_outputs();
    for (std::int64_t h = 0; h < 4; h++) {
        Problem p = c.problem(way);
        p.tensors.q = narrowed(p.tensors.q, 2, h, 1);
        p.tensors.k = narrowed(p.tensors.k, 2, h / 2, 1);
        p.tensors.v = narrowed(p.tensors.v, 2, h / 2, 1);
        p.tensors.out = narrowed(p.tensors.out, 2, h, 1);
        p.tensors.lse = narrowed(p.tensors.lse, 1, h, 1);
        p.tensors.sink = narrowed(p.tensors.sink, 0, h, 1);
        for (quatt_tensor* t : {&p.tensors.q_descale, &p.tensors.k_descale, &p.tensors.v_descale}) {
            *t = narrowed(*t, 1, h / 2, 1);
        }
        const Status st = run(p, way.device);
        ASSERT_TRUE(st.ok()) << st.message();
    }
    EXPECT_EQ((Bits{c.out.codes(), c.lse.codes()}), together);
}

TEST_P(Determinism, ThreadsAndRepetitionChangeNothing) {
    const Way way = GetParam();
    for (const Spec& s : {dense(), packed()}) {
        Case c(s);
        const Bits one = bits_of(c, way);
        for (std::int32_t threads = 1; threads <= 5; threads++) {
            for (int repeat = 0; repeat < 2; repeat++) {
                EXPECT_EQ(bits_of(c, way, [&](Problem& p) { p.threads = threads; }), one)
                    << threads << " threads";
            }
        }
        EXPECT_EQ(bits_of(c, way, [&](Problem& p) { p.threads = 0; }), one);
    }
}

// One plan, eight callers, each with a workspace and results of its own.
TEST_P(Determinism, APlanServesManyThreadsAtOnce) {
    const Way way = GetParam();
    Case c(packed());
    const Bits alone = bits_of(c, way);
    Problem p = c.problem(way);
    p.threads = 3;
    const auto plan = Plan::create(p, way.device);
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    constexpr int kCallers = 8;
    std::vector<Buffer> outs(kCallers, c.out), lses(kCallers, c.lse);
    std::vector<Status> said(kCallers);
    std::vector<std::thread> callers;
    for (int n = 0; n < kCallers; n++) {
        callers.emplace_back([&, n] {
            const auto u = static_cast<std::size_t>(n);
            Workspace w(plan->workspace_bytes());
            Problem mine = p;
            for (int repeat = 0; repeat < 3 && said[u].ok(); repeat++) {
                outs[u].reset();
                lses[u].reset();
                mine.tensors.out = outs[u];
                mine.tensors.lse = lses[u];
                said[u] = plan->run(mine.tensors, w.span());
            }
        });
    }
    for (std::thread& t : callers) {
        t.join();
    }
    for (std::size_t n = 0; n < kCallers; n++) {
        ASSERT_TRUE(said[n].ok()) << said[n].message();
        EXPECT_EQ((Bits{outs[n].codes(), lses[n].codes()}), alone) << "caller " << n;
    }
}

// Plans that come and go while others run.
TEST(PlanLifetime, PlansComeAndGoInManyThreads) {
    Spec s;
    s.tokens_q = 40;
    s.tokens_k = 50;
    Case c(s);
    const Way way = {"cpu", "fp8"};
    const Bits alone = bits_of(c, way);
    std::vector<std::thread> callers;
    std::vector<Case> cases(6, c);
    std::vector<int> wrong(cases.size(), 0);
    for (std::size_t n = 0; n < cases.size(); n++) {
        callers.emplace_back([&, n] {
            for (int repeat = 0; repeat < 10; repeat++) {
                Problem p = cases[n].problem(way);
                p.threads =
                    1 + static_cast<std::int32_t>((n + static_cast<std::size_t>(repeat)) % 3);
                cases[n].reset_outputs();
                wrong[n] += run(p, way.device).ok() && cases[n].out.codes() == alone.out ? 0 : 1;
            }
        });
    }
    for (std::thread& t : callers) {
        t.join();
    }
    EXPECT_EQ(wrong, std::vector<int>(cases.size(), 0));
}

// Eight callers at once, each by turns: the plan that all share, plans of its own for problems that
// others have too, queries, and calls that are refused. A caller gets its own bits and its own
// messages.
TEST(EightCallers, MixQueriesPlansRunsAndRefusals) {
    struct Kind {
        Spec spec;
        Way way;
    };
    std::vector<Kind> kinds;
    for (const char* recipe : {"fp8", "bf16", "nvfp4", "int8_fp8"}) {
        kinds.push_back({dense(), {"cpu", recipe}});
        kinds.push_back({packed(), {"cpu", recipe}});
    }
    std::vector<Bits> alone;
    for (const Kind& kind : kinds) {
        Case c(kind.spec);
        alone.push_back(bits_of(c, kind.way));
    }
    const Case shared(kinds[0].spec);
    Case first = shared;
    Problem p = first.problem(kinds[0].way);
    p.threads = 3;
    const auto plan = Plan::create(p, "cpu");
    ASSERT_TRUE(plan.ok()) << plan.status().message();

    constexpr std::size_t kCallers = 8;
    std::vector<std::string> faults(kCallers);
    std::vector<std::thread> callers;
    for (std::size_t n = 0; n < kCallers; n++) {
        callers.emplace_back([&, n] {
            const auto check = [&](bool holds, const std::string& what) {
                if (!holds && faults[n].empty()) {
                    faults[n] = what;
                }
            };
            for (std::size_t turn = 0; turn < 6; turn++) {
                Case mine = shared;
                Workspace w(plan->workspace_bytes());
                const Status ran = plan->run(mine.problem(kinds[0].way).tensors, w.span());
                check(ran.ok(), ran.message());
                check(Bits{mine.out.codes(), mine.lse.codes()} == alone[0], "shared plan: bits");

                // Neighbours in the same turn have the same problem, and later another.
                const std::size_t k = (n / 2 + turn) % kinds.size();
                Case own(kinds[k].spec);
                Problem q = own.problem(kinds[k].way);
                q.threads = 1 + static_cast<std::int32_t>((n + turn) % 3);
                const auto info = query(q, "cpu");
                const auto made = Plan::create(q, "cpu");
                check(info.ok() && made.ok(), "query or plan");
                if (info.ok() && made.ok()) {
                    check(made->workspace_bytes() == info->workspace_bytes, "workspace");
                    check(explain(q, "cpu").find("chosen") != std::string::npos, "explain");
                    Workspace room(info->workspace_bytes);
                    check(made->run(q.tensors, room.span()).ok(), "run");
                    check(Bits{own.out.codes(), own.lse.codes()} == alone[k], "own plan: bits");
                }
                q.causal = 100 + static_cast<std::int32_t>(n);
                check(query(q, "cpu").status().message().find(
                          "causal is " + std::to_string(q.causal)) != std::string::npos,
                      "a message of another caller");
            }
        });
    }
    for (std::thread& t : callers) {
        t.join();
    }
    EXPECT_EQ(faults, std::vector<std::string>(kCallers));
}

// What a plan was made from may change and go.
TEST(PlanLifetime, APlanKeepsWhatItNeeds) {
    Spec s;
    s.tokens_q = 10;
    s.tokens_k = 20;
    Case c(s);
    const Way way = {"emulate", "fp8"};
    const std::vector<std::int64_t> rows = {1, 5, 9};
    const Bits want = bits_of(c, way, [&](Problem& p) {
        p.rows = rows.data();
        p.row_count = 3;
    });
    auto gone_rows = std::make_unique<std::vector<std::int64_t>>(rows);
    auto gone = std::make_unique<Problem>(c.problem(way));
    auto kernel = std::make_unique<std::string>("emulate");
    gone->rows = gone_rows->data();
    gone->row_count = 3;
    gone->kernel = kernel->c_str();
    Tensors tensors;
    static_cast<quatt_tensors&>(tensors) = gone->tensors;
    Result<Plan> plan = Plan::create(*gone, way.device);
    ASSERT_TRUE(plan.ok());
    std::fill(gone_rows->begin(), gone_rows->end(), 3);
    gone_rows.reset();
    gone->softmax_scale = 77;
    gone.reset();
    kernel.reset();
    Plan moved = std::move(*plan);
    Workspace w(moved.workspace_bytes());
    c.reset_outputs();
    const Status st = moved.run(tensors, w.span());
    ASSERT_TRUE(st.ok()) << st.message();
    EXPECT_EQ((Bits{c.out.codes(), c.lse.codes()}), want);
    std::ostringstream text;
    text << moved;
    EXPECT_NE(text.str().find("3 rows"), std::string::npos);
}

// ---- fresh processes --------------------------------------------------------------------------

constexpr const char* kConfiguration = "QUATT_TEST_CONFIGURATION";

std::string configuration_hash(int n) {
    const std::vector<Way> ways = all_ways();
    const Way way = ways[static_cast<std::size_t>(n) % ways.size()];
    Spec s = n % 2 == 0 ? dense() : packed();
    s.seed = 100 + static_cast<std::uint64_t>(n);
    Case c(s);
    const Bits bits = bits_of(c, way, [&](Problem& p) { p.threads = 1 + n % 3; });
    std::uint64_t hash = 0xCBF29CE484222325u;  // FNV-1a
    for (const auto* codes : {&bits.out, &bits.lse}) {
        for (const std::uint32_t code : *codes) {
            hash = (hash ^ code) * 0x100000001B3u;
        }
    }
    return std::to_string(hash);
}

// Run by the test below in a process of its own.
TEST(FreshProcess, PrintsTheHashOfOneConfiguration) {
    const char* n = std::getenv(kConfiguration);
    if (n == nullptr) {
        GTEST_SKIP() << "only for ConfigurationsThatAlternateAreAsInFreshProcesses";
    }
    std::printf("\nhash %s\n", configuration_hash(std::atoi(n)).c_str());
}

std::string hash_in_fresh_process(int n) {
    int ends[2];
    if (::pipe(ends) != 0) {
        return "no pipe";
    }
    const pid_t child = ::fork();
    if (child == 0) {
        ::dup2(ends[1], STDOUT_FILENO);
        ::setenv(kConfiguration, std::to_string(n).c_str(), 1);
        ::unsetenv("GTEST_OUTPUT");
        ::execl("/proc/self/exe", "test_api", "--gtest_filter=FreshProcess.Prints*",
                static_cast<char*>(nullptr));
        ::_exit(127);
    }
    ::close(ends[1]);
    std::string text;
    char block[4096];
    for (ssize_t got; (got = ::read(ends[0], block, sizeof block)) > 0;) {
        text.append(block, static_cast<std::size_t>(got));
    }
    ::close(ends[0]);
    int status = 0;
    ::waitpid(child, &status, 0);
    const std::size_t at = text.find("\nhash ");
    return status != 0 || at == std::string::npos
               ? "failed: " + text
               : text.substr(at + 6, text.find('\n', at + 1) - at - 6);
}

// Whatever ran before in the process.
TEST(FreshProcess, ConfigurationsThatAlternateAreAsInFreshProcesses) {
    if (std::getenv(kConfiguration) != nullptr) {
        GTEST_SKIP();
    }
    const int count = static_cast<int>(all_ways().size());
    std::vector<std::string> alone;
    for (int n = 0; n < count; n++) {
        alone.push_back(hash_in_fresh_process(n));
        ASSERT_EQ(alone.back().find_first_not_of("0123456789"), std::string::npos) << alone.back();
    }
    for (int round = 0; round < 2; round++) {
        for (int n = 0; n < count; n++) {
            EXPECT_EQ(configuration_hash(n), alone[static_cast<std::size_t>(n)]) << n;
            const int other = (n * 7 + 3) % count;
            EXPECT_EQ(configuration_hash(other), alone[static_cast<std::size_t>(other)])
                << other << " after " << n;
        }
    }
}

}  // namespace
}  // namespace quatt::test
