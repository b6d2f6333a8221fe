// Which kernel serves which device, what is said where none does, and when another device's kernel
// may stand in.
#include <gtest/gtest.h>

#include <set>

#include "support/attention.hpp"

namespace quatt::test {
namespace {

Spec small() {
    Spec s;
    s.tokens_q = 4;
    s.tokens_k = 9;
    return s;
}

struct Log {
    std::vector<std::string> messages;
    static void append(void* user, const char* message) {
        static_cast<Log*>(user)->messages.emplace_back(message);
    }
    void attach(Problem& p) {
        p.log = append;
        p.log_user = this;
    }
};

bool contains(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

// This build has a kernel for devices of that kind.
bool serves(const std::string& device) {
    for (std::int32_t i = 0; i < quatt_kernel_count(); i++) {
        quatt_kernel_info k{};
        k.struct_size = sizeof k;
        if (quatt_kernel_get_info(i, &k) == QUATT_OK && device == k.device) {
            return true;
        }
    }
    return false;
}

// ---- GPUs, seen from anywhere -----------------------------------------------------------------

// Every GPU, known, older or newer, gets an answer on any machine. No kernel is
// for compute capabilities below 8.0 or above 12.1, and a build without GPU kernels has none.
TEST(Dispatch, EveryComputeCapabilityIsAnsweredByName) {
    Case c(small());
    std::set<std::pair<int, int>> capabilities = {{20, 5}, {99, 9}, {999, 9}};
    for (int major = 1; major < 16; major++) {
        for (int minor = 0; minor < 10; minor++) {
            capabilities.insert({major, minor});
        }
    }
    for (const auto& capability : capabilities) {
        const auto [major, minor] = capability;
        const std::string number = std::to_string(major) + std::to_string(minor);
        for (std::int32_t r = 0; r < quatt_recipe_count(); r++) {
            Problem p = c.problem();
            p.recipe = Recipe(quatt_recipe_name(r));
            for (const auto& [backend, name] :
                 {std::pair<quatt_backend, std::string>{QUATT_BACKEND_CUDA, "cuda"},
                  {QUATT_BACKEND_SIMT, "simt"},
                  {QUATT_BACKEND_EMU, "emu"}}) {
                Device d("cpu");
                d.backend = backend;
                d.ordinal = 3;
                d.compute_major = major;
                d.compute_minor = minor;
                d.sm_count = major % 2 == 0 ? 132 : 0;
                const auto answer = query(p, d);
                ASSERT_FALSE(explain(p, d).empty());
                if (answer.ok()) {
                    ASSERT_TRUE(serves(name)) << number;
                    ASSERT_GE(capability, (std::pair{8, 0})) << name << ": no kernel is for it";
                    ASSERT_LE(capability, (std::pair{12, 1})) << name << ": nobody knows it";
                    ASSERT_EQ(answer->fallback, 0);
                    continue;
                }
                ASSERT_EQ(answer.status().code(), QUATT_UNSUPPORTED);
                const std::string message = answer.status().message();
                ASSERT_TRUE(contains(message, name == "cuda" ? "cuda:3" : name + ":sm_" + number))
                    << message;
                ASSERT_TRUE(contains(explain(p, d), "unsupported"));
                ASSERT_EQ(Plan::create(p, d).status().message(), message);
            }
        }
    }
}

TEST(Dispatch, NamesOfDevicesSayWhatTheyAre) {
    const auto is = [](const char* name, quatt_backend backend, int ordinal, int major, int minor) {
        const Device d(name);
        EXPECT_EQ(d.struct_size, sizeof(quatt_device)) << name;
        EXPECT_EQ(d.backend, backend) << name;
        EXPECT_EQ(d.ordinal, ordinal) << name;
        EXPECT_EQ(d.compute_major, major) << name;
        EXPECT_EQ(d.compute_minor, minor) << name;
    };
    is("cpu", QUATT_BACKEND_CPU, 0, 0, 0);
    is("reference", QUATT_BACKEND_REFERENCE, 0, 0, 0);
    is("emulate", QUATT_BACKEND_EMULATE, 0, 0, 0);
    is("cuda", QUATT_BACKEND_CUDA, 0, 0, 0);
    is("cuda:0", QUATT_BACKEND_CUDA, 0, 0, 0);
    is("cuda:17", QUATT_BACKEND_CUDA, 17, 0, 0);
    is("simt:sm_80", QUATT_BACKEND_SIMT, 0, 8, 0);
    is("simt:sm_90a", QUATT_BACKEND_SIMT, 0, 9, 0);
    is("simt:sm_120f", QUATT_BACKEND_SIMT, 0, 12, 0);
    is("simt:sm_121", QUATT_BACKEND_SIMT, 0, 12, 1);
    is("emu:sm_100a", QUATT_BACKEND_EMU, 0, 10, 0);
    is("emu:sm_120:5", QUATT_BACKEND_EMU, 5, 12, 0);
}

TEST(Dispatch, TheDeviceOfAPlanIsTheOneAskedFor) {
    Case c(small());
    const Problem p = c.problem();
    for (const char* name : {"cpu", "reference", "emulate"}) {
        const auto info = query(p, name);
        ASSERT_TRUE(info.ok());
        EXPECT_STREQ(info->device, name);
        EXPECT_TRUE(is_kernel_of(info->kernel, name)) << info->kernel;
        EXPECT_EQ(info->fallback, 0);
        const auto plan = Plan::create(p, name);
        ASSERT_TRUE(plan.ok());
        const PlanInfo made = plan->info();
        EXPECT_STREQ(made.device, name);
        EXPECT_EQ(made.workspace_bytes, info->workspace_bytes);
        EXPECT_EQ(made.threads, 1);
        EXPECT_EQ(made.key_tile, 64);
        EXPECT_EQ(made.splits, 1);
    }
    Problem all = p;
    all.threads = 0;
    EXPECT_EQ(query(all, "cpu")->threads, quatt_cpu_count());
}

// ---- fallbacks --------------------------------------------------------------------------------

class Fallback : public testing::TestWithParam<const char*> {
protected:
    // A GPU that no kernel is for, whatever this machine has.
    [[nodiscard]] static Device device() {
        Device d(GetParam());
        d.compute_major = 7;
        d.compute_minor = 5;
        return d;
    }
    [[nodiscard]] static std::string name() {
        return std::strcmp(GetParam(), "cuda") == 0 ? "cuda:0" : GetParam();
    }
};

TEST_P(Fallback, IsTakenOnlyWhereAllowed) {
    Case c(small());
    Problem p = c.problem({"cpu", "fp8"});
    Log log;
    log.attach(p);
    const Device d = device();

    const auto refused = query(p, d);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.status().code(), QUATT_UNSUPPORTED);
    EXPECT_TRUE(contains(refused.status().message(), name())) << refused.status().message();
    EXPECT_FALSE(Plan::create(p, d).ok());
    EXPECT_TRUE(log.messages.empty());

    p.allow_fallback = 1;
    const auto info = query(p, d);
    ASSERT_TRUE(info.ok()) << info.status().message();
    EXPECT_TRUE(is_kernel_of(info->kernel, "cpu")) << info->kernel;
    EXPECT_STREQ(info->device, "cpu");
    EXPECT_EQ(info->fallback, 1);
    EXPECT_TRUE(log.messages.empty()) << "a query tells its caller, and nobody else";
    // "cpu", or "cpu_avx2 on cpu".
    const std::string kernel = info->kernel;
    const std::string row = kernel == info->device ? kernel : kernel + " on " + info->device;
    EXPECT_TRUE(contains(explain(p, d), row + ": chosen as a fallback, recipe fp8"))
        << explain(p, d);

    const auto plan = Plan::create(p, d);
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    EXPECT_EQ(plan->info().fallback, 1);
    EXPECT_STREQ(plan->info().kernel, info->kernel);
    std::ostringstream text;
    text << *plan;
    EXPECT_TRUE(contains(text.str(), "fallback")) << text.str();
    ASSERT_EQ(log.messages.size(), 1u);
    EXPECT_TRUE(
        contains(log.messages[0], "fallback to " + std::string(info->kernel) + " with recipe fp8"))
        << log.messages[0];
    EXPECT_TRUE(contains(log.messages[0], refused.status().message()))
        << "the reason: " << log.messages[0];
    Workspace w(plan->workspace_bytes());
    for (int i = 0; i < 3; i++) {
        ASSERT_TRUE(plan->run(p.tensors, w.span()).ok());
    }
    EXPECT_EQ(log.messages.size(), 1u) << "logged once a plan";

    // The same bits as asked for directly.
    const Bits bits = {c.out.codes(), c.lse.codes()};
    EXPECT_EQ(bits_of(c, {"cpu", "fp8"}), bits);

    p.log = nullptr;
    EXPECT_TRUE(Plan::create(p, d).ok());
    EXPECT_EQ(quatt_attention(&p, &d), QUATT_OK);
}

TEST_P(Fallback, IsAnErrorWhereStrict) {
    Case c(small());
    Log log;
    for (const std::int32_t allow : {0, 1}) {
        Problem p = c.problem();
        log.attach(p);
        p.strict = 1;
        p.allow_fallback = allow;
        const auto refused = query(p, device());
        ASSERT_FALSE(refused.ok());
        EXPECT_EQ(refused.status().code(), QUATT_UNSUPPORTED);
        EXPECT_TRUE(contains(refused.status().message(), name()));
        EXPECT_TRUE(contains(refused.status().message(), "strict: the fallback to cpu"));
        EXPECT_TRUE(contains(refused.status().message(), " with recipe bf16 was not taken"))
            << refused.status().message();
        EXPECT_EQ(Plan::create(p, device()).status().message(), refused.status().message());
    }
    EXPECT_TRUE(log.messages.empty());
}

TEST_P(Fallback, HasReasonsOfItsOwn) {
    Case c(small());
    Problem p = c.problem();
    p.allow_fallback = 1;
    p.policy_count = 1;
    const quatt_head_range range{};
    p.policy = &range;
    const auto refused = query(p, device());
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.status().code(), QUATT_UNSUPPORTED);
    p.policy_count = 0;
    p.kernel = "cpu";
    EXPECT_TRUE(query(p, device()).ok());
    p.kernel = "emulate";  // a test device never stands in
    EXPECT_FALSE(query(p, device()).ok());
}

INSTANTIATE_TEST_SUITE_P(Devices, Fallback,
                         testing::Values("cuda", "cuda:1", "simt:sm_75", "emu:sm_75:2"),
                         [](const auto& tested) {
                             std::string device = tested.param;
                             std::replace(device.begin(), device.end(), ':', '_');
                             return device;
                         });

// A GPU that lacks a recipe computes the 16-bit one of the inputs, where that is allowed, before
// the CPU is asked.
TEST(Fallbacks, OfAGpuKeepTheDevice) {
    Case c(small());
    Problem p = c.problem({"cpu", "nvfp4"});
    Device gpu("cuda");
    gpu.compute_major = 9;
    for (const Device& d : {gpu, Device("simt:sm_90"), Device("emu:sm_90")}) {
        p.allow_fallback = 0;
        Problem wide = p;
        wide.recipe = Recipe("bf16");
        if (!query(wide, d).ok()) {
            continue;  // a build without that backend
        }
        const auto lacks = query(p, d);
        if (lacks.ok()) {
            continue;  // a build that has the recipe itself
        }
        p.allow_fallback = 1;
        const auto info = query(p, d);
        ASSERT_TRUE(info.ok()) << info.status().message();
        EXPECT_EQ(info->fallback, 1);
        EXPECT_STREQ(info->kernel, query(wide, d)->kernel);
        EXPECT_STREQ(info->device, query(wide, d)->device);
        EXPECT_EQ(info->workspace_bytes, query(wide, d)->workspace_bytes);
        EXPECT_TRUE(contains(explain(p, d), "chosen as a fallback, recipe bf16")) << explain(p, d);
        Problem strict = p;
        strict.strict = 1;
        EXPECT_FALSE(query(strict, d).ok());
    }
}

TEST(Fallbacks, AreNoneWhereTheDeviceServes) {
    Case c(small());
    Problem p = c.problem();
    Log log;
    log.attach(p);
    p.allow_fallback = 1;
    p.strict = 1;
    for (const char* device : {"cpu", "reference", "emulate"}) {
        const auto plan = Plan::create(p, device);
        ASSERT_TRUE(plan.ok());
        EXPECT_EQ(plan->info().fallback, 0);
        EXPECT_STREQ(plan->info().device, device);
    }
    EXPECT_TRUE(log.messages.empty());
}

// ---- the support table ------------------------------------------------------------------------

TEST(SupportTable, NamesItsKernels) {
    std::set<std::pair<std::string, std::string>> names;
    ASSERT_GE(quatt_kernel_count(), 3);
    for (std::int32_t i = 0; i < quatt_kernel_count(); i++) {
        quatt_kernel_info k{};
        k.struct_size = sizeof k;
        ASSERT_EQ(quatt_kernel_get_info(i, &k), QUATT_OK);
        for (const char* field : {k.name, k.device, k.recipes, k.head_dims, k.dtypes, k.features}) {
            ASSERT_NE(field, nullptr);
            EXPECT_STRNE(field, "") << i;
        }
        EXPECT_TRUE(names.insert({k.name, k.device}).second) << "twice: " << k.name;
        EXPECT_LT(std::strlen(k.name), sizeof(quatt_plan_info::kernel));
        // kernel= reaches it on its own device; a GPU may be missing, and instructions of a CPU.
        if (std::set<std::string>{"cpu", "reference", "emulate"}.count(k.device) == 0) {
            continue;
        }
        Case c(small());
        Problem p = c.problem();
        p.kernel = k.name;
        const auto info = query(p, k.device);
        if (!info.ok()) {
            const std::string why(info.status().message());
            ASSERT_TRUE(contains(why, std::string(k.name) + " on cpu: needs ") ||
                        contains(why, std::string(k.name) + " on cpu: the system refuses "))
                << why;
            continue;
        }
        EXPECT_STREQ(info->kernel, k.name);
    }
    for (const std::int32_t i : {-1, quatt_kernel_count(), std::numeric_limits<std::int32_t>::max(),
                                 std::numeric_limits<std::int32_t>::min()}) {
        quatt_kernel_info k{};
        k.struct_size = sizeof k;
        EXPECT_EQ(quatt_kernel_get_info(i, &k), QUATT_INVALID_ARGUMENT);
        EXPECT_TRUE(
            contains(quatt_last_error(), "index is " + std::to_string(i) + "; it must be 0 to "))
            << quatt_last_error();
        EXPECT_EQ(k.name, nullptr);
    }
}

// A kind of device without any kernel: the message says which build has some.
TEST(SupportTable, ADeviceOutsideThisBuildNamesTheBuildOption) {
    Case c(small());
    for (const auto& [device, kind, option] : {std::tuple{"cuda", "cuda", "QUATT_CUDA=ON"},
                                               {"emu:sm_90", "emu", "QUATT_CUDA=ON"},
                                               {"simt:sm_90a", "simt", "QUATT_SIMT=ON"}}) {
        Problem p = c.problem({"cpu", "nvfp4"});
        for (const char* kernel : std::array<const char*, 2>{nullptr, "wgmma"}) {
            p.kernel = kernel;
            const auto answer = query(p, device);
            ASSERT_FALSE(answer.ok()) << device << ": no GPU kernel has this recipe";
            EXPECT_EQ(contains(answer.status().message(), option), !serves(kind))
                << answer.status().message();
        }
    }
}

// Recipe fp8 on Hopper: wgmma comes first, warp_mma stays within reach; elsewhere there is
// warp_mma.
TEST(SupportTable, HopperHasItsOwnFp8Kernel) {
    Case c(small());
    Device gpu("cuda");
    gpu.compute_major = 9;
    gpu.sm_count = 132;
    for (const Device& d : {gpu, Device("simt:sm_90"), Device("simt:sm_90a")}) {
        Problem p = c.problem({"cpu", "fp8"});
        p.kernel = "warp_mma";
        const auto forced = query(p, d);
        if (!forced.ok()) {
            continue;  // a build without that backend
        }
        EXPECT_STREQ(forced->kernel, "warp_mma");
        p.kernel = nullptr;
        const auto info = query(p, d);
        ASSERT_TRUE(info.ok()) << info.status().message();
        EXPECT_STREQ(info->kernel, "wgmma");
        EXPECT_EQ(info->key_tile, 64);
        EXPECT_EQ(info->workspace_bytes, forced->workspace_bytes);
        const std::string text = explain(p, d);
        const std::string on = std::string(" on ") + info->device;
        const std::string where = on.substr(0, on.find(':'));
        EXPECT_TRUE(contains(text, "wgmma" + where + ": chosen; key tile 64, accumulator hopper"))
            << text;
        EXPECT_TRUE(contains(text, "warp_mma" + where + ": no: comes after wgmma")) << text;
        Problem wide = c.problem();  // bf16
        EXPECT_STREQ(query(wide, d)->kernel, "warp_mma");
        wide.kernel = "wgmma";
        EXPECT_TRUE(contains(query(wide, d).status().message(), "this kernel has fp8, as named"));
    }
    Device other("cuda");
    other.compute_major = 12;
    for (const Device& d :
         {other, Device("simt:sm_120"), Device("emu:sm_120"), Device("emu:sm_90")}) {
        Problem p = c.problem({"cpu", "fp8"});
        const auto info = query(p, d);
        if (!info.ok()) {
            continue;
        }
        EXPECT_STREQ(info->kernel, "warp_mma");
        p.kernel = "wgmma";
        const std::string why = query(p, d).status().message();
        EXPECT_TRUE(contains(why, d.backend == QUATT_BACKEND_EMU ? "wgmma cannot be emulated"
                                                                 : "12.0; wgmma is for 9.0"))
            << why;
        // What can never be on a device is no row of the table.
        p.kernel = nullptr;
        EXPECT_FALSE(contains(explain(p, d), "wgmma on emu")) << explain(p, d);
    }
    // What equals it.
    Problem p = c.problem({"emulate", "fp8"});
    p.recipe.accumulator = QUATT_ACCUMULATOR_HOPPER;
    EXPECT_TRUE(contains(explain(p, "emulate"), "key tile 64, accumulator hopper"));
}

TEST(SupportTable, ExplainNamesEachKernelAndItsReasons) {
    Case c(small());
    Problem p = c.problem({"cpu", "fp8"});
    p.recipe.exponent_bias = 5;
    const std::string text = explain(p, "cpu");
    EXPECT_TRUE(contains(text, "recipe fp8")) << text;
    EXPECT_TRUE(contains(text, "device cpu"));
    EXPECT_TRUE(contains(text, "cpu: no: recipe \"fp8\" is not one of the named recipes"));
    EXPECT_TRUE(contains(text, "emulate: no: serves device emulate; cpu was asked for"));
    EXPECT_TRUE(contains(text, "reference: no: serves device reference"));
    EXPECT_TRUE(contains(text, "unsupported:"));
    const std::string chosen = explain(c.problem({"cpu", "fp8"}), "cpu");
    EXPECT_TRUE(contains(chosen, "  cpu"));
    EXPECT_TRUE(contains(chosen, ": chosen; key tile 64, splits 1, threads 1, workspace "))
        << chosen;
    EXPECT_FALSE(contains(chosen, "unsupported"));
    p.softmax_scale = 0;
    EXPECT_TRUE(contains(explain(p, "cpu"), "invalid problem")) << "a text, also of what is wrong";
}

// ---- texts ------------------------------------------------------------------------------------

// Sizes and cuts, for each function that writes a text.
TEST(Texts, AreCutToTheirCapacity) {
    Case c(small());
    const Problem p = c.problem();
    const Device d("cpu");
    quatt_plan* plan = nullptr;
    ASSERT_EQ(quatt_plan_create(&p, &d, &plan), QUATT_OK);
    const std::vector<std::function<quatt_status(char*, std::size_t, std::size_t*)>> writers = {
        [&](char* t, std::size_t n, std::size_t* needed) {
            return quatt_explain(&p, &d, t, n, needed);
        },
        [&](char* t, std::size_t n, std::size_t* needed) {
            return quatt_problem_describe(&p, t, n, needed);
        },
        [&](char* t, std::size_t n, std::size_t* needed) {
            return quatt_plan_describe(plan, t, n, needed);
        }};
    for (const auto& write : writers) {
        std::size_t needed = 0;
        ASSERT_EQ(write(nullptr, 0, &needed), QUATT_OK);
        ASSERT_GT(needed, 20u);
        std::string whole(needed, 'x');
        ASSERT_EQ(write(whole.data(), needed, nullptr), QUATT_OK) << "needed is optional";
        ASSERT_EQ(whole.back(), '\0');
        whole.pop_back();
        ASSERT_EQ(std::strlen(whole.c_str()), whole.size());
        for (const std::size_t n :
             {std::size_t{1}, std::size_t{2}, needed / 2, needed - 1, needed, needed + 10}) {
            std::vector<char> text(needed + 20, '#');
            std::size_t again = 0;
            ASSERT_EQ(write(text.data(), n, &again), QUATT_OK);
            EXPECT_EQ(again, needed);
            const std::size_t length = std::min(n, needed) - 1;
            EXPECT_EQ(std::string(text.data()), whole.substr(0, length));
            EXPECT_EQ(text[length], '\0');
            EXPECT_TRUE(std::all_of(text.begin() + static_cast<std::ptrdiff_t>(length) + 1,
                                    text.end(), [](char x) { return x == '#'; }))
                << "written beyond the text";
        }
    }
    quatt_plan_destroy(plan);
}

TEST(Texts, PrintProblemsAndPlans) {
    Spec s = small();
    s.packed = true;
    s.q_lens = {2, 2};
    s.causal = true;
    s.left = 3;
    s.zero_tail = true;
    s.sink = {1, 2};
    Case c(s);
    Problem p = c.problem({"emulate", "fp8"});
    p.key_tile = 128;
    p.splits = 2;
    const std::vector<std::int64_t> rows = {0, 2};
    p.rows = rows.data();
    p.row_count = 2;
    std::ostringstream text;
    text << p;
    for (const char* part :
         {"recipe fp8", "softmax_scale 0.17", "causal", "window (3, -1)", "zero_tail",
          "key_tile 128", "splits 2", "2 rows", "q: bf16 [4,2,32] strides [64,32,1]",
          "out: f32 [4,2,32]", "lse: f32 [2,4]", "cu_seqlens_q: i32 [3]", "sink: f32 [2]"}) {
        EXPECT_TRUE(contains(text.str(), part)) << part << " in\n" << text.str();
    }
    EXPECT_FALSE(contains(text.str(), "kv_lens")) << "absent tensors are not listed";
    const auto plan = Plan::create(p, "emulate");
    ASSERT_TRUE(plan.ok());
    text.str("");
    text << *plan;
    for (const char* part :
         {"kernel emulate", "key tile 128", "splits 2", "threads 1", "workspace ", "recipe fp8"}) {
        EXPECT_TRUE(contains(text.str(), part)) << part << " in\n" << text.str();
    }
    text.str("");
    text << Tensor(nullptr, DType::bf16, {2, 3}, {5, 1}) << '|' << Tensor() << '|' << Recipe("fp8");
    EXPECT_EQ(text.str(), "bf16 [2,3] strides [5,1]|absent|fp8");
}

// A tensor of more axes than there is room for is refused, and harmless before.
TEST(Texts, PrintTensorsOfAnyRank) {
    const Tensor t(nullptr, DType::bf16, {2, 3, 4, 5, 6, 7});
    std::ostringstream text;
    text << t;
    EXPECT_EQ(text.str(), "bf16 [2,3,4,5] strides [60,20,5,1]");
    EXPECT_EQ(t.size(), 120);
    EXPECT_EQ(t.rank, 6);
    Tensor negative = t;
    negative.rank = -3;
    text.str("");
    text << negative;
    EXPECT_EQ(text.str(), "bf16 [] strides []");
    const Problem p(Recipe("bf16"), t, t, t, t);
    EXPECT_FALSE(query(p, "cpu").ok());
    const Tensor strided(nullptr, DType::bf16, {2, 3, 4, 5, 6}, {1, 2, 3, 4, 5});
    EXPECT_EQ(strided.rank, 5);
}

TEST(Texts, VersionAndCpu) {
    const std::string version = std::to_string(QUATT_VERSION_MAJOR) + "." +
                                std::to_string(QUATT_VERSION_MINOR) + "." +
                                std::to_string(QUATT_VERSION_PATCH);
    EXPECT_EQ(quatt_version(), version);
    EXPECT_GE(quatt_cpu_count(), 1);
    EXPECT_NE(quatt_cpu_features(), nullptr);
}

// ---- recipes ----------------------------------------------------------------------------------

TEST(Recipes, AreListedByName) {
    const std::vector<std::string> names = Recipe::names();
    EXPECT_EQ(names, (std::vector<std::string>{"bf16", "f16", "fp8", "fp8_head", "int8_fp8",
                                               "nvfp4", "nvfp4_fp8"}));
    for (const std::string& name : names) {
        const Recipe r(name);
        EXPECT_EQ(r.struct_size, sizeof(quatt_recipe));
        EXPECT_EQ(r.name, name);
        EXPECT_GT(r.expected_rel_l2, 0);
        EXPECT_GT(r.expected_lse_error, 0);
    }
    EXPECT_EQ(quatt_recipe_name(-1), nullptr);
    EXPECT_EQ(quatt_recipe_name(quatt_recipe_count()), nullptr);
}

// A recipe with a changed field is another arithmetic: the test device takes it, and the CPU says
// that it is not one of its.
TEST(Recipes, AreValues) {
    Case c(small());
    Problem p = c.problem({"cpu", "fp8"});
    std::strncpy(p.recipe.name, "fp8", sizeof p.recipe.name);
    p.recipe.expected_rel_l2 = 1;  // what is published is no arithmetic
    EXPECT_TRUE(query(p, "cpu").ok());
    p.recipe.k.group_tokens = 32;
    EXPECT_EQ(query(p, "cpu").status().code(), QUATT_UNSUPPORTED);
    EXPECT_TRUE(query(p, "emulate").ok());
    EXPECT_TRUE(query(p, "reference").ok());
    const Status st = run(p, "emulate");
    EXPECT_TRUE(st.ok()) << st.message();
}

// ---- cost of a query --------------------------------------------------------------------------

// Nothing in it grows with the lengths: ten thousand queries of 2^30 tokens end within ctest's
// limit of ten minutes only if none of them walks over the tokens (they take some 0.3 s).
TEST(Query, DoesNotWalkOverTheTokens) {
    constexpr std::int64_t kTokens = std::int64_t{1} << 30;
    const Tensor q(nullptr, DType::bf16, {1, kTokens, 56, 128}),
        k(nullptr, DType::bf16, {1, kTokens, 8, 128});
    Problem p(Recipe("fp8"), q, k, k, q);
    p.causal = 1;
    for (int i = 0; i < 10'000; i++) {
        ASSERT_TRUE(query(p, "cpu").ok());
    }
}

}  // namespace
}  // namespace quatt::test
