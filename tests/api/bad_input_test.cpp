// Every bad input is refused with a message that names the argument, its value and what is allowed;
// nothing aborts, and query, plan and the convenience call say the same.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <locale>
#include <thread>

#include "support/attention.hpp"
#include "support/faults.hpp"

namespace quatt::test {
namespace {

constexpr std::array kDevices = {"cpu", "reference", "emulate"};

Spec dense() {
    Spec s;
    s.batch = 2;
    s.tokens_q = 5;
    s.tokens_k = 7;
    s.heads_q = 4;
    s.heads_kv = 2;
    s.dim = 8;
    return s;
}

Spec packed() {
    Spec s = dense();
    s.packed = true;
    s.q_lens = {3, 4};
    s.k_lens = {5, 6};
    return s;
}

void expect_parts(const std::string& message, const std::vector<std::string>& parts) {
    for (const std::string& part : parts) {
        EXPECT_NE(message.find(part), std::string::npos)
            << "the message lacks \"" << part << "\":\n"
            << message;
    }
}

// Asks in every way and returns the message.
std::string refusal(const Problem& p, const Device& device, quatt_status status) {
    PlanInfo info;
    EXPECT_EQ(quatt_query(&p, &device, &info), status);
    std::string message = quatt_last_error();
    quatt_plan* plan = reinterpret_cast<quatt_plan*>(&info);
    EXPECT_EQ(quatt_plan_create(&p, &device, &plan), status);
    EXPECT_EQ(quatt_last_error(), message);
    EXPECT_EQ(plan, nullptr);
    EXPECT_EQ(quatt_attention(&p, &device), status);
    EXPECT_EQ(quatt_last_error(), message);
    EXPECT_FALSE(explain(p, device).empty());
    std::ostringstream text;
    text << p;
    EXPECT_FALSE(text.str().empty());
    return message;
}

TEST(BadInput, IsRefusedByName) {
    for (const Fault& f : problem_faults()) {
        int fits = 0;
        for (const Spec& s : {dense(), packed()}) {
            for (const char* device : kDevices) {
                SCOPED_TRACE(std::string(f.name) + " on " + device +
                             (s.packed ? ", packed" : ", dense"));
                Case c(s);
                Problem p = c.problem();
                if (!f.apply(p)) {
                    continue;
                }
                fits++;
                expect_parts(refusal(p, device, f.status), f.says);
                EXPECT_TRUE(c.out.codes() ==
                            std::vector<std::uint32_t>(c.out.codes().size(), 0xFFFFFFFFu));
            }
        }
        EXPECT_GT(fits, 0) << f.name << " was never tried";
    }
}

TEST(BadInput, EveryReasonIsListed) {
    Case c(dense());
    Problem p = c.problem();
    p.softmax_scale = -2;
    p.causal = 7;
    p.window_left = -9;
    p.recipe.refreshes = 5;
    const std::string message = refusal(p, "cpu", QUATT_INVALID_ARGUMENT);
    expect_parts(message, {"softmax_scale is -2", "causal is 7", "window_left is -9",
                           "recipe.refreshes is 5"});
    EXPECT_EQ(std::count(message.begin(), message.end(), '\n'), 3) << "one a line";

    Problem q = c.problem({"cpu", "fp8"});
    q.recipe.exponent_bias = 5;
    q.key_tile = 128;
    quatt_counters n{};
    q.tensors.counters = &n;
    expect_parts(refusal(q, "cpu", QUATT_UNSUPPORTED),
                 {"recipe \"fp8\"", "key_tile is 128", "counters is given"});
}

// A tensor that is wrong by itself hides nothing but what cannot be told without it.
TEST(BadInput, AWrongTensorHidesNoOtherFault) {
    const auto lines = [](const std::string& message) {
        return std::count(message.begin(), message.end(), '\n') + 1;
    };
    Case c(dense());
    Problem p = c.problem();
    p.tensors.q.dtype = 99;
    p.tensors.q.data = nullptr;
    p.tensors.lse = quatt_tensor_contiguous(nullptr, QUATT_BF16, 3, p.tensors.q.extent);
    p.softmax_scale = -2;
    p.causal = 7;
    p.recipe.refreshes = 5;
    p.kernel = "quick";
    std::string message = refusal(p, "cpu", QUATT_INVALID_ARGUMENT);
    expect_parts(message, {"q.dtype is 99", "lse.dtype is bf16", "lse is bf16 [2,5,4]",
                           "softmax_scale is -2", "causal is 7", "recipe.refreshes is 5",
                           "kernel is \"quick\""});
    EXPECT_EQ(lines(message), 7) << message;

    // A dtype says nothing of extents: those are compared.
    p = c.problem();
    p.tensors.k.dtype = 99;
    p.tensors.k.data = nullptr;
    p.tensors.v.extent[1] = 6;
    message = refusal(p, "cpu", QUATT_INVALID_ARGUMENT);
    expect_parts(message, {"k.dtype is 99", "v.extent[1] is 6; it must be that of k (tokens), 7"});
    EXPECT_EQ(lines(message), 2) << message;

    // Without a rank nothing can be said of the extents; of all else it can.
    p = c.problem();
    p.tensors.k.rank = 5;
    p.tensors.v.extent[0] = -1;
    p.tensors.v.extent[3] = -4;
    p.tensors.out.dtype = QUATT_I32;
    p.tensors.out.data = nullptr;
    p.window_right = -3;
    message = refusal(p, "cpu", QUATT_INVALID_ARGUMENT);
    expect_parts(message, {"k.rank is 5", "v.extent[0] is -1", "v.extent[3] is -4",
                           "out.dtype is i32", "window_right is -3"});
    EXPECT_EQ(lines(message), 5) << message;

    // Rows are counted in tokens of q.
    const std::int64_t row = 5;
    p = c.problem();
    p.tensors.v.dtype = -3;
    p.rows = &row;
    p.row_count = 1;
    message = refusal(p, "reference", QUATT_INVALID_ARGUMENT);
    expect_parts(message, {"v.dtype is -3", "rows[0] is 5; rows must ascend and be 0 to 4"});
    EXPECT_EQ(lines(message), 2) << message;

    // Where q cannot be told, the rest is not compared with it.
    p = c.problem();
    p.tensors.q.rank = -1;
    p.threads = -1;
    message = refusal(p, "cpu", QUATT_INVALID_ARGUMENT);
    expect_parts(message, {"q.rank is -1", "threads is -1"});
    EXPECT_EQ(lines(message), 2) << message;

    // The number of segments comes from cu_seqlens_q.
    Case cut(packed());
    p = cut.problem();
    p.tensors.cu_seqlens_q.rank = 0;
    p.splits = -1;
    message = refusal(p, "cpu", QUATT_INVALID_ARGUMENT);
    expect_parts(message, {"cu_seqlens_q is i32 []; it must be [segments + 1]", "splits is -1"});
    EXPECT_EQ(lines(message), 2) << message;
}

// Where a struct has another size, fields behind it lie elsewhere: none is read.
TEST(BadInput, FieldsOfAnotherLayoutAreNotRead) {
    Case c(dense());
    const char* const nowhere = reinterpret_cast<const char*>(std::uintptr_t{8});
    Problem p = c.problem();
    p.kernel = nowhere;
    for (const std::size_t wrong :
         {std::size_t{0}, sizeof(quatt_problem) - 8, std::size_t{1} << 20}) {
        p.struct_size = wrong;
        expect_parts(query(p, "cpu").status().message(),
                     {"problem.struct_size is " + std::to_string(wrong)});
    }
    p = c.problem();
    p.kernel = nowhere;
    p.tensors.struct_size += 8;
    expect_parts(query(p, "cpu").status().message(), {"problem.tensors.struct_size is "});
    p = c.problem();
    p.kernel = nowhere;
    p.recipe.struct_size -= 8;
    expect_parts(query(p, "cpu").status().message(), {"problem.recipe.struct_size is "});
}

// Digits that a program's locale groups, and a comma in fractions.
TEST(BadInput, NumbersDoNotFollowTheLocale) {
    struct Grouped : std::numpunct<char> {
        char do_decimal_point() const override { return ','; }
        char do_thousands_sep() const override { return '.'; }
        std::string do_grouping() const override { return "\3"; }
    };
    Case c(dense());
    Problem p = c.problem();
    p.softmax_scale = -2.5f;
    p.threads = 123456;
    p.recipe.q.amax_target = -0.25f;
    const std::string usual = refusal(p, "cpu", QUATT_INVALID_ARGUMENT);
    expect_parts(
        usual, {"softmax_scale is -2.5;", "threads is 123456;", "recipe.q.amax_target is -0.25;"});
    const Problem sound = c.problem();
    const std::string explained = explain(sound, "cpu");
    const std::locale before = std::locale::global(std::locale(std::locale(), new Grouped));
    const std::string here = refusal(p, "cpu", QUATT_INVALID_ARGUMENT);
    const std::string explained_here = explain(sound, "cpu");
    std::locale::global(before);
    EXPECT_EQ(here, usual);
    EXPECT_EQ(explained_here, explained);
}

TEST(BadInput, WhatOnlyTestDevicesTake) {
    Case c(dense());
    Buffer light = c.row_buffer();
    Problem p = c.problem();
    p.tensors.light_mass = light;
    expect_parts(refusal(p, "cpu", QUATT_UNSUPPORTED), {"light_mass is given", "only reference"});
    expect_parts(refusal(p, "emulate", QUATT_UNSUPPORTED),
                 {"light_mass is given", "only reference"});
    EXPECT_TRUE(query(p, "reference").ok());
    p = c.problem();
    quatt_counters n{};
    p.tensors.counters = &n;
    expect_parts(refusal(p, "cpu", QUATT_UNSUPPORTED), {"counters is given", "only emulate"});
    expect_parts(refusal(p, "reference", QUATT_UNSUPPORTED), {"counters is given", "only emulate"});
    EXPECT_TRUE(query(p, "emulate").ok());
}

TEST(BadInput, KernelsOfOtherDevices) {
    Case c(dense());
    Problem p = c.problem();
    p.kernel = "emulate";
    expect_parts(refusal(p, "cpu", QUATT_UNSUPPORTED), {"kernel \"emulate\" does not serve cpu"});
    p.kernel = "cpu";
    EXPECT_TRUE(query(p, "cpu").ok());
}

TEST(BadInput, Devices) {
    Case c(dense());
    const Problem p = c.problem();
    Device d("cpu");
    d.struct_size = 0;
    expect_parts(refusal(p, d, QUATT_INVALID_ARGUMENT),
                 {"device.struct_size is 0", "quatt_device_init"});
    for (const std::int32_t backend : {-1, 6, 1 << 30}) {
        d = Device("cpu");
        d.backend = backend;
        expect_parts(refusal(p, d, QUATT_INVALID_ARGUMENT),
                     {"device.backend is " + std::to_string(backend), "0 to 5"});
    }
    d = Device("cuda");
    d.ordinal = -1;
    expect_parts(refusal(p, d, QUATT_INVALID_ARGUMENT), {"ordinal -1"});
    d = Device("cuda");
    d.compute_major = 9;
    d.compute_minor = 10;
    expect_parts(refusal(p, d, QUATT_INVALID_ARGUMENT), {"compute capability 9.10", "at most 9"});
    for (const std::int32_t major :
         {1000, 1 << 28, 2147483647}) {  // 10 * major must not wrap around to a GPU
        d = Device("cuda");
        d.compute_major = major;
        expect_parts(refusal(p, d, QUATT_INVALID_ARGUMENT),
                     {"compute capability " + std::to_string(major), "at most 999"});
    }
}

TEST(BadInput, DeviceNames) {
    for (const char* name : {"",
                             "CPU",
                             "cpu ",
                             " cpu",
                             "cpu:",
                             "cpu:0",
                             "cpu:0:0",
                             "gpu",
                             "cuda:",
                             "cuda:x",
                             "cuda:-1",
                             "cuda:+1",
                             "cuda:1.5",
                             "cuda:0x1",
                             "cuda:1:2",
                             "cuda 1",
                             "cuda:99999999999999999999",
                             "reference:1",
                             "emulate:",
                             "simt",
                             "simt:",
                             "simt:sm_",
                             "simt:90",
                             "simt:sm_x",
                             "simt:sm_9",
                             "simt:sm_90af",
                             "simt:sm_-90",
                             "simt:sm_90:0",
                             "simt:SM_90",
                             "simt:sm_90 ",
                             "simt:sm_99999999999",
                             "simt:sm_10000",
                             "simt:sm_2147483647",
                             "emu",
                             "emu:",
                             "emu:sm_90:",
                             "emu:sm_90:x",
                             "emu:sm_90:-1",
                             "emu:sm_90:1:2",
                             "emu:1:sm_90",
                             ":",
                             "::",
                             ":::",
                             "a:b:c:d:e",
                             "\xff\xfe",
                             "cpu\n"}) {
        quatt_device d{};
        d.ordinal = 77;
        EXPECT_EQ(quatt_device_init(&d, name), QUATT_INVALID_ARGUMENT) << name;
        expect_parts(quatt_last_error(),
                     {std::string("device is \"") + name + "\"", "cpu", "reference", "emulate",
                      "cuda[:N]", "simt:ARCH", "emu:ARCH[:N]"});
        EXPECT_EQ(d.ordinal, 77) << "a failure leaves the device alone";
        EXPECT_THROW(Device{name}, Error);
    }
    const std::string endless(100000, ':');
    quatt_device d{};
    EXPECT_EQ(quatt_device_init(&d, endless.c_str()), QUATT_INVALID_ARGUMENT);
}

TEST(BadInput, RecipeNames) {
    for (const char* name : {"", "fp9", "FP8", "fp8 ", "nvfp4_fp8_", "bf16\n"}) {
        quatt_recipe r{};
        EXPECT_EQ(quatt_recipe_init(&r, name), QUATT_INVALID_ARGUMENT);
        expect_parts(quatt_last_error(), {std::string("recipe is \"") + name + "\"", "bf16", "f16",
                                          "fp8", "fp8_head", "int8_fp8", "nvfp4", "nvfp4_fp8"});
        EXPECT_THROW(Recipe{name}, Error);
    }
}

// ---- null pointers ----------------------------------------------------------------------------

TEST(NullPointers, AreRefusedByName) {
    Case c(dense());
    const Problem p = c.problem();
    const Device d("cpu");
    PlanInfo info;
    quatt_plan* plan = nullptr;
    ASSERT_EQ(quatt_plan_create(&p, &d, &plan), QUATT_OK);
    quatt_recipe r{};
    quatt_device device{};
    quatt_kernel_info kernel{};
    kernel.struct_size = sizeof kernel;
    std::size_t needed = 0;
    const auto refused = [](quatt_status s, const char* argument) {
        EXPECT_EQ(s, QUATT_INVALID_ARGUMENT) << argument;
        EXPECT_EQ(quatt_last_error(), std::string(argument) + " is null");
    };
    refused(quatt_recipe_init(nullptr, "bf16"), "recipe");
    refused(quatt_recipe_init(&r, nullptr), "name");
    refused(quatt_device_init(nullptr, "cpu"), "device");
    refused(quatt_device_init(&device, nullptr), "name");
    quatt_problem_init(nullptr);
    refused(quatt_query(nullptr, &d, &info), "problem");
    refused(quatt_query(&p, nullptr, &info), "device");
    refused(quatt_query(&p, &d, nullptr), "info");
    refused(quatt_explain(nullptr, &d, nullptr, 0, &needed), "problem");
    refused(quatt_explain(&p, nullptr, nullptr, 0, &needed), "device");
    refused(quatt_explain(&p, &d, nullptr, 5, &needed), "text");
    refused(quatt_problem_describe(nullptr, nullptr, 0, &needed), "problem");
    refused(quatt_problem_describe(&p, nullptr, 1, &needed), "text");
    refused(quatt_plan_create(nullptr, &d, &plan), "problem");
    refused(quatt_plan_create(&p, nullptr, &plan), "device");
    refused(quatt_plan_create(&p, &d, nullptr), "plan");
    refused(quatt_plan_get_info(nullptr, &info), "plan");
    refused(quatt_plan_get_info(plan, nullptr), "info");
    refused(quatt_plan_describe(nullptr, nullptr, 0, &needed), "plan");
    refused(quatt_plan_describe(plan, nullptr, 7, &needed), "text");
    refused(quatt_run(nullptr, &p.tensors, nullptr, 0, nullptr), "plan");
    refused(quatt_run(plan, nullptr, nullptr, 0, nullptr), "tensors");
    refused(quatt_attention(nullptr, &d), "problem");
    refused(quatt_attention(&p, nullptr), "device");
    refused(quatt_kernel_get_info(0, nullptr), "info");
    float x = 0;
    refused(quatt_convert(nullptr, QUATT_F32, &x, QUATT_F32, 1), "to");
    refused(quatt_convert(&x, QUATT_F32, nullptr, QUATT_F32, 1), "from");
    quatt_plan_destroy(nullptr);
    quatt_plan_destroy(plan);
}

TEST(NullPointers, DataOfEveryTensor) {
    Spec s = packed();
    s.q = s.k = s.v = QUATT_E4M3;
    s.descale_rank = 2;
    s.sink = {1, 2, 3, 4};
    s.kv_lens = {5, 6};
    Case c(s);
    Buffer word(QUATT_I32, {1});
    Problem p = c.problem();
    p.tensors.status_word = word;
    for (const char* device : kDevices) {
        const auto plan = Plan::create(p, device);
        ASSERT_TRUE(plan.ok()) << plan.status().message();
        Workspace w(plan->workspace_bytes());
        for (const auto& [name, member] : {std::pair{"q", &quatt_tensors::q},
                                           {"k", &quatt_tensors::k},
                                           {"v", &quatt_tensors::v},
                                           {"out", &quatt_tensors::out},
                                           {"lse", &quatt_tensors::lse},
                                           {"cu_seqlens_q", &quatt_tensors::cu_seqlens_q},
                                           {"cu_seqlens_k", &quatt_tensors::cu_seqlens_k},
                                           {"kv_lens", &quatt_tensors::kv_lens},
                                           {"q_descale", &quatt_tensors::q_descale},
                                           {"k_descale", &quatt_tensors::k_descale},
                                           {"v_descale", &quatt_tensors::v_descale},
                                           {"sink", &quatt_tensors::sink},
                                           {"status_word", &quatt_tensors::status_word}}) {
            Problem without = p;
            (without.tensors.*member).data = nullptr;
            EXPECT_TRUE(query(without, device).ok()) << "a query needs no data";
            const Status refused = plan->run(without.tensors, w.span());
            EXPECT_EQ(refused.code(), QUATT_INVALID_ARGUMENT) << name;
            expect_parts(refused.message(), {std::string(name) + ".data is null", "must point to"});
            const Device d(device);
            EXPECT_EQ(quatt_attention(&without, &d), QUATT_INVALID_ARGUMENT);
            EXPECT_EQ(quatt_last_error(), refused.message());
        }
        EXPECT_TRUE(plan->run(p.tensors, w.span()).ok());
    }
}

TEST(StructSize, TooSmallIsRefused) {
    Case c(dense());
    const Problem p = c.problem();
    const Device d("cpu");
    for (const std::size_t size : {std::size_t{0}, std::size_t{8}, sizeof(quatt_plan_info) - 1}) {
        PlanInfo info;
        info.struct_size = size;
        EXPECT_EQ(quatt_query(&p, &d, &info), QUATT_INVALID_ARGUMENT);
        expect_parts(quatt_last_error(), {"info.struct_size is " + std::to_string(size),
                                          "at least " + std::to_string(sizeof(quatt_plan_info)) +
                                              ", the struct's sizeof"});
    }
    const auto plan = Plan::create(p, d);
    ASSERT_TRUE(plan.ok());
    Workspace w(plan->workspace_bytes());
    Tensors t;
    static_cast<quatt_tensors&>(t) = p.tensors;
    t.struct_size = sizeof(quatt_tensors) - 8;
    EXPECT_EQ(plan->run(t, w.span()).code(), QUATT_INVALID_ARGUMENT);
    expect_parts(quatt_last_error(),
                 {"tensors.struct_size is", std::to_string(sizeof(quatt_tensors))});
    quatt_kernel_info kernel{};
    EXPECT_EQ(quatt_kernel_get_info(0, &kernel), QUATT_INVALID_ARGUMENT);
    expect_parts(quatt_last_error(), {"info.struct_size is 0"});
}

// A struct of this version, and bytes that a later one might add.
template <class T>
struct Longer {
    T known;
    std::array<unsigned char, 40> beyond{};

    explicit Longer(const T& from) : known(from) { known.struct_size = sizeof(Longer); }
};

TEST(StructSize, WhatALaterVersionAddsMustBeZero) {
    Case c(dense());
    const Problem p = c.problem();
    const Device d("cpu");
    Longer<quatt_problem> problem(p);
    Longer<quatt_device> device(d);
    Longer<quatt_plan_info> info(PlanInfo{});
    info.beyond.fill(0xFF);
    quatt_plan* plan = nullptr;
    std::size_t needed = 0;
    ASSERT_EQ(quatt_query(&problem.known, &device.known, &info.known), QUATT_OK)
        << quatt_last_error();
    EXPECT_EQ(info.beyond, decltype(info.beyond){}) << "an output says 0 where it knows nothing";
    EXPECT_EQ(info.known.struct_size, sizeof info);
    ASSERT_EQ(quatt_problem_describe(&problem.known, nullptr, 0, &needed), QUATT_OK);
    ASSERT_EQ(quatt_attention(&problem.known, &device.known), QUATT_OK) << quatt_last_error();
    ASSERT_EQ(quatt_plan_create(&problem.known, &device.known, &plan), QUATT_OK);
    info.beyond.fill(0xFF);
    ASSERT_EQ(quatt_plan_get_info(plan, &info.known), QUATT_OK);
    EXPECT_EQ(info.beyond, decltype(info.beyond){});
    Longer<quatt_tensors> tensors(p.tensors);
    Workspace w(info.known.workspace_bytes);
    EXPECT_EQ(quatt_run(plan, &tensors.known, w.span().data(), w.span().size(), nullptr), QUATT_OK)
        << quatt_last_error();

    tensors.beyond[3] = 1;
    EXPECT_EQ(quatt_run(plan, &tensors.known, w.span().data(), w.span().size(), nullptr),
              QUATT_INVALID_ARGUMENT);
    expect_parts(quatt_last_error(), {"tensors.struct_size is " + std::to_string(sizeof tensors),
                                      "byte " + std::to_string(sizeof(quatt_tensors) + 3),
                                      "knows " + std::to_string(sizeof(quatt_tensors)) + " bytes"});
    quatt_plan_destroy(plan);
    problem.beyond.back() = 7;
    EXPECT_EQ(quatt_query(&problem.known, &d, &info.known), QUATT_INVALID_ARGUMENT);
    expect_parts(quatt_last_error(), {"problem.struct_size is " + std::to_string(sizeof problem),
                                      std::to_string(sizeof(quatt_problem))});
    EXPECT_EQ(quatt_problem_describe(&problem.known, nullptr, 0, &needed), QUATT_INVALID_ARGUMENT);
    device.beyond[0] = 1;
    EXPECT_EQ(quatt_query(&p, &device.known, &info.known), QUATT_INVALID_ARGUMENT);
    expect_parts(quatt_last_error(), {"device.struct_size is " + std::to_string(sizeof device)});
    info.known.struct_size = 16385;
    EXPECT_EQ(quatt_query(&p, &d, &info.known), QUATT_INVALID_ARGUMENT);
    expect_parts(quatt_last_error(), {"info.struct_size is 16385", "16384"});
}

TEST(StructSize, AnInitFunctionWritesTheCallersBytesAndNoOthers) {
    constexpr unsigned char kFill = 0xA5;
    const auto filled = [](const void* data, std::size_t bytes) {
        const auto* begin = static_cast<const unsigned char*>(data);
        return std::all_of(begin, begin + bytes, [](unsigned char b) { return b == kFill; });
    };
    const auto fill = [](auto& x) { std::memset(static_cast<void*>(&x), kFill, sizeof x); };
    const Device cpu("cpu");
    PlanInfo info;

    // Callers of an earlier version: smaller structs.
    quatt_device device;
    quatt_recipe recipe;
    fill(device), fill(recipe);
    EXPECT_EQ(quatt_device_init_sized(&device, sizeof device - 4, "cpu"), QUATT_INVALID_ARGUMENT);
    expect_parts(quatt_last_error(), {"device_bytes is " + std::to_string(sizeof device - 4),
                                      "at least " + std::to_string(sizeof device)});
    EXPECT_EQ(quatt_recipe_init_sized(&recipe, 0, "fp8"), QUATT_INVALID_ARGUMENT);
    expect_parts(quatt_last_error(), {"recipe_bytes is 0"});
    EXPECT_TRUE(filled(&device, sizeof device) && filled(&recipe, sizeof recipe));
    quatt_problem problem;
    for (const std::size_t size :
         {std::size_t{0}, std::size_t{7}, std::size_t{8}, std::size_t{500}, sizeof problem - 8}) {
        fill(problem);
        quatt_problem_init_sized(&problem, size, sizeof(quatt_recipe), sizeof(quatt_tensors));
        const std::size_t written = size < sizeof(std::size_t) ? 0 : size;
        EXPECT_TRUE(
            filled(reinterpret_cast<unsigned char*>(&problem) + written, sizeof problem - written));
        if (written > 0) {
            EXPECT_EQ(quatt_query(&problem, &cpu, &info), QUATT_INVALID_ARGUMENT);
            expect_parts(quatt_last_error(), {"problem.struct_size is " + std::to_string(size),
                                              std::to_string(sizeof problem)});
        }
    }

    // Of a later one: larger structs.
    Longer<quatt_device> longer_device(cpu);
    fill(longer_device);
    ASSERT_EQ(quatt_device_init_sized(&longer_device.known, sizeof longer_device, "cpu"), QUATT_OK);
    EXPECT_EQ(longer_device.beyond, decltype(longer_device.beyond){});
    Longer<quatt_recipe> longer_recipe{Recipe("bf16")};
    fill(longer_recipe);
    ASSERT_EQ(quatt_recipe_init_sized(&longer_recipe.known, sizeof longer_recipe, "fp8"), QUATT_OK);
    EXPECT_EQ(longer_recipe.known.struct_size, sizeof longer_recipe);
    EXPECT_EQ(longer_recipe.beyond, decltype(longer_recipe.beyond){});
    EXPECT_EQ(quatt_recipe_init_sized(&longer_recipe.known, 16385, "fp8"), QUATT_INVALID_ARGUMENT);
    expect_parts(quatt_last_error(), {"recipe_bytes is 16385", "16384"});

    Case c(dense());
    Longer<quatt_problem> longer(c.problem());
    fill(longer);
    quatt_problem_init_sized(&longer.known, sizeof longer, sizeof(quatt_recipe),
                             sizeof(quatt_tensors));
    EXPECT_EQ(longer.beyond, decltype(longer.beyond){});
    longer.known.tensors = c.problem().tensors;
    longer.known.softmax_scale = 1;
    EXPECT_EQ(quatt_query(&longer.known, &longer_device.known, &info), QUATT_OK)
        << quatt_last_error();
    for (const auto& [recipe_more, tensors_more, says] :
         {std::tuple{std::size_t{8}, std::size_t{0},
                     "problem.recipe.struct_size is " + std::to_string(sizeof(quatt_recipe) + 8)},
          {std::size_t{0}, std::size_t{16},
           "problem.tensors.struct_size is " + std::to_string(sizeof(quatt_tensors) + 16)}}) {
        quatt_problem_init_sized(&longer.known, sizeof longer, sizeof(quatt_recipe) + recipe_more,
                                 sizeof(quatt_tensors) + tensors_more);
        EXPECT_EQ(quatt_query(&longer.known, &cpu, &info), QUATT_INVALID_ARGUMENT);
        expect_parts(quatt_last_error(), {says});
    }
}

TEST(HostCopies, OfLengthsMustBeThoseOfTheTensors) {
    Spec s = packed();
    s.q = s.k = s.v = QUATT_BF16;  // which GPU kernels take too
    Case c(s);                     // q 0 3 7, k 0 5 11
    const std::array<std::int32_t, 3> q = {0, 3, 7}, k = {0, 5, 11}, other = {0, 4, 7};
    std::vector<std::string> devices(kDevices.begin(), kDevices.end());
    quatt_kernel_info last{};
    last.struct_size = sizeof last;
    ASSERT_EQ(quatt_kernel_get_info(quatt_kernel_count() - 1, &last), QUATT_OK);
    if (std::string(last.device) == "simt") {  // where it is built, it ends the table
        devices.insert(devices.end(), {"simt:sm_90a", "simt:sm_120"});
    }
    for (const std::string& device : devices) {
        Problem p = c.problem();
        p.tensors.cu_seqlens_q_host = q.data();
        p.tensors.cu_seqlens_k_host = k.data();
        EXPECT_TRUE(run(p, device).ok()) << device;
        for (const bool of_q : {true, false}) {
            Problem bad = p;
            (of_q ? bad.tensors.cu_seqlens_q_host : bad.tensors.cu_seqlens_k_host) = other.data();
            const Status said = run(bad, device);
            EXPECT_EQ(said.code(), QUATT_INVALID_ARGUMENT) << device;
            expect_parts(said.message(), {of_q ? "cu_seqlens_q_host[1] is 4; it must be that of "
                                                 "cu_seqlens_q, 3"
                                               : "cu_seqlens_k_host[1] is 4; it must be that of "
                                                 "cu_seqlens_k, 5"});
        }
    }
}

TEST(Sinks, NaNAndInfinityAreRefused) {
    constexpr float kFloatInf = std::numeric_limits<float>::infinity();
    Spec s = dense();
    s.sink = {1, 2, 3, 4};
    for (const char* device : kDevices) {
        for (const float bad : {std::nanf(""), kFloatInf}) {
            Case c(s);
            c.sink.set_one({2}, bad);
            const Status said = run(c.problem(), device);
            EXPECT_EQ(said.code(), QUATT_INVALID_ARGUMENT) << device;
            expect_parts(said.message(), {"sink[2] is ", "it must be finite, or -inf"});
        }
        Case c(s);
        c.sink.set_one({2}, -kFloatInf);
        EXPECT_TRUE(run(c.problem(), device).ok()) << device;
    }
}

// Strides whose reach fits 63 bits on either side of the base, but not from end to end; and the one
// stride that has no absolute value.
TEST(BadInput, AReachThatOverflowsIsRefused) {
    constexpr std::int64_t kMin = std::numeric_limits<std::int64_t>::min();
    Case c(dense());  // Sq = 5, Hq = 4
    for (const auto& [token, head] :
         {std::pair{kMin / 4, std::int64_t{8}}, {kMin / 8 - 1, -(kMin / 6)}}) {
        Problem p = c.problem();
        p.tensors.out.data = nullptr;
        p.tensors.out.dtype = QUATT_E4M3;  // 1 byte: an element's stride is a byte's
        p.tensors.out.stride[1] = token;
        p.tensors.out.stride[2] = head;
        expect_parts(refusal(p, "cpu", QUATT_INVALID_ARGUMENT), {"out is ", "fit 63 bits"});
    }
    Problem p = c.problem();
    p.tensors.out.data = nullptr;
    p.tensors.out.dtype = QUATT_E4M3;
    p.tensors.out.extent[1] = 2;
    p.tensors.out.stride[1] = kMin;
    expect_parts(refusal(p, "cpu", QUATT_INVALID_ARGUMENT), {"out is ", "fit 63 bits"});
}

// A struct that says it is small is small: nothing behind its size may be read. The page behind it
// faults.
TEST(StructSize, NothingBehindASmallStructIsRead) {
    constexpr std::size_t kPage = 4096;
    void* pages =
        ::mmap(nullptr, 2 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(pages, MAP_FAILED);
    ASSERT_EQ(::mprotect(static_cast<std::byte*>(pages) + kPage, kPage, PROT_NONE), 0);
    auto* size = reinterpret_cast<std::size_t*>(static_cast<std::byte*>(pages) + kPage -
                                                sizeof(std::size_t));
    *size = sizeof(std::size_t);

    const auto* problem = reinterpret_cast<const quatt_problem*>(size);
    const auto* small = reinterpret_cast<const quatt_device*>(size);
    const Device d("cpu");
    Case c(dense());
    const Problem p = c.problem();
    PlanInfo info;
    quatt_plan* plan = nullptr;
    std::size_t needed = 0;
    for (const quatt_status s :
         {quatt_query(problem, &d, &info), quatt_plan_create(problem, &d, &plan),
          quatt_attention(problem, &d), quatt_problem_describe(problem, nullptr, 0, &needed),
          quatt_query(&p, small, &info), quatt_plan_create(&p, small, &plan),
          quatt_attention(&p, small), quatt_query(&p, &d, reinterpret_cast<quatt_plan_info*>(size)),
          quatt_kernel_get_info(0, reinterpret_cast<quatt_kernel_info*>(size))}) {
        EXPECT_EQ(s, QUATT_INVALID_ARGUMENT);
        expect_parts(quatt_last_error(), {"struct_size", "8"});
    }
    EXPECT_EQ(quatt_explain(problem, &d, nullptr, 0, &needed), QUATT_OK);
    EXPECT_EQ(quatt_explain(&p, small, nullptr, 0, &needed), QUATT_OK);
    ASSERT_EQ(quatt_plan_create(&p, &d, &plan), QUATT_OK);
    EXPECT_EQ(quatt_run(plan, reinterpret_cast<const quatt_tensors*>(size), nullptr, 0, nullptr),
              QUATT_INVALID_ARGUMENT);
    quatt_plan_destroy(plan);
    ::munmap(pages, 2 * kPage);
}

// ---- at the run -------------------------------------------------------------------------------

class BadRun : public testing::TestWithParam<const char*> {
protected:
    // What the run says to changed tensors. Nothing may be written then.
    Status refused(Case& c, const Problem& planned, const Problem& changed) {
        const auto plan = Plan::create(planned, GetParam());
        EXPECT_TRUE(plan.ok()) << plan.status().message();
        Workspace w(plan->workspace_bytes());
        c.reset_outputs();
        const Buffer out = c.out;
        Status s = plan->run(changed.tensors, w.span());
        EXPECT_EQ(s.code(), QUATT_INVALID_ARGUMENT);
        EXPECT_TRUE(c.out.bytes() == out.bytes()) << "a refused run wrote";
        return s;
    }
};

TEST_P(BadRun, OtherLayouts) {
    Case c(dense());
    const Problem p = c.problem();
    Problem x = p;
    x.tensors.q.extent[1] = 4;
    expect_parts(refused(c, p, x).message(),
                 {"q is bf16 [2,4,4,8]", "the plan was made for bf16 [2,5,4,8]"});
    x = p;
    x.tensors.k.stride[1]++;
    expect_parts(refused(c, p, x).message(), {"k is bf16 ", "strides", "the plan was made for"});
    x = p;
    x.tensors.v.dtype = QUATT_F16;
    expect_parts(refused(c, p, x).message(), {"v is f16 ", "the plan was made for bf16"});
    x = p;
    x.tensors.lse = {};
    expect_parts(refused(c, p, x).message(), {"lse is absent", "the plan was made for f32"});
    x = p;
    Buffer sink(QUATT_F32, {4});
    x.tensors.sink = sink;
    expect_parts(refused(c, p, x).message(), {"sink is f32 [4]", "the plan was made without it"});
    x = p;
    x.tensors.out.rank = 77;
    expect_parts(refused(c, p, x).message(), {"out is "});
    x = p;
    quatt_counters n{};
    x.tensors.counters = &n;
    expect_parts(refused(c, p, x).message(), {"counters is given", "the plan was made without"});
}

TEST_P(BadRun, Pointers) {
    Case c(dense());
    const Problem p = c.problem();
    Problem x = p;
    x.tensors.q.data = static_cast<std::byte*>(x.tensors.q.data) + 1;
    expect_parts(refused(c, p, x).message(),
                 {"q.data is 0x", "aligned to its element size of 2 bytes"});
    x = p;
    x.tensors.out.data = x.tensors.k.data;
    expect_parts(refused(c, p, x).message(), {"out overlaps k"});
    x = p;
    x.tensors.lse.data = x.tensors.out.data;
    expect_parts(refused(c, p, x).message(), {"lse overlaps out"});
}

TEST_P(BadRun, LengthsInMemory) {
    Case c(packed());
    const Problem p = c.problem();
    for (const auto& [cu, says] :
         {std::pair<std::vector<std::int32_t>, std::vector<std::string>>{
              {1, 3, 7}, {"cu_seqlens_q[0] is 1", "it must be 0"}},
          {{0, -3, 7}, {"cu_seqlens_q[1] is -3", ">= cu_seqlens_q[0] = 0"}},
          {{0, 5, 4}, {"cu_seqlens_q[2] is 4", ">= cu_seqlens_q[1] = 5"}},
          {{0, 3, 8}, {"cu_seqlens_q[2] is 8", "it must be <= 7"}},
          {{0, 2147483647, 2147483647}, {"cu_seqlens_q[1] is 2147483647"}},
          {{-2147483647 - 1, 0, 0}, {"cu_seqlens_q[0] is -2147483648"}}}) {
        c.cu_q.set_integers(cu);
        expect_parts(refused(c, p, p).message(), says);
    }
    c.cu_q.set_integers({0, 3, 7});
    c.cu_k.set_integers({0, 12, 11});
    expect_parts(refused(c, p, p).message(), {"cu_seqlens_k[1] is 12", "it must be <= 11"});
    c.cu_k.set_integers({0, 5, 11});
    // A bad host copy is refused before the tensor is looked at, at the run too.
    Problem x = p;
    const std::array<std::int32_t, 3> host = {0, 4, 3};
    x.tensors.cu_seqlens_q_host = host.data();
    expect_parts(refused(c, p, x).message(), {"cu_seqlens_q[2] is 3"});

    // Keys of a segment whose cu_seqlens_k is that of q.
    Spec s = packed();
    s.k_lens = {};
    s.tokens_k = 6;  // fewer than the 7 of q
    Case same(s);
    quatt_tensor k = narrowed(same.k.view(), 0, 0, 6), v = narrowed(same.v.view(), 0, 0, 6);
    Problem few = same.problem();
    few.tensors.k = k;
    few.tensors.v = v;
    expect_parts(refused(same, few, few).message(), {"cu_seqlens_q[2] is 7", "it must be <= 6"});
}

TEST_P(BadRun, LengthsOfKeys) {
    for (const Spec& base : {dense(), packed()}) {
        Spec s = base;
        s.kv_lens = {1, 1};
        Case c(s);
        const Problem p = c.problem();
        const int first = s.packed ? 5 : 7, second = s.packed ? 6 : 7;
        c.kv_lens.set_integers({-1, 1});
        expect_parts(refused(c, p, p).message(),
                     {"kv_lens[0] is -1", "it must be 0 to " + std::to_string(first)});
        c.kv_lens.set_integers({1, second + 1});
        expect_parts(refused(c, p, p).message(), {"kv_lens[1] is " + std::to_string(second + 1),
                                                  "it must be 0 to " + std::to_string(second)});
        c.kv_lens.set_integers({2147483647, -2147483647 - 1});
        expect_parts(refused(c, p, p).message(), {"kv_lens[0] is 2147483647"});
    }
}

TEST_P(BadRun, Descales) {
    Spec s = dense();
    s.q = s.k = s.v = QUATT_E4M3;
    for (const int rank : {0, 1, 2}) {
        s.descale_rank = rank;
        Case c(s);
        const Problem p = c.problem();
        for (const float bad :
             {0.0f, -1.0f, std::nanf(""), std::numeric_limits<float>::infinity()}) {
            for (const auto& [name, buffer] : {std::pair{"q_descale", &c.q_descale},
                                               {"k_descale", &c.k_descale},
                                               {"v_descale", &c.v_descale}}) {
                const Buffer good = *buffer;
                buffer->set_one(rank == 0   ? Extents{}
                                : rank == 1 ? Extents{1}
                                            : Extents{1, 1},
                                bad);
                std::ostringstream value;
                value << " is " << bad;
                expect_parts(refused(c, p, p).message(), {name, value.str(), "finite and > 0"});
                buffer->bytes() = good.bytes();
            }
        }
    }
}

TEST_P(BadRun, Workspaces) {
    Case c(dense());
    const Problem p = c.problem();
    const auto plan = Plan::create(p, GetParam());
    ASSERT_TRUE(plan.ok());
    const std::size_t need = plan->workspace_bytes();
    ASSERT_GT(need, 0u);
    ASSERT_EQ(plan->info().workspace_align, 64u);
    Bytes block(need + 128);
    const auto run_with = [&](std::size_t from, std::size_t n) {
        return plan->run(p.tensors, std::span<std::byte>(block.data() + from, n));
    };
    for (const std::size_t n : {std::size_t{0}, std::size_t{1}, need - 1}) {
        const Status s = run_with(0, n);
        EXPECT_EQ(s.code(), QUATT_WORKSPACE_TOO_SMALL);
        expect_parts(s.message(), {"workspace has " + std::to_string(n) + " bytes",
                                   "needs " + std::to_string(need)});
    }
    const Status null = Status::from_c(quatt_run(nullptr, nullptr, nullptr, 0, nullptr));
    EXPECT_EQ(null.code(), QUATT_INVALID_ARGUMENT);
    const Status none =
        plan->run(p.tensors, std::span<std::byte>(static_cast<std::byte*>(nullptr), need));
    EXPECT_EQ(none.code(), QUATT_WORKSPACE_TOO_SMALL);
    expect_parts(none.message(), {"workspace is null; the plan needs " + std::to_string(need)});
    for (const std::size_t off : {1, 4, 16, 32, 63}) {
        const Status s = run_with(off, need);
        EXPECT_EQ(s.code(), QUATT_WORKSPACE_TOO_SMALL);
        expect_parts(s.message(), {"workspace is at 0x", "aligned to 64 bytes"});
    }
    EXPECT_TRUE(run_with(64, need).ok());
    EXPECT_TRUE(run_with(0, need + 5).ok()) << "more is fine";
}

INSTANTIATE_TEST_SUITE_P(Devices, BadRun, testing::ValuesIn(kDevices),
                         [](const auto& device) { return std::string(device.param); });

// ---- errors and threads -----------------------------------------------------------------------

TEST(LastError, IsOfItsThread) {
    std::thread fresh(
        [] { EXPECT_STREQ(quatt_last_error(), "") << "nothing failed in this thread"; });
    fresh.join();
    quatt_device d{};
    ASSERT_NE(quatt_device_init(&d, "here"), QUATT_OK);
    const std::string mine = quatt_last_error();
    std::vector<std::thread> threads;
    for (int i = 0; i < 8; i++) {
        threads.emplace_back([i] {
            const std::string name = "thread" + std::to_string(i);
            quatt_device other{};
            for (int n = 0; n < 200; n++) {
                EXPECT_EQ(quatt_device_init(&other, name.c_str()), QUATT_INVALID_ARGUMENT);
                EXPECT_NE(std::string(quatt_last_error()).find(name), std::string::npos);
            }
        });
    }
    for (std::thread& t : threads) {
        t.join();
    }
    EXPECT_EQ(quatt_last_error(), mine);
}

TEST(LastError, SurvivesSuccess) {
    quatt_device d{};
    ASSERT_NE(quatt_device_init(&d, "here"), QUATT_OK);
    ASSERT_EQ(quatt_device_init(&d, "cpu"), QUATT_OK);
    EXPECT_NE(std::string(quatt_last_error()).find("here"), std::string::npos)
        << "it is the message of the last failed call";
}

TEST(StatusName, NamesEachAndTheUnknown) {
    EXPECT_STREQ(quatt_status_name(QUATT_OK), "ok");
    EXPECT_STREQ(quatt_status_name(QUATT_INVALID_ARGUMENT), "invalid argument");
    EXPECT_STREQ(quatt_status_name(QUATT_UNSUPPORTED), "unsupported");
    EXPECT_STREQ(quatt_status_name(QUATT_OUT_OF_MEMORY), "out of memory");
    EXPECT_STREQ(quatt_status_name(QUATT_WORKSPACE_TOO_SMALL), "workspace too small");
    EXPECT_STREQ(quatt_status_name(QUATT_DEVICE_ERROR), "device error");
    EXPECT_STREQ(quatt_status_name(QUATT_INTERNAL), "internal error");
    EXPECT_STREQ(quatt_status_name(-5), "unknown status");
}

// ---- extents without end ----------------------------------------------------------------------

// Products of extents, strides and element sizes: refused, or answered with a size that did not
// wrap around.
TEST(HugeExtents, NeverWrapAround) {
    Random random(3);
    int accepted = 0;
    for (int n = 0; n < scaled(20000); n++) {
        const bool is_packed = random.chance(.5);
        const auto extent = [&](std::int64_t most) {
            const std::int64_t x = std::int64_t{1} << random.in(0, most);
            return std::max<std::int64_t>(0, x + random.in(-1, 1));
        };
        const std::int64_t batch = extent(random.chance(.8) ? 12 : 62),
                           heads_kv = extent(random.chance(.8) ? 4 : 62);
        std::int64_t heads_q = 0;
        if (__builtin_mul_overflow(heads_kv, extent(3), &heads_q)) {
            continue;
        }
        const std::int64_t sq = extent(random.chance(.8) ? 36 : 62),
                           sk = extent(random.chance(.8) ? 36 : 62);
        const std::int64_t d = random.in(1, 256), dv = random.in(1, 256);
        const auto view = [&](quatt_dtype dtype, std::int64_t tokens, std::int64_t heads,
                              std::int64_t channels) {
            const Extents e = is_packed ? Extents{tokens, heads, channels}
                                        : Extents{batch, tokens, heads, channels};
            return quatt_tensor_contiguous(nullptr, dtype, static_cast<std::int32_t>(e.size()),
                                           e.data());
        };
        const quatt_dtype in = random.pick({QUATT_F32, QUATT_BF16, QUATT_E4M3});
        Problem p(Recipe(quatt_recipe_name(
                      static_cast<std::int32_t>(random.in(0, quatt_recipe_count() - 1)))),
                  view(in, sq, heads_q, d), view(in, sk, heads_kv, d), view(in, sk, heads_kv, dv),
                  view(QUATT_F32, sq, heads_q, dv));
        if (random.chance(.3)) {
            const Extents e = is_packed ? Extents{heads_q, sq} : Extents{batch, heads_q, sq};
            p.tensors.lse = quatt_tensor_contiguous(nullptr, QUATT_F32,
                                                    static_cast<std::int32_t>(e.size()), e.data());
        }
        std::int64_t segments = is_packed ? 1 : batch;
        if (is_packed && random.chance(.5) && batch > 0) {
            p.tensors.cu_seqlens_q = quatt_tensor_contiguous(nullptr, QUATT_I32, 1, &batch);
            segments = batch - 1;
        }
        p.splits = random.pick({0, 0, 1, std::numeric_limits<std::int32_t>::max()});
        p.threads = random.pick({1, 4096});
        const char* device = random.pick({"cpu", "reference", "emulate"});
        const auto info = query(p, device);
        if (!info.ok()) {
            ASSERT_EQ(info.status().code(), QUATT_INVALID_ARGUMENT) << info.status().message();
            continue;
        }
        accepted++;
        // Codes of all operands, at least a byte each (on the CPU of one KV head and the query
        // heads that share it), and the list of segments.
        const auto all = static_cast<long double>(is_packed ? 1 : batch);
        const long double codes =
            all * (static_cast<long double>(sq) * static_cast<long double>(heads_q * d) +
                   static_cast<long double>(sk) * static_cast<long double>(heads_kv * (d + dv)));
        const long double taken =
            std::strcmp(device, "reference") == 0 ? 0.0L
            : std::strcmp(device, "cpu") == 0
                ? codes / static_cast<long double>(std::max(INT64_C(1), heads_kv))
                : codes;
        const long double least = taken + 8.0L * static_cast<long double>(segments);
        ASSERT_GE(static_cast<long double>(info->workspace_bytes), least) << p;
        ASSERT_LE(static_cast<long double>(info->workspace_bytes),
                  // 4 bytes a code, 4 + 4 + 4 of scales and means a code at most, blocks of every
                  // segment, on the CPU a padded tile of 64 keys too; scratch
                  16 * codes + 4096.0L * 4e6L +
                      static_cast<long double>(segments + 1) *
                          static_cast<long double>(heads_q + 2 * heads_kv) *
                          (4096 + 64 * 2 * static_cast<long double>(d + dv + 32)))
            << p;
    }
    EXPECT_GT(accepted, scaled(20000) / 50);
}

// The convenience call cannot have the memory: a status, and not an exception or an abort.
TEST(HugeExtents, AreOutOfMemoryAtTheRun) {
    if (kSanitized) {
        GTEST_SKIP() << "the sanitizer's allocator ends the program instead of failing";
    }
    Problem p(Recipe("fp8"), Tensor(nullptr, DType::bf16, {1, std::int64_t{1} << 40, 1, 128}),
              Tensor(nullptr, DType::bf16, {1, 4, 1, 128}),
              Tensor(nullptr, DType::bf16, {1, 4, 1, 128}),
              Tensor(nullptr, DType::bf16, {1, std::int64_t{1} << 40, 1, 128}));
    const Device d("cpu");
    const quatt_status s = quatt_attention(&p, &d);
    EXPECT_TRUE(s == QUATT_OUT_OF_MEMORY || s == QUATT_INVALID_ARGUMENT) << quatt_last_error();
    EXPECT_STRNE(quatt_last_error(), "");
}

// A pointer near the end of the address space and a huge stride: their sum must not wrap around
// either.
TEST(HugeExtents, RangesPastTheAddressSpaceAreRefused) {
    Case c(dense());
    // Four steps of two bytes each: just within 63 bits, on their own.
    constexpr std::int64_t kStride = (std::int64_t{1} << 60) - (std::int64_t{1} << 40);
    for (const std::int64_t stride : {kStride, -kStride}) {
        Problem p = c.problem();
        p.tensors.q.stride[1] = stride;
        const auto info = query(p, "cpu");
        ASSERT_FALSE(info.ok());
        expect_parts(info.status().message(), {"q.data is 0x", "address space"});
        p.tensors.q.data = nullptr;
        EXPECT_TRUE(query(p, "cpu").ok()) << "without memory there is nothing to run past";
    }
    for (const std::uintptr_t at : {~std::uintptr_t{0} - 1, std::uintptr_t{1} << 63}) {
        Problem p = c.problem();
        p.tensors.k.data = reinterpret_cast<void*>(at);
        EXPECT_FALSE(query(p, "cpu").ok());
    }
}

}  // namespace
}  // namespace quatt::test
