// The support table: what every row of it has, and the choice among rows of a test's own.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <set>
#include <string>

#include "core/device.hpp"
#include "core/kernel.hpp"
#include "core/problem.hpp"
#include "recipe/recipes.hpp"

namespace quatt::core {
namespace {

// ---- the table of this build ------------------------------------------------------------------

TEST(Table, HasEachKindOfDeviceOnce) {
    std::set<quatt_backend> devices;
    for (const Backend* b : backends()) {
        EXPECT_TRUE(devices.insert(b->device).second) << backend_name(b->device);
        EXPECT_NE(b->kernels.empty(), b->build_option == nullptr) << backend_name(b->device);
    }
    EXPECT_EQ(devices, (std::set<quatt_backend>{QUATT_BACKEND_CPU, QUATT_BACKEND_REFERENCE,
                                                QUATT_BACKEND_EMULATE, QUATT_BACKEND_CUDA,
                                                QUATT_BACKEND_SIMT, QUATT_BACKEND_EMU}));
}

TEST(Table, NamesAreUniqueWithinABackendAndRowsAreWhole) {
    for (const Backend* b : backends()) {
        std::set<std::string> names;
        for (const Kernel& k : b->kernels) {
            EXPECT_TRUE(names.insert(k.name).second)
                << k.name << " twice on " << backend_name(b->device);
            EXPECT_NE(k.refuse, nullptr) << k.name;
            EXPECT_NE(k.choose, nullptr) << k.name;
            EXPECT_NE(k.run, nullptr) << k.name;
            // A row that is listed must not be one that its backend says it cannot have.
            EXPECT_TRUE(b->why_absent == nullptr || b->why_absent(k.name) == nullptr) << k.name;
        }
    }
}

// ---- rows of a test ---------------------------------------------------------------------------

// What a layer above core writes to add a kernel: what it takes, how, and one row.
struct Dummy {
    std::int64_t head_dim;  // the one that it takes
    mutable int runs = 0;
};
const Dummy& dummy(const Kernel& row) {
    return *static_cast<const Dummy*>(row.variant);
}
void refuse(const Kernel& row, const quatt_problem& p, const quatt_device&, Reasons& reasons) {
    if (const std::int64_t has = shape_of(p).head_dim; has != dummy(row).head_dim) {
        reasons.push_back(text("head dim is ", has, "; only ", dummy(row).head_dim, " here"));
    }
}
Choice choose(const Kernel& row, const quatt_problem&, const Shape&, const quatt_device&) {
    Choice c;
    c.key_tile = static_cast<std::int32_t>(dummy(row).head_dim);
    c.workspace_bytes = 128;
    return c;
}
Status run_dummy(const Plan& plan, const Request& request) {
    dummy(*plan.kernel).runs++;
    return request.workspace.size() == 128 ? Status() : Status(QUATT_INTERNAL, "wrong workspace");
}

const Dummy kNarrow{.head_dim = 32}, kWide{.head_dim = 64};
constexpr std::array kRows = {
    Kernel{
        .name = "dummy_32",
        .variant = &kNarrow,
        .refuse = refuse,
        .choose = choose,
        .run = run_dummy,
    },
    Kernel{
        .name = "dummy_64",
        .variant = &kWide,
        .refuse = refuse,
        .choose = choose,
        .run = run_dummy,
    },
};

const char* why_absent(const char* kernel) {
    return std::strcmp(kernel, "dummy_32") == 0 ? "its instructions are missing" : nullptr;
}

constexpr Backend kBoth{.device = QUATT_BACKEND_CPU, .host = true, .kernels = kRows};
constexpr Backend kWideAlone{
    .device = QUATT_BACKEND_CUDA,
    .kernels = std::span<const Kernel>(kRows).subspan(1),
    .why_absent = why_absent,
};
constexpr Backend kNotBuilt{.device = QUATT_BACKEND_SIMT, .build_option = "-DDUMMY=ON"};
constexpr Backend kStandIn{
    .device = QUATT_BACKEND_EMULATE, .host = true, .fallback = true, .kernels = kRows};
constexpr std::array kTable = {&kBoth, &kWideAlone, &kNotBuilt};

class Rows : public testing::Test {
protected:
    [[nodiscard]] static quatt_device device(const char* name) {
        return parse_device(name).value();
    }

    // One token, one head.
    [[nodiscard]] quatt_problem problem(std::int64_t head_dim) {
        quatt_problem p;
        quatt_problem_init(&p);
        const std::array<std::int64_t, 3> extent = {1, 1, head_dim};
        const auto tensor = [&](std::array<float, 96>& data) {
            return quatt_tensor_contiguous(data.data(), QUATT_F32, 3, extent.data());
        };
        p.tensors.q = tensor(q_);
        p.tensors.k = tensor(k_);
        p.tensors.v = tensor(v_);
        p.tensors.out = tensor(out_);
        p.softmax_scale = 1;
        return p;
    }

private:
    std::array<float, 96> q_{}, k_{}, v_{}, out_{};
};

bool contains(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

TEST_F(Rows, TheFirstThatRefusesNothingIsChosenAndRun) {
    for (const Kernel& row : kRows) {
        const std::int64_t head_dim = dummy(row).head_dim;
        const quatt_problem p = problem(head_dim);
        const Selection s = select(p, device("cpu"), kTable);
        ASSERT_TRUE(s.status.ok()) << s.status.message();
        EXPECT_EQ(s.backend, &kBoth);
        EXPECT_EQ(s.kernel, &row);
        EXPECT_EQ(s.choice.key_tile, head_dim);
        EXPECT_EQ(s.refusals.size(), 2u) << "of the other two rows";

        const auto plan = make_plan(p, device("cpu"), kTable);
        ASSERT_TRUE(plan.ok()) << plan.status().message();
        EXPECT_TRUE(contains(describe(**plan), std::string("kernel ") + row.name));
        alignas(kWorkspaceAlign) std::array<std::byte, 128> workspace;
        const int before = dummy(row).runs;
        const Status st = run(**plan, p.tensors, workspace.data(), workspace.size(), nullptr);
        EXPECT_TRUE(st.ok()) << st.message();
        EXPECT_EQ(dummy(row).runs, before + 1);
    }
}

TEST_F(Rows, AreExplainedInTheirOrder) {
    const std::string text = explain(problem(64), device("cpu"), kTable);
    const std::size_t narrow = text.find("  dummy_32 on cpu: no: head dim is 64; only 32 here\n"),
                      wide = text.find("  dummy_64 on cpu: chosen; key tile 64"),
                      other = text.find(
                          "  dummy_64 on cuda: no: serves device cuda; cpu was "
                          "asked for\n");
    EXPECT_NE(other, std::string::npos) << text;
    EXPECT_LT(narrow, wide) << text;
    EXPECT_LT(wide, other) << text;
}

TEST_F(Rows, TheReasonsAreThoseOfTheDevice) {
    const Selection s = select(problem(48), device("cpu"), kTable);
    EXPECT_EQ(s.status.code(), QUATT_UNSUPPORTED);
    EXPECT_EQ(s.status.message(),
              "dummy_32 on cpu: head dim is 48; only 32 here\n"
              "dummy_64 on cpu: head dim is 48; only 64 here");
}

TEST_F(Rows, ANameMustBeOneOfTheTable) {
    quatt_problem p = problem(32);
    p.kernel = "dummy";
    EXPECT_EQ(select(p, device("cpu"), kTable).status.message(),
              "kernel is \"dummy\"; it must be one of dummy_32, dummy_64");
    p.kernel = "dummy_64";
    EXPECT_EQ(select(p, device("cpu"), kTable).status.message(),
              "dummy_64 on cpu: head dim is 32; only 64 here");
}

TEST_F(Rows, ABackendSaysWhyAKernelOfOthersIsNotThere) {
    quatt_problem p = problem(32);
    p.kernel = "dummy_32";
    const std::string text = explain(p, device("cuda"), kTable);
    EXPECT_FALSE(contains(text, "dummy_32 on cuda")) << text;
    EXPECT_TRUE(
        contains(text,
                 "unsupported:\nkernel \"dummy_32\" does not serve cuda:0: its instructions are "
                 "missing\n"))
        << text;
}

TEST_F(Rows, ADeviceThatIsNotBuiltNamesTheOption) {
    quatt_problem p = problem(32);
    // Its kernels may have names that this build does not know.
    for (const char* kernel : std::array<const char*, 3>{nullptr, "dummy_32", "other"}) {
        p.kernel = kernel;
        const Status st = select(p, device("simt:sm_90a"), kTable).status;
        EXPECT_EQ(st.code(), QUATT_UNSUPPORTED);
        EXPECT_EQ(st.message(),
                  "no kernel of this build serves simt:sm_90 (compute capability 9.0); a build "
                  "configured with -DDUMMY=ON has some");
    }
    p.kernel = nullptr;
    EXPECT_EQ(select(p, device("emu:sm_90"), kTable).status.message(),
              "no kernel of this build serves emu:sm_90 (compute capability 9.0)")
        << "a kind of device that the table has not";
}

TEST_F(Rows, AFallbackIsToBackendsThatAllowIt) {
    quatt_problem p = problem(32);
    p.allow_fallback = 1;
    EXPECT_FALSE(select(p, device("simt:sm_90"), kTable).status.ok()) << "none of them allows it";
    constexpr std::array kWithStandIn = {&kBoth, &kStandIn, &kNotBuilt};
    const Selection s = select(p, device("simt:sm_90"), kWithStandIn);
    ASSERT_TRUE(s.status.ok()) << s.status.message();
    EXPECT_TRUE(s.fallback);
    EXPECT_EQ(s.backend, &kStandIn);
    EXPECT_EQ(s.kernel, &kRows[0]);
}

}  // namespace
}  // namespace quatt::core
