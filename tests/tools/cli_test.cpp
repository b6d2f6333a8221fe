// The program as a user meets it: a child process, its texts, its exit status and its files.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <quatt/attention.hpp>
#include <regex>
#include <set>
#include <sstream>

#include "check.hpp"
#include "cli_fixture.hpp"
#include "layer.hpp"
#include "parse.hpp"
#include "table.hpp"

namespace quatt::tools {
namespace {

// --- Texts ------------------------------------------------------------------------------------

// With QUATT_UPDATE_GOLDEN set, the files are written instead.
void expect_golden(const std::string& name, const std::string& text) {
    const std::string path = std::string(QUATT_TEST_DATA_DIR) + "/../tools/golden/" + name;
    if (std::getenv("QUATT_UPDATE_GOLDEN") != nullptr) {
        write_text(path, text);
    }
    EXPECT_EQ(text, read_text(path)) << "QUATT_UPDATE_GOLDEN=1 accepts the new text";
}

TEST_F(Cli, HelpIsGolden) {
    expect_golden("help.txt", succeed({"--help"}));
    for (const std::string command :
         {"info", "explain", "attend", "check", "sample", "bench", "completion", "man", "help"}) {
        const std::string text = succeed({command, "--help"});
        expect_golden("help_" + command + ".txt", text);
        EXPECT_NE(text.find("\n  quatt " + command), std::string::npos) << "no example";
        std::istringstream lines(text);
        for (std::string line; std::getline(lines, line);) {
            EXPECT_LE(line.size(), 120u) << line;
        }
    }
}

TEST_F(Cli, HelpIsACommandToo) {
    EXPECT_EQ(succeed({"help"}), succeed({"--help"}));
    for (const std::string command : {"check", "completion", "help"}) {
        EXPECT_EQ(succeed({"help", command}), succeed({command, "--help"}));
    }
    EXPECT_EQ(succeed({"help", "--help"}), succeed({"help", "help"}));
    fail({"help", "chek"}, 2, {"the command is 'chek'", "check"});
    fail({"help", "check", "bench"}, 2, {"help takes one command; given are 2"});
}

TEST_F(Cli, VersionIsTheLibrarys) {
    EXPECT_EQ(succeed({"--version"}), std::string("quatt ") + quatt_version() + "\n");
}

TEST_F(Cli, InfoShowsEveryKernelAndRecipe) {
    const std::string text = succeed({"info"});
    EXPECT_NE(text.find(std::string("quatt    ") + quatt_version()), std::string::npos);
    EXPECT_NE(text.find("\ngpus "), std::string::npos);
    for (std::int32_t i = 0; i < quatt_kernel_count(); ++i) {
        quatt_kernel_info info{};
        info.struct_size = sizeof(info);
        ASSERT_EQ(quatt_kernel_get_info(i, &info), QUATT_OK);
        EXPECT_NE(text.find("\n" + std::string(info.name) + " "), std::string::npos);
    }
    for (std::int32_t i = 0; i < quatt_recipe_count(); ++i) {
        EXPECT_NE(text.find(quatt_recipe_name(i)), std::string::npos);
    }
}

// What no device ever takes is not offered.
TEST_F(Cli, InfoListsNoWgmmaOnEmu) {
    std::string kernel;
    std::istringstream lines(succeed({"info"}));
    for (std::string line; std::getline(lines, line);) {
        std::istringstream cells(line);
        std::string device;
        kernel = line.starts_with(' ') ? kernel : (cells >> kernel, kernel);
        cells >> device;
        EXPECT_FALSE(kernel == "wgmma" && device == "emu") << line;
    }
}

TEST_F(Cli, ExplainSaysWhatTheLibrarySays) {
    Problem problem = problem_of("nvfp4");
    problem.tensors.q = problem.tensors.out = Tensor(nullptr, DType::bf16, {2, 300, 8, 64});
    problem.tensors.k = problem.tensors.v = Tensor(nullptr, DType::bf16, {2, 500, 2, 64});
    problem.tensors.lse = Tensor(nullptr, DType::f32, {2, 8, 300});
    problem.softmax_scale = 0.25f;
    problem.causal = 1;
    problem.window_left = 100;
    problem.threads = 2;
    EXPECT_EQ(succeed({"explain",
                       "--recipe",
                       "nvfp4",
                       "--batch",
                       "2",
                       "--seqlen-q",
                       "300",
                       "--seqlen-k",
                       "500",
                       "--heads",
                       "8",
                       "--heads-kv",
                       "2",
                       "--head-dim",
                       "64",
                       "--lse",
                       "--softmax-scale",
                       "0.25",
                       "--causal",
                       "--window",
                       "100,-1",
                       "--threads",
                       "2"}),
              explain(problem, "cpu"));
}

TEST_F(Cli, ExplainOfEveryKindOfProblem) {
    EXPECT_NE(succeed({"explain", "--segments", "10,0,20", "--sink", "--kv-lens"})
                  .find("cu_seqlens_q: i32 [4]"),
              std::string::npos);
    EXPECT_NE(succeed({"explain", "--packed", "--tokens", "77"}).find("q: bf16 [77,8,128]"),
              std::string::npos);
    EXPECT_NE(succeed({"explain", "--dtype", "e4m3", "--descales"}).find("v_descale: f32 [8]"),
              std::string::npos);
    EXPECT_NE(succeed({"explain", "--kv-dtype", "e4m3", "--descales"}).find("k_descale"),
              std::string::npos);
    EXPECT_NE(succeed({"explain", "--head-dim-v", "64", "--out-dtype", "f32"})
                  .find("out: f32 [1,4096,8,64]"),
              std::string::npos);
    const std::string gpu = succeed({"explain", "--device", "cuda", "--compute-capability", "9.0",
                                     "--sm-count", "132", "--allow-fallback"});
    EXPECT_NE(gpu.find("(compute capability 9.0, 132 SMs)"), std::string::npos);
}

// The GPU kernel serves several devices under one name.
TEST_F(Cli, ExplainNamesTheDeviceOfEachKernel) {
    const std::string text = succeed({"explain"});
    std::set<std::string> lines;
    for (std::int32_t i = 0; i < quatt_kernel_count(); ++i) {
        quatt_kernel_info info{};
        info.struct_size = sizeof(info);
        ASSERT_EQ(quatt_kernel_get_info(i, &info), QUATT_OK);
        const std::string name = info.name;
        const std::string device = info.device;
        const std::string line = "\n  " + name + (name == device ? "" : " on " + device) + ": ";
        EXPECT_NE(text.find(line), std::string::npos) << line << " in " << text;
        EXPECT_TRUE(lines.insert(line).second) << line << " stands twice";
    }
}

TEST_F(Cli, ExplainOfARefusedProblemFails) {
    const Outcome invalid = run({"explain", "--head-dim", "300"});
    EXPECT_EQ(invalid.status, 1);
    EXPECT_EQ(invalid.err, "");
    EXPECT_NE(invalid.out.find("the head dim of q is 300"), std::string::npos);
    const Outcome strict =
        run({"explain", "--device", "simt:sm_75", "--allow-fallback", "--strict"});
    EXPECT_EQ(strict.status, 1);
    EXPECT_NE(strict.out.find("strict"), std::string::npos);
    EXPECT_EQ(run({"explain", "--kernel", "emulate"}).status, 1);
}

// --- Wrong usage ------------------------------------------------------------------------------

TEST_F(Cli, WrongUsageIsStatus2) {
    const std::string in = file("in.safetensors");
    const std::string out = file("out.safetensors");
    fail({}, 2, {"a command is missing"});
    fail({"atend"}, 2, {"'atend'", "info, explain, attend, check, sample"});
    fail({"check"}, 2, {"IN is required"});
    fail({"check", in, in}, 2, {"not expected"});
    fail({"check", in, "--bogus"}, 2, {"--bogus", "quatt check --help"});
    fail({"check", in, "--rows", "0"}, 2, {"--rows is '0'"});
    fail({"check", in, "--rows", "1e3"}, 2, {"--rows is '1e3'"});
    fail({"check", in, "--rows", "5", "--rows", "6"}, 2, {"--rows"});
    fail({"check", in, "--rows"}, 2, {"--rows"});
    fail({"check", in, "--seed", "-1"}, 2, {"--seed is '-1'"});
    fail({"check", in, "--bound", "nan"}, 2, {"--bound is 'nan'"});
    fail({"check", in, "--recipes", "bf16,fp7"}, 2, {"'fp7'", "nvfp4_fp8"});
    fail({"check", in, "--recipes", "fp8,fp8"}, 2, {"'fp8,fp8'", "repeated"});
    fail({"check", in, "--layers", ""}, 2, {"--layers"});
    fail({"check", in, "--device", "gpu"}, 2, {"'gpu'", "reference"});
    fail({"check", in, "--kernel", "warp"}, 2, {"'warp'", "cpu"});
    fail({"check", in, "--window", "3"}, 2, {"--window is '3'"});
    fail({"check", in, "--window", "-2,0"}, 2, {"--window is '-2,0'"});
    fail({"check", in, "--softmax-scale", "0"}, 2, {"--softmax-scale is '0'"});
    fail({"check", in, "--softmax-scale", "1e99"}, 2, {"'1e99'"});
    fail({"check", in, "--key-tile", "65"}, 2, {"'65'", "64, 96, 128, 192, 256"});
    fail({"check", in, "--threads", "4097"}, 2, {"'4097'", "4096"});
    fail({"check", in, "--causal", "--no-causal"}, 2, {"--causal"});
    fail({"check", in, "--causal=3"}, 2, {"causal"});
    fail({"check", in, "--out-dtype", "e4m3"}, 2, {"'e4m3'", "bf16, f16, f32"});
    fail({"attend", in, "--recipe", "fp8"}, 2, {"--output is required"});
    fail({"attend", in, "-o", out}, 2, {"--recipe is required"});
    fail({"attend", in, "-o", out, "--recipe", "f\x1b[31m8"}, 2, {"'f\\x1b[31m8'"});
    fail({"explain", "--compute-capability", "9"}, 2, {"'9'"});
    fail({"explain", "--segments", "1,-2"}, 2, {"'1,-2'"});
    fail({"explain", "--segments", "1,2", "--tokens", "3"}, 2, {"--tokens"});
    fail({"sample", "--kind", "dit"}, 2, {"--output is required"});
    fail({"sample", "--kind", "cat", "-o", out}, 2, {"'cat'", "outlier"});
    fail({"sample", "--kind", "dit", "-o", out, "--grid", "1,2"}, 2, {"'1,2'"});
    fail({"sample", "--kind", "dit", "-o", out, "--tokens", "7", "--grid", "1,2,3"}, 2,
         {"1 x 2 x 3"});
    fail({"sample", "--kind", "sink", "-o", out, "--sink-weight", "1"}, 2, {"sink_weight"});
    fail({"sample", "--kind", "dit", "-o", out, "--heads", "3", "--heads-kv", "2"}, 2, {"heads_q"});
    EXPECT_FALSE(fs::exists(out));
}

TEST_F(Cli, TheInputIsNeverTheOutput) {
    Capture capture;
    capture.add_qkv("", {8, 2, 16}, 2);
    capture.write(file("in"));
    const std::string before = read_text(file("in"));
    fs::create_symlink(file("in"), file("link"));
    fs::create_hard_link(file("in"), file("hard"));
    for (const std::string name : {"in", "link", "hard"}) {
        fail({"attend", file("in"), "-o", file(name), "--recipe", "fp8"}, 2, {"is the input file"});
        fail({"check", file("in"), "--json", file(name)}, 2, {"is the input file"});
    }
    EXPECT_EQ(read_text(file("in")), before);
}

TEST_F(Cli, FlagsThatWouldBeIgnoredAreRefused) {
    Capture capture;
    capture.add_qkv("", {8, 2, 16}, 2);
    capture.write(file("in"));
    const std::string out = file("out");
    fail({"explain", "--descales"}, 2, {"--descales", "e4m3"});
    fail({"explain", "--packed", "--batch", "2"}, 2, {"--packed", "--batch"});
    fail({"explain", "--batch", "2", "--packed"}, 2, {"--packed", "--batch"});
    for (const std::string device : {"cpu", "simt:sm_90", "emu:sm_90"}) {
        fail({"explain", "--device", device, "--compute-capability", "9.0"}, 2,
             {"--compute-capability", "'" + device + "'"});
        fail({"explain", "--device", device, "--sm-count", "132"}, 2, {"--sm-count"});
    }
    fail({"check", file("in"), "--json", ""}, 2, {"--json is ''"});
    fail({"attend", file("in"), "-o", "", "--recipe", "fp8"}, 2, {"--output is ''"});
    fail({"sample", "--kind", "dit", "-o", ""}, 2, {"--output is ''"});
    const std::vector<std::pair<Args, std::string>> flags = {
        {{"--gain", "2"}, "dit"},           {{"--grid", "1,2,3"}, "dit"},
        {{"--sink-weight", "0.5"}, "sink"}, {{"--sink-position", "0"}, "sink"},
        {{"--score-std", "1"}, "sink"},     {{"--outlier-gain", "9"}, "outlier"}};
    for (const auto& [flag, kind] : flags) {
        for (const std::string other : {"gaussian", "dit", "outlier", "sink"}) {
            if (other != kind) {
                fail({"sample", flag[0], flag[1], "--kind", other, "-o", out}, 2,
                     {flag[0] + " belongs to --kind " + kind, "'" + other + "'"});
            }
        }
    }
    EXPECT_FALSE(fs::exists(out));
}

TEST_F(Cli, WrongFlagsHavePlainMessages) {
    fail({"sample", "--tokens", "1", "--tokens", "2"}, 2,
         {"--tokens is given 2 times; allowed is once"});
    fail({"check", "in", "--bogus", "3"}, 2, {"there is no flag '--bogus' (see"});
    // Before what seems to be missing without it.
    fail({"attend", "in", "--outptu", "F"}, 2,
         {"there is no flag '--outptu'; did you mean --output? (see quatt attend --help)"});
    fail({"check", "--recipies=fp8"}, 2, {"no flag '--recipies'; did you mean --recipes?"});
    fail({"--verson"}, 2, {"no flag '--verson'; did you mean --version?"});
    const Outcome outcome = run({"explain", "--kernel", "nosuch"});
    EXPECT_EQ(outcome.status, 2);
    // Which kernels there are is the build's affair, and several devices may share a name
    // (warp_mma): each name once, whatever the table holds.
    const std::string before = "allowed is one of ";
    const auto at = outcome.err.find(before);
    ASSERT_NE(at, std::string::npos) << outcome.err;
    const auto from = at + before.size();
    std::multiset<std::string> listed;
    for (const std::string& name :
         split(outcome.err.substr(from, outcome.err.find('\n', from) - from))) {
        listed.insert(name.substr(name.find_first_not_of(' ')));
    }
    std::set<std::string> names;
    for (std::int32_t n = 0; n < quatt_kernel_count(); ++n) {
        quatt_kernel_info info{};
        info.struct_size = sizeof(info);
        ASSERT_EQ(quatt_kernel_get_info(n, &info), QUATT_OK);
        names.insert(info.name);
    }
    EXPECT_EQ(listed, std::multiset<std::string>(names.begin(), names.end())) << outcome.err;
}

// --- Failures ---------------------------------------------------------------------------------

TEST_F(Cli, FilesThatCannotBeReadAreStatus1) {
    for (const std::string command : {"check", "attend"}) {
        const auto args = [&](const std::string& in) {
            return command == "check" ? Args{"check", in}
                                      : Args{"attend", in, "-o", file("out"), "--recipe", "fp8"};
        };
        fail(args(file("missing")), 1, {file("missing"), "No such file"});
        fail(args(directory_.path().string()), 1, {"not a regular file"});
        write_text(file("empty"), "");
        fail(args(file("empty")), 1, {"has 0 bytes"});
        write_text(file("hostile"), std::string("\xff\xff\xff\xff\xff\xff\xff\x7f{}", 10));
        fail(args(file("hostile")), 1, {"header length"});
        const std::string real = read_text(kRealFile);
        write_text(file("truncated"), real.substr(0, real.size() / 2));
        fail(args(file("truncated")), 1, {"reach past"});
    }
    EXPECT_FALSE(fs::exists(file("out")));
}

TEST_F(Cli, WrongTensorsAreNamed) {
    const auto attend = [&](const Capture& capture, const std::vector<std::string>& texts,
                            Args more = {}) {
        capture.write(file("in"));
        Args args = {"attend", file("in"), "-o", file("out"), "--recipe", "fp8"};
        args.insert(args.end(), more.begin(), more.end());
        fail(args, 1, texts);
        Args check = {"check", file("in")};
        std::erase(more, "--layer");
        if (!more.empty() && more[0] == "a") {
            check.emplace_back("--layers");
        }
        check.insert(check.end(), more.begin(), more.end());
        fail(check, 1, texts);
    };
    const std::vector<float> zeros(1000);
    {
        Capture c;
        c.add("query", {4, 1, 8}, std::vector<float>(32));
        attend(c, {"no tensor 'q'; it has query"});
        attend(c, {"no tensor 'a.q'", "query"}, {"--layer", "a"});
    }
    attend(Capture(), {"has no tensor 'q'; it holds no tensors\n"});
    {
        Capture c;
        c.add("q", Dtype::kF64, {4, 1, 8}, Bytes(256));
        c.add("k", Dtype::kF64, {4, 1, 8}, Bytes(256));
        c.add("v", Dtype::kF64, {4, 1, 8}, Bytes(256));
        attend(c, {"'q' is F64 [4, 1, 8]", "F8_E4M3"});
    }
    {
        Capture c;
        for (const char* name : {"q", "k", "v"}) {
            c.add(name, {4, 8}, std::vector<float>(32));
        }
        attend(c, {"'q' is F32 [4, 8]", "[tokens, heads, head size]"});
    }
    {
        Capture c;
        c.add("q", {4, 3, 8}, std::vector<float>(96));
        c.add("k", {4, 2, 8}, std::vector<float>(64));
        c.add("v", {4, 2, 8}, std::vector<float>(64));
        attend(c, {file("in"), "q has 3 heads and k has 2"});
    }
    {
        Capture c;
        for (const char* name : {"q", "k", "v"}) {
            c.add(name, {4, 1, 300}, std::vector<float>(1200));
        }
        attend(c, {"the head dim of q is 300", "the head dim of v is 300"});
    }
    {
        Capture c;
        c.add_qkv("", {4, 1, 8}, 1);
        c.add_ints("cu_seqlens", {0, 3, 2});
        attend(c, {"cu_seqlens_q[2] is 2"});
    }
    {
        Capture c;
        c.add_qkv("", {4, 1, 8}, 1);
        c.add_ints("cu_seqlens", {0, 4});
        c.add_ints("cu_seqlens_k", {0, 4});
        attend(c, {"'cu_seqlens'", "'cu_seqlens_k'"});
    }
    {
        Capture c;
        c.add_qkv("", {4, 1, 8}, 1);
        c.add("cu_seqlens", {2}, {0.0f, 4.0f});
        attend(c, {"'cu_seqlens' is F32 [2]", "I32 and I64"});
    }
    {
        Capture c;
        c.add_qkv("", {4, 1, 8}, 1);
        const std::vector<std::int64_t> wide = {0, std::int64_t{1} << 32};
        const auto bytes = std::as_bytes(std::span(wide));
        c.add("cu_seqlens", Dtype::kI64, {2}, {bytes.begin(), bytes.end()});
        attend(c, {"'cu_seqlens'", "4294967296"});
    }
    {
        Capture c;
        c.add_qkv("", {2, 4, 1, 8}, 1);
        c.add_ints("kv_lens", {4, 5});
        attend(c, {"kv_lens[1] is 5"});
    }
    {
        Capture c;
        c.add_qkv("", {4, 1, 8}, 1);
        c.add("q_descale", {1}, {2.0f});
        attend(c, {"'q_descale'", "'q' is BF16 [4, 1, 8]"});
    }
    {
        Capture c;
        c.add_qkv("", {4, 1, 8}, 1, Dtype::kF8E4M3);
        c.add("k_descale", {1}, {-2.0f});
        attend(c, {"k_descale", "-2"});
    }
    {
        Capture c;
        c.add_qkv("", {4, 2, 8}, 1);
        c.add("s", {3}, std::vector<float>(3));
        attend(c, {"sink is f32 [3]"}, {"--sink", "s"});
        attend(c, {"no tensor 't'"}, {"--sink", "t"});
    }
}

TEST_F(Cli, WhatWouldChangeTheResultIsRefused) {
    for (const std::string name :
         {"mask", "attn_mask", "bias", "position_bias", "alibi_slopes", "block_table", "sinks",
          "q_scale", "kv_seqlens", "layers.attn_mask", "layers.0.q_descale_inv"}) {
        Capture c;
        c.add_qkv("layers.0.", {4, 1, 8}, 1);
        c.add(name, {4}, std::vector<float>(4));
        c.write(file("in"));
        fail({"check", file("in")}, 1, {file("in"), "'" + name + "'", "not applied"});
        fail({"attend", file("in"), "-o", file("out"), "--recipe", "fp8"}, 1, {"'" + name + "'"});
    }
    // What has no elements changes nothing, as the mark of ComfyUI's FP8 files.
    Capture marked;
    marked.add_qkv("layers.0.", {4, 1, 8}, 1);
    marked.add("scaled_fp8", Dtype::kF8E4M3, {0}, {});
    marked.add("layers.0.mask", {4, 0}, {});
    marked.write(file("in"));
    for (const std::string& text :
         {succeed({"check", file("in"), "--recipes", "bf16"}),
          succeed({"attend", file("in"), "-o", file("out"), "--recipe", "fp8"})}) {
        EXPECT_NE(text.find("note: tensor 'scaled_fp8' has no elements and is ignored\n"),
                  std::string::npos)
            << text;
        EXPECT_NE(text.find("note: tensor 'layers.0.mask' has no elements"), std::string::npos);
    }
    Capture c;
    c.add_qkv("layers.0.", {4, 1, 8}, 1);
    c.add("layers.0.out", {4}, std::vector<float>(4));
    c.add("layers.0.o_proj.bias", {4}, std::vector<float>(4));
    c.add("layers.1.mask", {4}, std::vector<float>(4));
    c.write(file("in"));
    (void)succeed({"attend", file("in"), "-o", file("out"), "--recipe", "fp8"});
    c.metadata["logit_softcap"] = "50.0";
    c.write(file("in"));
    fail({"check", file("in")}, 1, {"'logit_softcap' is '50.0'"});
}

TEST_F(Cli, BadMetadataIsRefused) {
    const auto refused = [&](const std::string& key, const std::string& value) {
        Capture c;
        c.add_qkv("", {4, 1, 8}, 1);
        c.metadata[key] = value;
        c.write(file("in"));
        fail({"check", file("in")}, 1, {"metadata '" + key + "' is '" + value + "'"});
    };
    refused("softmax_scale", "0");
    refused("softmax_scale", "big");
    refused("causal", "maybe");
    refused("window", "1");
    refused("window_left", "x");
    refused("qkv_layout", "sbhd");
}

// Metadata that means one of ours under another name would pass for the default.
TEST_F(Cli, MetadataUnderAnotherNameIsNoted) {
    const auto notes = [&](const std::string& key, const std::string& value, Args more = {}) {
        Capture c;
        c.add_qkv("a.b.", {4, 1, 16}, 1);
        c.metadata[key] = value;
        c.write(file("in"));
        Args args = {"check", file("in"), "--recipes", "bf16", "--json", "-"};
        args.insert(args.end(), more.begin(), more.end());
        const Json json = Json::parse(succeed(args));
        args = {"attend", file("in"), "-o", file("out"), "--recipe", "bf16"};
        args.insert(args.end(), more.begin(), more.end());
        const std::string attend = succeed(args);
        for (const Json& note : json["layers"][0]["notes"]) {
            EXPECT_NE(attend.find("note: " + note.get<std::string>() + "\n"), std::string::npos);
        }
        return json["layers"][0]["notes"];
    };
    const std::vector<std::array<std::string, 3>> others = {
        {"scale", "0.1", "softmax_scale"},
        {"a.sm_scale", "0.5", "softmax_scale"},
        {"a.b.softmax_scal", "1", "softmax_scale"},
        {"Softmax_Scale", "1", "softmax_scale"},
        {"attn_scaling", "x", "softmax_scale"},
        {"is_causal", "true", "causal"},
        {"a.b.Causal", "1", "causal"},
        {"casual", "True", "causal"},
        {"window_size", "128", "window"},
        {"a.sliding_window", "64,0", "window"},
        {"window_rigth", "0", "window_right"}};
    for (const auto& [key, value, meant] : others) {
        const Json found = notes(key, value);
        ASSERT_EQ(found.size(), 1u) << key;
        EXPECT_EQ(found[0].get<std::string>().find("metadata '" + key + "' is '" + value +
                                                   "', and nothing reads it; if it means " + meant +
                                                   ", give it that name, or the flag --"),
                  0u)
            << found;
    }
    // It says what holds anyway, belongs to another layer, means something else, or a flag says.
    for (const auto& [key, value] :
         std::vector<std::pair<std::string, std::string>>{{"is_causal", "False"},
                                                          {"scale", "0.25"},
                                                          {"window_size", "-1"},
                                                          {"sliding_window", "None"},
                                                          {"c.scale", "0.1"},
                                                          {"causal", "true"},
                                                          {"window_left", "3"},
                                                          {"model", "causal"},
                                                          {"kind", "dit"}}) {
        EXPECT_EQ(notes(key, value), Json::array()) << key;
    }
    EXPECT_EQ(notes("scale", "0.1", {"--softmax-scale", "0.1"}), Json::array());
    EXPECT_EQ(notes("is_causal", "true", {"--no-causal"}), Json::array());

    // A note on what all layers share stands once.
    Capture c;
    c.add_qkv("l.0.", {4, 1, 16}, 1);
    c.add_qkv("l.1.", {4, 1, 16}, 1);
    c.metadata["is_causal"] = "1";
    c.write(file("in"));
    const std::string text = succeed({"check", file("in"), "--recipes", "bf16"});
    const auto first = text.find("note: metadata 'is_causal'");
    ASSERT_NE(first, std::string::npos) << text;
    EXPECT_EQ(text.find("note: ", first + 1), std::string::npos) << text;
}

TEST_F(Cli, DevicesThatAreNotHereAreRefused) {
    Capture c;
    c.add_qkv("", {4, 1, 8}, 1);
    c.write(file("in"));
    // No build has kernels for this architecture.
    fail({"check", file("in"), "--device", "simt:sm_75"}, 1, {file("in"), "recipe bf16"});
    for (const std::string device : {"cuda", "cuda:1", "emu:sm_90", "emu:sm_75"}) {
        fail({"attend", file("in"), "-o", file("out"), "--recipe", "fp8", "--device", device}, 1,
             {"attend runs on host devices: cpu, reference, emulate, simt:ARCH; ",
              "'" + device + "'"});
        fail({"check", file("in"), "--device", device}, 1,
             {"check runs on host devices: cpu, emulate, simt:ARCH; "});
    }
    fail({"check", file("in"), "--device", "reference"}, 2, {"ignores the recipe"});
    fail({"attend", file("in"), "-o", file("out"), "--recipe", "fp8", "--kernel", "emulate"}, 1,
         {"emulate"});
    fail({"attend", file("in"), "-o", file("out"), "--recipe", "fp8", "--key-tile", "128"}, 1,
         {"key_tile is 128"});
}

TEST_F(Cli, AFailedWriteIsAFailureAndLeavesNothing) {
    Capture c;
    c.add_qkv("", {4, 1, 8}, 1);
    c.write(file("in"));
    const std::string nowhere = file("no/such/directory/out");
    fail({"attend", file("in"), "-o", nowhere, "--recipe", "fp8"}, 1, {nowhere, "No such file"});
    fail({"sample", "--kind", "dit", "--tokens", "8", "-o", nowhere}, 1, {nowhere});
    fail({"check", file("in"), "--json", nowhere}, 1, {nowhere});
    fail({"attend", file("in"), "-o", "/dev/full", "--recipe", "fp8"}, 1, {"not a regular file"});
    fail({"check", file("in"), "--json", "/dev/full"}, 1, {"not a regular file"});
    fail({"check", file("in"), "--json", directory_.path().string()}, 1, {"not a regular file"});
    // Before the work, and even before the layers are looked up.
    fail({"check", file("in"), "--layers", "x", "--json", nowhere}, 1, {nowhere});

    // A failure before the end leaves an older result as it was, and no temporary file.
    write_text(file("out"), "older");
    fail({"attend", file("in"), "-o", file("out"), "--recipe", "fp8", "--layer", "x"}, 1, {"x.q"});
    EXPECT_EQ(read_text(file("out")), "older");
    for (const auto& entry : fs::directory_iterator(directory_.path())) {
        EXPECT_EQ(entry.path().extension(), "") << entry.path();
    }
}

TEST_F(Cli, AFailedStandardOutputIsAFailure) {
    for (const Args& args : {Args{"info"}, Args{"--help"}, Args{"--version"}, Args{"explain"}}) {
        const Outcome full = run(args, "/dev/full");
        EXPECT_EQ(full.status, 1);
        EXPECT_NE(full.err.find("standard output: No space left"), std::string::npos) << full.err;

        int ends[2];
        ASSERT_EQ(::pipe(ends), 0);
        ::close(ends[0]);
        const Outcome broken = spawn(args, ends[1], false);
        EXPECT_EQ(broken.status, 128 + SIGPIPE);
        EXPECT_EQ(broken.err, "");
        // A parent that does not want that gets a status and the reason.
        ASSERT_EQ(::pipe(ends), 0);
        ::close(ends[0]);
        const Outcome told = spawn(args, ends[1], false, true);
        EXPECT_EQ(told.status, 1);
        EXPECT_NE(told.err.find("standard output: Broken pipe"), std::string::npos) << told.err;
    }
}

// --- attend -----------------------------------------------------------------------------------

class Attend : public Cli {
protected:
    void expect_equal(const Capture& capture, const Problem& problem, quatt_dtype out_dtype,
                      const Args& more, const std::string& device = "cpu") {
        capture.write(file("in"));
        Args args = {"attend", file("in"), "-o", file("out"), "--lse", "--device", device};
        args.insert(args.end(), more.begin(), more.end());
        (void)succeed(args);
        expect_same(file("out"), capture.attention(problem, out_dtype, device));
    }
};

TEST_F(Attend, EqualsTheLibraryOnDenseTensors) {
    Capture c;
    c.add_qkv("", {2, 70, 4, 32}, 2);
    for (const std::string recipe :
         {"bf16", "f16", "fp8", "fp8_head", "int8_fp8", "nvfp4", "nvfp4_fp8"}) {
        expect_equal(c, problem_of(recipe), QUATT_BF16, {"--recipe", recipe});
    }
    expect_equal(c, problem_of("fp8"), QUATT_BF16, {"--recipe", "fp8"}, "reference");
    Problem tiled = problem_of("nvfp4");
    tiled.key_tile = 128;
    expect_equal(c, tiled, QUATT_F32,
                 {"--recipe", "nvfp4", "--key-tile", "128", "--out-dtype", "f32"}, "emulate");
}

// The same tensor with tokens and heads the other way round.
Bytes heads_first(const quatt_tensor& t) {
    const auto size = static_cast<std::int64_t>(quatt_dtype_bytes(t.dtype)) * t.extent[t.rank - 1];
    const std::int64_t items = t.rank == 4 ? t.extent[0] : 1;
    const std::int64_t tokens = t.extent[t.rank - 3];
    const std::int64_t heads = t.extent[t.rank - 2];
    const auto* const from = static_cast<const std::byte*>(t.data);
    Bytes to;
    for (std::int64_t b = 0; b < items; ++b) {
        for (std::int64_t h = 0; h < heads; ++h) {
            for (std::int64_t s = 0; s < tokens; ++s) {
                const auto* const row = from + ((b * tokens + s) * heads + h) * size;
                to.insert(to.end(), row, row + size);
            }
        }
    }
    return to;
}

TEST_F(Attend, TakesHeadsBeforeTokens) {
    for (const bool dense : {true, false}) {
        Capture plain;
        plain.add_qkv(
            "",
            dense ? std::vector<std::int64_t>{2, 40, 4, 32} : std::vector<std::int64_t>{70, 4, 32},
            2, Dtype::kF32);
        Capture swapped;
        if (dense) {
            plain.add_ints("kv_lens", {40, 17});
            swapped.add_ints("kv_lens", {40, 17});
        } else {
            plain.add_ints("cu_seqlens", {0, 20, 70});
            swapped.add_ints("cu_seqlens", {0, 20, 70});
        }
        for (const std::string name : {"q", "k", "v"}) {
            const quatt_tensor t = plain.tensor(name);
            std::vector<std::int64_t> shape(t.extent, t.extent + t.rank);
            std::swap(shape[shape.size() - 3], shape[shape.size() - 2]);
            swapped.add(name, Dtype::kF32, shape, heads_first(t));
        }
        const auto wanted = plain.attention(problem_of("int8_fp8"), QUATT_F32, "cpu");
        quatt_tensor out = plain.tensor("q");
        out.data = const_cast<std::byte*>(wanted.first.data());
        const Bytes wanted_out = heads_first(out);

        const auto expect_wanted = [&](const Args& more, const std::string& source) {
            swapped.write(file("in"));
            Args args = {"attend", file("in"), "-o", file("out"), "--recipe", "int8_fp8", "--lse"};
            args.insert(args.end(), more.begin(), more.end());
            EXPECT_NE(succeed(args).find(", layout bhsd (" + source + ")"), std::string::npos);
            expect_same(file("out"), {wanted_out, wanted.second});
            const SafetensorsFile result(file("out"));
            EXPECT_EQ(result.at("out").shape, SafetensorsFile(file("in")).at("q").shape);
            EXPECT_EQ(result.metadata().at("qkv_layout"), "bhsd");
        };
        expect_wanted({"--layout", "bhsd"}, "flag");
        swapped.metadata["qkv_layout"] = "BHSD";
        expect_wanted({}, "metadata");

        // check sees the same layer in both.
        plain.write(file("plain"));
        const auto layer_of = [&](const std::string& name) {
            return Json::parse(
                succeed({"check", file(name), "--recipes", "fp8", "--json", "-"}))["layers"][0];
        };
        const Json a = layer_of("plain");
        const Json b = layer_of("in");
        EXPECT_EQ(a["shape"]["layout"], "bshd");
        EXPECT_EQ(b["shape"]["layout"], "bhsd");
        for (const std::string field : {"inputs", "light_mass", "exact", "recommendation"}) {
            EXPECT_EQ(a[field], b[field]) << field;
        }
        EXPECT_EQ(a["recipes"][0]["heads"], b["recipes"][0]["heads"]);
        EXPECT_EQ(a["shape"]["tokens_q"], b["shape"]["tokens_q"]);
    }
}

TEST_F(Attend, NotesShapesThatLookLikeHeadsBeforeTokens) {
    const auto texts = [&](std::vector<std::int64_t> q, std::vector<std::int64_t> k,
                           const Args& more, const Metadata& metadata, bool segments) {
        Capture c;
        const auto add = [&](const std::string& name, const std::vector<std::int64_t>& shape) {
            std::int64_t count = 1;
            for (const std::int64_t extent : shape) {
                count *= extent;
            }
            c.add(name, shape, std::vector<float>(static_cast<std::size_t>(count), 1.0f));
        };
        add("q", q);
        add("k", k);
        add("v", k);
        if (segments) {
            c.add_ints("cu_seqlens", {0, static_cast<std::int32_t>(q[0])});
        }
        c.metadata = metadata;
        c.write(file("in"));
        std::string all;
        for (Args args : {Args{"check", file("in"), "--recipes", "bf16"},
                          Args{"attend", file("in"), "-o", file("out"), "--recipe", "bf16"}}) {
            args.insert(args.end(), more.begin(), more.end());
            const Outcome outcome = run(args);
            all += outcome.out + outcome.err;
        }
        return all;
    };
    const std::string torch = texts({1, 8, 64, 16}, {1, 8, 64, 16}, {}, {}, false);
    const std::string note =
        "note: k F32 [1, 8, 64, 16] is read as 8 tokens of 64 heads; if it is 64 tokens of 8 "
        "heads, as in torch's attention, give --layout bhsd";
    const auto first = torch.find(note);
    ASSERT_NE(first, std::string::npos) << torch;
    EXPECT_NE(torch.find(note, first + 1), std::string::npos) << torch;
    EXPECT_NE(texts({8, 64, 16}, {8, 64, 16}, {}, {}, false).find("--layout bhsd"),
              std::string::npos);
    // One query: refused as it is, and the reason may be this.
    const std::string decode = texts({1, 32, 1, 16}, {1, 8, 64, 16}, {}, {}, false);
    EXPECT_NE(decode.find("q has 1 heads and k has 64"), std::string::npos) << decode;
    EXPECT_NE(decode.find("quatt: " + file("in") + ": k F32 [1, 8, 64, 16] is read as"),
              std::string::npos)
        << decode;
    for (const std::string& text :
         {texts({1, 64, 8, 16}, {1, 64, 8, 16}, {}, {}, false),
          texts({1, 1, 32, 16}, {1, 64, 8, 16}, {}, {}, false),
          texts({1, 8, 64, 16}, {1, 8, 64, 16}, {"--layout", "bshd"}, {}, false),
          texts({1, 8, 64, 16}, {1, 8, 64, 16}, {}, {{"qkv_layout", "bshd"}}, false),
          texts({1, 8, 64, 16}, {1, 8, 64, 16}, {"--layout", "bhsd"}, {}, false),
          texts({8, 64, 16}, {8, 64, 16}, {}, {}, true),
          texts({1, 9, 64, 16}, {1, 8, 64, 16}, {}, {}, false)}) {
        EXPECT_EQ(text.find("is read as"), std::string::npos) << text;
    }
}

TEST_F(Attend, EqualsTheLibraryWithEveryProblemFlag) {
    Capture c;
    c.add_qkv("", {90, 4, 32}, 2, Dtype::kF16);
    c.add_ints("cu_seqlens", {0, 33, 33, 80});
    c.add("sink", {4}, {0.5f, -1.0f, 3.0f, 0.0f});
    Problem p = problem_of("fp8");
    p.causal = 1;
    p.window_left = 20;
    p.softmax_scale = 0.3f;
    p.threads = 1;
    p.splits = 2;
    expect_equal(c, p, QUATT_F16,
                 {"--recipe", "fp8", "--causal", "--window", "20,-1", "--softmax-scale", "0.3",
                  "--sink", "sink", "--threads", "1", "--splits", "2", "--quiet"});
    const SafetensorsFile out(file("out"));
    EXPECT_EQ(out.at("out").describe(), "F16 [90, 4, 32]");
    EXPECT_EQ(out.at("lse").describe(), "F32 [4, 90]");
    EXPECT_EQ(out.metadata().at("recipe"), "fp8");
    EXPECT_EQ(out.metadata().at("causal"), "true");
    EXPECT_EQ(out.metadata().at("window"), "20,-1");
    EXPECT_EQ(out.metadata().at("softmax_scale"), "0.3");
}

TEST_F(Attend, EqualsTheLibraryWithLengths) {
    {
        Capture c;
        c.add_qkv("", {3, 40, 2, 16}, 2, Dtype::kF32);
        c.add_ints("kv_lens", {40, 0, 17});
        expect_equal(c, problem_of("int8_fp8"), QUATT_F32, {"--recipe", "int8_fp8"});
    }
    Capture c;
    c.add_qkv("", {50, 2, 16}, 2);
    c.add_ints("cu_seqlens_q", {0, 10, 50});
    c.add_ints("cu_seqlens_k", {0, 30, 45});
    expect_equal(c, problem_of("fp8"), QUATT_BF16, {"--recipe", "fp8"});

    // The same as I64, on the outer level of a layer.
    Capture wide;
    wide.add_qkv("a.b.", {50, 2, 16}, 2);
    for (const auto& [name, ints] :
         {std::pair{"a.cu_seqlens_q", std::vector<std::int64_t>{0, 10, 50}},
          std::pair{"a.cu_seqlens_k", std::vector<std::int64_t>{0, 30, 45}}}) {
        const auto bytes = std::as_bytes(std::span(ints));
        wide.add(name, Dtype::kI64, {3}, {bytes.begin(), bytes.end()});
    }
    wide.write(file("in"));
    (void)succeed({"attend", file("in"), "-o", file("out"), "--recipe", "fp8", "--lse"});
    expect_same(file("out"), c.attention(problem_of("fp8"), QUATT_BF16, "cpu"));
}

TEST_F(Attend, EqualsTheLibraryOnE4m3WithDescales) {
    Capture c;
    c.add_qkv("", {2, 40, 4, 32}, 2, Dtype::kF8E4M3);
    c.add("q_descale", {}, {0.5f});
    c.add("k_descale", {2}, {2.0f, 0.25f});
    c.add("v_descale", {2, 2}, {1.0f, 2.0f, 3.0f, 4.0f});
    expect_equal(c, problem_of("fp8_head"), QUATT_BF16, {"--recipe", "fp8_head"});

    Capture bare;
    bare.add_qkv("", {8, 1, 16}, 1, Dtype::kF8E4M3);
    bare.write(file("in"));
    EXPECT_NE(succeed({"attend", file("in"), "-o", file("out"), "--recipe", "fp8"})
                  .find("note: tensor 'k' is F8_E4M3 and has no 'k_descale'"),
              std::string::npos);
}

TEST_F(Attend, TakesMetadataUnlessAFlagSaysOtherwise) {
    Capture c;
    c.add_qkv("", {60, 2, 16}, 2);
    c.metadata = {{"softmax_scale", "0.5"}, {"causal", "True"}, {"window", "9,0"}};
    Problem p = problem_of("bf16");
    p.softmax_scale = 0.5f;
    p.causal = 1;
    p.window_left = 9;
    p.window_right = 0;
    expect_equal(c, p, QUATT_BF16, {"--recipe", "bf16"});
    p.softmax_scale = 1.0f;
    p.causal = 0;
    p.window_left = p.window_right = -1;
    expect_equal(c, p, QUATT_BF16,
                 {"--recipe", "bf16", "--softmax-scale", "1", "--no-causal", "--window", "-1,-1"});
}

TEST_F(Attend, ChoosesTheOnlyLayerAndAsksForOneOfSeveral) {
    Capture c;
    c.add_qkv("only.", {8, 2, 16}, 2);
    c.write(file("in"));
    (void)succeed({"attend", file("in"), "-o", file("out"), "--recipe", "fp8"});
    EXPECT_EQ(SafetensorsFile(file("out")).metadata().at("layer"), "only");
    c.add_qkv("other.", {8, 2, 16}, 2);
    c.write(file("in"));
    fail({"attend", file("in"), "-o", file("out"), "--recipe", "fp8"}, 1, {"only, other"});
}

// The writer aligns everything; other programs do not.
TEST_F(Attend, ReadsTensorsThatAreNotAligned) {
    Capture c;
    c.add_qkv("", {8, 1, 16}, 1);
    std::string data(1, '\0');
    std::string header = R"({"pad":{"dtype":"U8","shape":[1],"data_offsets":[0,1]})";
    for (const std::string name : {"q", "k", "v"}) {
        const auto* bytes = static_cast<const char*>(c.tensor(name).data);
        header += ",\"" + name + R"(":{"dtype":"BF16","shape":[8,1,16],"data_offsets":[)" +
                  std::to_string(data.size()) + "," + std::to_string(data.size() + 256) + "]}";
        data.append(bytes, 256);
    }
    header += "}";
    header.resize((header.size() + 7) / 8 * 8, ' ');
    std::string length(8, '\0');
    const std::uint64_t size = header.size();
    std::memcpy(length.data(), &size, 8);
    write_text(file("in"), length + header + data);
    (void)succeed({"attend", file("in"), "-o", file("out"), "--recipe", "fp8", "--lse"});
    expect_same(file("out"), c.attention(problem_of("fp8"), QUATT_BF16, "cpu"));
}

TEST_F(Attend, QuietSaysNothing) {
    Capture c;
    c.add_qkv("", {8, 1, 16}, 1);
    c.write(file("in"));
    EXPECT_EQ(succeed({"attend", file("in"), "-o", file("out"), "--recipe", "fp8", "--quiet"}), "");
    EXPECT_EQ(succeed({"sample", "--kind", "dit", "--tokens", "8", "-o", file("s"), "--quiet"}),
              "");
}

TEST_F(Attend, SaysThatTheReferenceIgnoresTheRecipe) {
    Capture c;
    c.add_qkv("", {8, 1, 16}, 1);
    c.write(file("in"));
    EXPECT_NE(succeed({"attend", file("in"), "-o", file("out"), "--recipe", "fp8", "--device",
                       "reference"})
                  .find("note: device reference is exact; recipe fp8 is ignored\n"),
              std::string::npos);
}

// Long calls are cut by KV heads; that changes no bit.
TEST(SliceHeads, PartsGiveTheBitsOfTheWhole) {
    for (const bool dense : {false, true}) {
        Capture c;
        c.add_qkv(
            "",
            dense ? std::vector<std::int64_t>{2, 40, 6, 32} : std::vector<std::int64_t>{80, 6, 32},
            3, Dtype::kF8E4M3);
        c.add("sink", {6}, {0, 1, 2, 3, 4, 5});
        c.add("k_descale", {3}, {1, 2, 3});
        if (dense) {
            c.add("v_descale", {2, 3}, {1, 2, 3, 4, 5, 6});
        }
        const auto wanted = c.attention(problem_of("fp8"), QUATT_F32, "cpu");

        Bytes out(wanted.first.size());
        std::vector<float> lse(wanted.second.size());
        Problem p = problem_of("fp8");
        p.softmax_scale = 1.0f / std::sqrt(32.0f);
        Tensors whole;
        whole.q = c.tensor("q");
        whole.k = c.tensor("k");
        whole.v = c.tensor("v");
        whole.sink = c.tensor("sink");
        whole.k_descale = c.tensor("k_descale");
        whole.v_descale = c.tensor("v_descale");
        whole.out = quatt_tensor_contiguous(out.data(), QUATT_F32, whole.q.rank, whole.q.extent);
        const std::int64_t rows[] = {2, 6, 40};
        const std::int64_t packed_rows[] = {6, 80};
        whole.lse = quatt_tensor_contiguous(lse.data(), QUATT_F32, dense ? 3 : 2,
                                            dense ? rows : packed_rows);
        for (const auto& [first, count] : {std::pair{0, 2}, std::pair{2, 1}}) {
            p.tensors = slice_heads(whole, first, count);
            attention(p, "cpu");
        }
        EXPECT_EQ(out, wanted.first);
        EXPECT_EQ(lse, wanted.second);
    }
}

// --- check ------------------------------------------------------------------------------------

class Check : public Cli {
protected:
    Json json_of(Args args) {
        args.insert(args.end(), {"--json", "-"});
        return Json::parse(succeed(args));
    }
};

TEST_F(Check, JsonIsWhatTheTableShows) {
    const Args args = {
        "check",  kRealFile, "--layers", "layers.0,layers.7", "--recipes", "fp8,bf16,nvfp4_fp8",
        "--rows", "32",      "--json",   file("report.json")};
    const std::string text = succeed(args);
    EXPECT_NE(text.find("wrote " + file("report.json") + " ("), std::string::npos) << text;
    const Json json = Json::parse(read_text(file("report.json")));
    EXPECT_EQ(json["schema"], "quatt.check");
    EXPECT_EQ(json["version"], 1);
    EXPECT_EQ(json["rows"], 32);
    ASSERT_EQ(json["layers"].size(), 2u);
    for (const Json& layer : json["layers"]) {
        const std::string name = layer["layer"];
        EXPECT_EQ(layer["softmax_scale"]["value"], 0.125);
        EXPECT_EQ(layer["softmax_scale"]["source"], "metadata");
        EXPECT_EQ(layer["window"]["source"], "default");
        EXPECT_EQ(layer["rows_compared"], 32);
        EXPECT_EQ(layer["light_mass"].size(), 8u);
        ASSERT_EQ(layer["recipes"].size(), 3u);
        for (const Json& recipe : layer["recipes"]) {
            ASSERT_EQ(recipe["heads"].size(), 8u);
            double sum = 0.0;
            double worst = 0.0;
            double max_error = 0.0;
            for (const Json& head : recipe["heads"]) {
                sum += head["rel_l2"].get<double>();
                worst = std::max(worst, head["rel_l2"].get<double>());
                max_error = std::max(max_error, head["max_error"].get<double>());
            }
            EXPECT_NEAR(recipe["rel_l2"].get<double>(), sum / 8, 1e-12);
            EXPECT_EQ(recipe["worst_rel_l2"].get<double>(), worst);
            EXPECT_EQ(recipe["max_error"].get<double>(), max_error);
            EXPECT_EQ(recipe["heads"][recipe["worst_heads"][0].get<std::size_t>()]["rel_l2"],
                      worst);
            // Its row: layer, recipe, rel-L2, worst head, three heads, cosine, ...
            const std::regex row(name + " +" + recipe["recipe"].get<std::string>() +
                                 " +([^ ]+) +([^ ]+) +(\\d) (\\d) (\\d) +([^ ]+) +([^ ]+)");
            std::smatch cells;
            ASSERT_TRUE(std::regex_search(text, cells, row)) << text;
            EXPECT_NEAR(std::stod(cells[1]), recipe["rel_l2"].get<double>(), 6e-5);
            EXPECT_NEAR(std::stod(cells[2]), worst, 6e-5);
            EXPECT_EQ(std::stoul(cells[3]), recipe["worst_heads"][0].get<std::size_t>());
            EXPECT_EQ(std::stoul(cells[5]), recipe["worst_heads"][2].get<std::size_t>());
            EXPECT_NEAR(std::stod(cells[6]), recipe["cosine"].get<double>(), 6e-7);
            EXPECT_NEAR(std::stod(cells[7]), max_error, 6e-5);
        }
        EXPECT_NE(text.find(name + ": " + layer["recommendation"]["sentence"].get<std::string>()),
                  std::string::npos);
    }
}

// Numbers from the definitions, over all rows.
TEST_F(Check, NumbersAreThoseOfTheDefinitions) {
    Capture c;
    c.add_qkv("", {100, 4, 32}, 2);
    c.add_ints("cu_seqlens", {0, 61, 90});
    c.write(file("in"));
    const Json json = json_of({"check", file("in"), "--recipes", "int8_fp8", "--rows", "1000"});
    const Json& layer = json["layers"][0];
    EXPECT_EQ(layer["rows_compared"], 90);
    const auto [out_bytes, lse] = c.attention(problem_of("int8_fp8"), QUATT_F32, "cpu");
    const auto [ref_bytes, ref_lse] = c.attention(problem_of("bf16"), QUATT_F32, "reference");
    const std::vector<float> out = to_floats(Dtype::kF32, out_bytes);
    const std::vector<float> ref = to_floats(Dtype::kF32, ref_bytes);
    for (std::size_t h = 0; h < 4; ++h) {
        double error = 0.0;
        double dot = 0.0;
        double squares = 0.0;
        double ref_squares = 0.0;
        double max_error = 0.0;
        double lse_error = 0.0;
        for (std::size_t t = 0; t < 90; ++t) {
            for (std::size_t d = 0; d < 32; ++d) {
                const double x = out[(t * 4 + h) * 32 + d];
                const double y = ref[(t * 4 + h) * 32 + d];
                error += (x - y) * (x - y);
                dot += x * y;
                squares += x * x;
                ref_squares += y * y;
                max_error = std::max(max_error, std::fabs(x - y));
            }
            lse_error = std::max(
                lse_error, std::fabs(double{lse[h * 100 + t]} - double{ref_lse[h * 100 + t]}));
        }
        const Json& head = layer["recipes"][0]["heads"][h];
        EXPECT_NEAR(head["rel_l2"].get<double>(), std::sqrt(error / ref_squares), 1e-12);
        EXPECT_NEAR(head["cosine"].get<double>(), dot / std::sqrt(squares * ref_squares), 1e-12);
        EXPECT_EQ(head["max_error"].get<double>(), max_error);
        EXPECT_EQ(head["lse_error"].get<double>(), lse_error);
    }
}

// With one key and scores of 0, the output is its value.
TEST_F(Check, ExactArithmeticHasNoError) {
    Capture sample;
    sample.add_qkv("", {2, 30, 1, 16}, 1);
    const auto* bytes = static_cast<const std::byte*>(sample.tensor("v").data);
    Capture c;
    c.add("q", {2, 30, 2, 16}, std::vector<float>(1920), Dtype::kBf16);
    for (const char* name : {"k", "v"}) {
        c.add(name, Dtype::kBf16, {2, 30, 1, 16}, Bytes(bytes, bytes + 1920));
    }
    c.add_ints("kv_lens", {0, 1});  // no keys: all outputs 0, LSE -inf
    c.write(file("in"));
    const Json json =
        json_of({"check", file("in"), "--recipes", "bf16", "--causal", "--rows", "7"});
    const Json& layer = json["layers"][0];
    EXPECT_EQ(layer["rows_compared"], 14);
    EXPECT_EQ(layer["causal"]["source"], "flag");
    EXPECT_EQ(layer["recipes"][0]["worst_rel_l2"], 0.0);
    EXPECT_LT(layer["recipes"][0]["lse_error"].get<double>(), 1e-5);
    EXPECT_NEAR(layer["recipes"][0]["cosine"].get<double>(), 1.0, 1e-12);
    EXPECT_EQ(layer["recommendation"]["recipe"], "bf16");
}

TEST_F(Check, SameSeedSameNumbers) {
    const Args args = {"check",     kRealFile, "--layers", "layers.7",
                       "--recipes", "fp8",     "--rows",   "16"};
    const auto numbers = [&](const std::string& seed) {
        Args all = args;
        all.insert(all.end(), {"--seed", seed});
        return json_of(all)["layers"][0]["recipes"][0]["heads"];
    };
    const Json first = numbers("3");
    EXPECT_EQ(first, numbers("3"));
    EXPECT_NE(first, numbers("4"));
}

TEST_F(Check, RecommendsOnlyWhatTheDataSupports) {
    const auto recommended = [&](const std::string& recipes, const std::string& bound) {
        return json_of({"check", kRealFile, "--layers", "layers.0", "--rows", "16", "--recipes",
                        recipes, "--bound", bound})["layers"][0]["recommendation"];
    };
    EXPECT_EQ(recommended("bf16,int8_fp8,nvfp4", "10")["recipe"], "nvfp4");
    EXPECT_EQ(recommended("bf16,int8_fp8", "10")["recipe"], "int8_fp8");
    EXPECT_EQ(recommended("bf16,nvfp4", "0.05")["recipe"], "bf16");
    const Json none = recommended("nvfp4,fp8", "1e-6");
    EXPECT_TRUE(none["recipe"].is_null());
    EXPECT_NE(none["sentence"].get<std::string>().find("fp8 comes closest"), std::string::npos);
}

TEST_F(Check, NanIsReadableByPrograms) {
    Capture c;
    SampleSpec spec;
    spec.segment_tokens = {20};
    spec.heads_q = spec.heads_kv = 2;
    spec.head_dim = 16;
    Sample sample = make_sample(spec);
    sample.v[0] = std::nanf("");  // head 0
    c.add("q", {20, 2, 16}, sample.q);
    c.add("k", {20, 2, 16}, sample.k);
    c.add("v", {20, 2, 16}, sample.v);
    c.write(file("in"));
    const Json json = json_of({"check", file("in"), "--recipes", "bf16,fp8"});
    const Json& layer = json["layers"][0];
    for (const Json& recipe : layer["recipes"]) {
        EXPECT_EQ(recipe["rel_l2"], "NaN");
        EXPECT_EQ(recipe["worst_heads"][0], 0);
        EXPECT_EQ(recipe["heads"][0]["rel_l2"], "NaN");
        EXPECT_TRUE(recipe["heads"][1]["rel_l2"].is_number());
    }
    EXPECT_TRUE(layer["recommendation"]["recipe"].is_null());
    EXPECT_NE(succeed({"check", file("in")}).find("no recommendation"), std::string::npos);
}

// One query row that is not finite says nothing about the recipes.
TEST_F(Check, RowsWithoutAFiniteExactResultAreLeftOut) {
    SampleSpec spec;
    spec.segment_tokens = {40};
    spec.heads_q = 4;
    spec.heads_kv = 2;
    spec.head_dim = 16;
    Sample sample = make_sample(spec);
    const auto check = [&](const Args& more) {
        Capture c;
        c.add("q", {40, 4, 16}, sample.q, Dtype::kBf16);
        c.add("k", {40, 2, 16}, sample.k, Dtype::kBf16);
        c.add("v", {40, 2, 16}, sample.v, Dtype::kBf16);
        c.write(file("in"));
        Args args = {"check", file("in"), "--recipes", "bf16,fp8"};
        args.insert(args.end(), more.begin(), more.end());
        return json_of(args)["layers"][0];
    };
    const Json clean = check({});
    EXPECT_EQ(clean["rows_left_out"], Json({0, 0, 0, 0}));
    for (std::size_t c = 0; c < 16; ++c) {
        sample.q[(7 * 4 + 1) * 16 + c] = std::nanf("");  // token 7, head 1
        sample.q[(9 * 4 + 1) * 16 + c] = INFINITY;
    }
    const Json spoilt = check({});
    EXPECT_EQ(spoilt["rows_compared"], 40);
    EXPECT_EQ(spoilt["rows_left_out"], Json({0, 2, 0, 0}));
    EXPECT_EQ(spoilt["recommendation"]["recipe"], clean["recommendation"]["recipe"]);
    ASSERT_TRUE(spoilt["recommendation"]["recipe"].is_string());
    const std::string note =
        "left out of the comparison, because their exact result is not finite: 2 rows in 1 head";
    EXPECT_NE(std::ranges::find(spoilt["notes"], Json(note)), spoilt["notes"].end())
        << spoilt["notes"];
    EXPECT_NE(succeed({"check", file("in"), "--recipes", "bf16"}).find("note: " + note),
              std::string::npos);
    for (std::size_t r = 0; r < 2; ++r) {
        // Of bf16 nothing else changes in the other heads; of head 1 two rows are fewer.
        const Json& heads = spoilt["recipes"][r]["heads"];
        EXPECT_TRUE(heads[1]["rel_l2"].is_number()) << heads[1];
        EXPECT_TRUE(heads[1]["lse_error"].is_number()) << heads[1];
        std::int64_t rows = 0;
        for (const Json& count : spoilt["recipes"][r]["row_errors"]["counts"]) {
            rows += count.get<std::int64_t>();
        }
        EXPECT_EQ(rows, 4 * 40 - 2);
    }
    EXPECT_EQ(spoilt["recipes"][0]["heads"][3], clean["recipes"][0]["heads"][3]);
    EXPECT_TRUE(spoilt["light_mass"][1]["mean"].is_number());
    EXPECT_GT(spoilt["exact"]["rms"].get<double>(), 0.0);

    // A head of which nothing is left has no error, and the layer no recommendation.
    for (std::size_t t = 0; t < 40; ++t) {
        sample.q[(t * 4 + 2) * 16] = std::nanf("");
    }
    const Json none = check({});
    EXPECT_EQ(none["recipes"][0]["heads"][2]["rel_l2"], "NaN");
    EXPECT_TRUE(none["recommendation"]["recipe"].is_null());
    EXPECT_NE(none["recommendation"]["sentence"].get<std::string>().find(
                  "the exact result of head 2 is not finite in any row compared"),
              std::string::npos);
}

TEST_F(Check, SaysHowLargeTheExactResultsAre) {
    Capture c;
    c.add_qkv("", {50, 2, 16}, 1);
    c.write(file("in"));
    const Json exact =
        json_of({"check", file("in"), "--recipes", "bf16", "--rows", "50"})["layers"][0]["exact"];
    double squares = 0.0;
    double largest = 0.0;
    const Bytes bytes = c.attention(problem_of("bf16"), QUATT_F32, "reference").first;
    for (const float x : to_floats(Dtype::kF32, bytes)) {
        squares += double{x} * x;
        largest = std::max(largest, std::fabs(double{x}));
    }
    const double rms = std::sqrt(squares / (50 * 2 * 16));
    EXPECT_NEAR(exact["rms"].get<double>(), rms, 5e-5 * rms);
    EXPECT_NEAR(exact["largest"].get<double>(), largest, 5e-5 * largest);
}

TEST_F(Check, NamesEveryRecipeAndTheSourceOfTheBound) {
    const Args args = {
        "check",  kRealFile, "--layers",  "layers.0",
        "--rows", "8",       "--recipes", "bf16,f16,fp8,fp8_head,int8_fp8,nvfp4,nvfp4_fp8"};
    const Json usual = json_of(args);
    EXPECT_EQ(usual["bound"], 0.06);
    EXPECT_EQ(usual["bound_source"], "default");
    ASSERT_EQ(usual["layers"][0]["recipes"].size(), static_cast<std::size_t>(quatt_recipe_count()));
    for (const Json& recipe : usual["layers"][0]["recipes"]) {
        EXPECT_GT(recipe["about"].get<std::string>().size(), 20u) << recipe["recipe"];
    }
    Args own = args;
    own.insert(own.end(), {"--bound", "0.06"});
    EXPECT_EQ(json_of(own)["bound_source"], "flag");
}

TEST_F(Check, FindsLayersInNaturalOrder) {
    Capture c;
    for (const std::string prefix : {"b.10.", "b.9.", "", "a."}) {
        c.add_qkv(prefix, {6, 1, 16}, 1);
    }
    c.add("lonely.q", {1}, {0.0f});
    c.write(file("in"));
    std::vector<std::string> names;
    const Json json = json_of({"check", file("in"), "--recipes", "bf16"});
    for (const Json& layer : json["layers"]) {
        names.push_back(layer["layer"]);
    }
    EXPECT_EQ(names, (std::vector<std::string>{"", "a", "b.9", "b.10"}));
}

TEST_F(Check, NothingIsRecommendedWhereTheExactResultIsZero) {
    const auto sentence = [&](const Capture& c) {
        c.write(file("in"));
        const Json r = json_of({"check", file("in")})["layers"][0]["recommendation"];
        EXPECT_TRUE(r["recipe"].is_null());
        return r["sentence"].get<std::string>();
    };
    Capture zeros;
    for (const char* name : {"q", "k", "v"}) {
        zeros.add(name, {6, 1, 16}, std::vector<float>(96));
    }
    EXPECT_NE(sentence(zeros).find("nothing to compare"), std::string::npos);
    Capture no_keys;
    no_keys.add_qkv("", {1, 6, 1, 16}, 1);
    no_keys.add_ints("kv_lens", {0});
    EXPECT_NE(sentence(no_keys).find("nothing to compare"), std::string::npos);
}

TEST_F(Check, NamesInputsThatAreNotFinite) {
    for (const Dtype dtype : {Dtype::kF32, Dtype::kF16, Dtype::kBf16}) {
        Capture c;
        std::vector<float> q(20 * 2 * 16, 1.0f);
        const std::vector<float> k = q;
        std::vector<float> v = q;
        q[5] = -INFINITY;
        q[6] = q[7] = NAN;
        v[(3 * 2 + 1) * 16 + 2] = NAN;
        c.add("q", {20, 2, 16}, q, dtype);
        c.add("k", {20, 2, 16}, k, dtype);
        c.add("v", {20, 2, 16}, v, dtype);
        c.write(file("in"));
        const std::string check = succeed({"check", file("in"), "--recipes", "bf16"});
        const std::string attend =
            succeed({"attend", file("in"), "-o", file("out"), "--recipe", "bf16"});
        for (const std::string& text : {check, attend}) {
            EXPECT_NE(text.find("note: tensor 'q' holds 3 values that are not finite, first at "
                                "[0,0,5]\n"),
                      std::string::npos)
                << text;
            EXPECT_NE(text.find("note: tensor 'v' holds 1 value that is not finite, at [3,1,2]\n"),
                      std::string::npos)
                << text;
            EXPECT_EQ(text.find("tensor 'k'"), std::string::npos) << text;
        }
        EXPECT_NE(check.find("no recommendation"), std::string::npos);
        EXPECT_NE(check.find("The inputs are not finite"), std::string::npos);
    }
}

TEST_F(Check, NamesIncompleteLayers) {
    Capture c;
    c.add_qkv("a.", {6, 1, 16}, 1);
    c.add("b.q", {6, 1, 16}, std::vector<float>(96));
    c.add("b.k", {6, 1, 16}, std::vector<float>(96));
    c.write(file("in"));
    const std::string note = "left out, because tensors are missing: b (no b.v)";
    EXPECT_NE(succeed({"check", file("in")}).find("note: " + note + "\n"), std::string::npos);
    EXPECT_EQ(json_of({"check", file("in")})["notes"], Json({note}));
    EXPECT_EQ(json_of({"check", file("in"), "--layers", "a"})["notes"], Json::array());
    EXPECT_NE(succeed({"attend", file("in"), "-o", file("out"), "--recipe", "fp8"})
                  .find("note: " + note + "\n"),
              std::string::npos);
}

TEST_F(Check, LargeNumbersStayShort) {
    Capture large;
    for (const char* name : {"q", "k"}) {
        large.add(name, {6, 1, 16}, std::vector<float>(96, 1.0f));
    }
    large.add("v", {6, 1, 16}, std::vector<float>(96, 1.234e37f));
    large.write(file("in"));
    const std::string text = succeed({"check", file("in")});
    EXPECT_FALSE(std::regex_search(text, std::regex("[0-9]{12}"))) << text;
    EXPECT_TRUE(std::regex_search(text, std::regex("[0-9]e\\+3[0-9]"))) << text;
}

// The JSON, which is longer than the table, meets a limit of the size of files.
TEST_F(Check, TheTableIsShownThoughTheJsonCannotBeWritten) {
    rlimit before{};
    ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
    const rlimit small{12288, before.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
    const Outcome outcome = run({"check", kRealFile, "--rows", "8", "--recipes", "bf16,fp8,nvfp4",
                                 "--json", file("report.json")});
    ::setrlimit(RLIMIT_FSIZE, &before);
    EXPECT_EQ(outcome.status, 1);
    EXPECT_NE(outcome.err.find("report.json: cannot write the file"), std::string::npos)
        << outcome.err;
    EXPECT_NE(outcome.out.find("is the cheapest recipe"), std::string::npos) << outcome.out;
    EXPECT_NE(outcome.err.find("File too large"), std::string::npos) << outcome.err;
    EXPECT_FALSE(fs::exists(file("report.json")));
    expect_no_temporary_file();
}

TEST_F(Check, NothingToMeasureIsAFailure) {
    Capture c;
    c.add_qkv("", {6, 1, 16}, 1);
    c.add_ints("cu_seqlens", {0, 0});
    c.write(file("in"));
    fail({"check", file("in")}, 1, {"nothing to measure"});
}

// --- Layers that cannot be checked ---

TEST_F(Check, ALayerThatCannotBeCheckedDoesNotStopTheOthers) {
    Capture c;
    c.add_qkv("a.", {6, 1, 16}, 1);
    c.add("b.q", {4, 3, 8}, std::vector<float>(96));
    c.add("b.k", {4, 2, 8}, std::vector<float>(64));
    c.add("b.v", {4, 2, 8}, std::vector<float>(64));
    for (const char* name : {"c.q", "c.k", "c.v"}) {
        c.add(name, {4, 1, 300}, std::vector<float>(1200));
    }
    c.add_qkv("d.", {6, 1, 16}, 1);
    c.add("d.mask", {6, 6}, std::vector<float>(36));
    c.add_qkv("e.", {7, 2, 16}, 1);
    c.write(file("in"));
    const Outcome outcome = run({"check", file("in"), "--recipes", "bf16,fp8", "--json",
                                 file("report.json"), "--report", file("report.html")});
    EXPECT_EQ(outcome.status, 1);
    // Each reason is in the tables, on standard error and in the JSON.
    const Json json = Json::parse(read_text(file("report.json")));
    ASSERT_EQ(json["layers"].size(), 2u);
    EXPECT_EQ(json["layers"][0]["layer"], "a");
    EXPECT_EQ(json["layers"][1]["layer"], "e");
    const std::vector<std::pair<std::string, std::string>> wanted = {
        {"b", "q has 3 heads and k has 2"},
        {"c", "the head dim of q is 300"},
        {"d", "tensor 'd.mask' looks as if it changed the result"}};
    ASSERT_EQ(json["failed"].size(), wanted.size());
    for (std::size_t i = 0; i < wanted.size(); ++i) {
        const auto& [layer, reason] = wanted[i];
        EXPECT_EQ(json["failed"][i]["layer"], layer);
        bool found = false;
        for (const Json& text : json["failed"][i]["reasons"]) {
            found = found || text.get<std::string>().find(reason) != std::string::npos;
            EXPECT_EQ(text.get<std::string>().find(file("in")), std::string::npos) << text;
            EXPECT_NE(outcome.out.find(layer + ": not checked: " + text.get<std::string>()),
                      std::string::npos)
                << outcome.out;
        }
        EXPECT_TRUE(found) << json["failed"][i];
        EXPECT_NE(outcome.err.find("quatt: " + file("in") + ": layer " + layer + ": "),
                  std::string::npos)
            << outcome.err;
    }
    EXPECT_NE(outcome.out.find("e: fp8 is the cheapest"), std::string::npos) << outcome.out;
    EXPECT_NE(read_text(file("report.html")).find("not checked"), std::string::npos);
    // The same where the JSON is what is printed.
    const Outcome printed = run({"check", file("in"), "--recipes", "bf16", "--json", "-"});
    EXPECT_EQ(printed.status, 1);
    EXPECT_EQ(Json::parse(printed.out)["failed"], json["failed"]);
    // Asked for, a layer that is not there is a slip, and nothing is computed.
    fail({"check", file("in"), "--layers", "a,x"}, 1, {"no tensor 'x.q'"});
    // Where none is left, the reason of all stands once.
    fail({"check", file("in"), "--layers", "b,c"}, 1, {"layer b: ", "layer c: "});
    Capture all;
    all.add_qkv("a.", {6, 1, 16}, 1);
    all.add_qkv("b.", {6, 1, 16}, 1);
    all.add("mask", {6, 6}, std::vector<float>(36));
    all.write(file("in"));
    const Outcome masked = run({"check", file("in"), "--report", file("none.html")});
    EXPECT_EQ(masked.status, 1);
    EXPECT_EQ(masked.out, "");
    EXPECT_EQ(masked.err.find("quatt: " + file("in") + ": tensor 'mask'"), 0u) << masked.err;
    EXPECT_EQ(std::ranges::count(masked.err, '\n'), 1) << masked.err;
    EXPECT_FALSE(fs::exists(file("none.html")));
}

// --- What explains the errors ---

TEST(RowErrors, CountsEveryErrorOnce) {
    EXPECT_DOUBLE_EQ(RowErrors::edge(0), 1e-5);
    EXPECT_DOUBLE_EQ(RowErrors::edge(4), 1e-4);
    EXPECT_DOUBLE_EQ(RowErrors::edge(RowErrors::kEdges - 1), 10.0);
    const double nan = std::nan("");
    const RowErrors rows =
        RowErrors::of({0.0, 9e-6, 1.1e-5, 0.02, 0.02, 9.9, 11.0, INFINITY, nan, nan});
    EXPECT_EQ(rows.counts[0], 2);
    EXPECT_EQ(rows.counts[1], 1);
    EXPECT_EQ(rows.counts[14], 2);  // from 10^-1.75 = .0178 to 10^-1.5
    EXPECT_EQ(rows.counts[24], 1);
    EXPECT_EQ(rows.counts[25], 4);
    EXPECT_EQ(std::accumulate(rows.counts.begin(), rows.counts.end(), std::int64_t{0}), 10);
    EXPECT_EQ(rows.median, 0.02);
    EXPECT_TRUE(std::isnan(rows.p95));
    EXPECT_TRUE(std::isnan(rows.max));
    EXPECT_EQ(RowErrors::of({3.0}).median, 3.0);
    EXPECT_EQ(RowErrors::of({4.0, 1.0, 3.0, 2.0}).median, 2.0);
}

TEST_F(Check, RowErrorsAreThoseOfTheDefinition) {
    Capture c;
    c.add_qkv("", {70, 2, 16}, 1);
    c.write(file("in"));
    const Json json = json_of({"check", file("in"), "--recipes", "fp8", "--rows", "1000"});
    const std::vector<float> out =
        to_floats(Dtype::kF32, c.attention(problem_of("fp8"), QUATT_F32, "cpu").first);
    const std::vector<float> ref =
        to_floats(Dtype::kF32, c.attention(problem_of("bf16"), QUATT_F32, "reference").first);
    std::vector<double> errors;
    for (std::size_t row = 0; row < 140; ++row) {
        double error = 0.0;
        double square = 0.0;
        for (std::size_t i = row * 16; i < row * 16 + 16; ++i) {
            error += (double{out[i]} - ref[i]) * (double{out[i]} - ref[i]);
            square += double{ref[i]} * ref[i];
        }
        errors.push_back(std::sqrt(error / square));
    }
    const Json& rows = json["layers"][0]["recipes"][0]["row_errors"];
    ASSERT_EQ(json["row_error_edges"].size() + 1, rows["counts"].size());
    std::ranges::sort(errors);
    // Written with five digits: half a unit of the last is at most 5e-5 of the number.
    EXPECT_NEAR(rows["median"].get<double>(), errors[69], 5e-5 * errors[69]);
    EXPECT_NEAR(rows["p95"].get<double>(), errors[132], 5e-5 * errors[132]);
    EXPECT_NEAR(rows["max"].get<double>(), errors[139], 5e-5 * errors[139]);
    for (std::size_t i = 0; i < rows["counts"].size(); ++i) {
        const double from = i == 0 ? -1.0 : RowErrors::edge(i - 1);
        const double to = i == RowErrors::kEdges ? INFINITY : RowErrors::edge(i);
        EXPECT_EQ(rows["counts"][i],
                  std::ranges::count_if(errors, [&](double x) { return from <= x && x < to; }))
            << i;
    }
}

// Statistics of the inputs, from the definitions: segments, GQA, descales, and tokens that nothing
// attends to.
TEST_F(Check, InputStatisticsAreThoseOfTheDefinitions) {
    Capture c;
    c.add_qkv("", {2, 20, 4, 16}, 2, Dtype::kF8E4M3);
    c.add("q_descale", {2, 2}, {0.5f, 2.0f, 3.0f, 0.25f});
    c.add("k_descale", {1}, {0.125f});
    c.add("v_descale", {2}, {4.0f, 1.0f});
    c.add_ints("kv_lens", {20, 7});
    c.write(file("in"));
    const Json json = json_of({"check", file("in"), "--recipes", "fp8,bf16"});
    const Json& inputs = json["layers"][0]["inputs"];
    const auto descale = [](const std::string& name, std::size_t item, std::size_t head) {
        const std::array<double, 4> of_q = {0.5, 2.0, 3.0, 0.25};
        return name == "q"   ? of_q[item * 2 + head / 2]
               : name == "k" ? 0.125
                             : (head == 0 ? 4.0 : 1.0);
    };
    for (const std::string name : {"q", "k", "v"}) {
        const std::size_t heads = name == "q" ? 4 : 2;
        const auto* const bytes = static_cast<const std::byte*>(c.tensor(name).data);
        const std::vector<float> x =
            to_floats(Dtype::kF8E4M3, {bytes, std::size_t{2 * 20 * 16} * heads});
        const Json& stats = inputs[name];
        ASSERT_EQ(stats["min"].size(), heads);
        ASSERT_EQ(stats["channels"].size(), heads);
        for (std::size_t head = 0; head < heads; ++head) {
            double low = INFINITY;
            double high = -INFINITY;
            double power = 0.0;
            double mean_power = 0.0;
            std::vector<double> largest;
            const Json& channels = stats["channels"][head];
            EXPECT_EQ(channels["head"], head);
            for (std::size_t channel = 0; channel < 16; ++channel) {
                double sum = 0.0;
                double square = 0.0;
                double least = INFINITY;
                double most = -INFINITY;
                double count = 0.0;
                for (std::size_t item = 0; item < 2; ++item) {
                    for (std::size_t t = 0; t < (name == "q" || item == 0 ? 20u : 7u); ++t) {
                        const double value = x[((item * 20 + t) * heads + head) * 16 + channel] *
                                             descale(name, item, head);
                        sum += value;
                        square += value * value;
                        least = std::min(least, value);
                        most = std::max(most, value);
                        count += 1.0;
                    }
                }
                // Three digits of the channels.
                const double mean = sum / count;
                EXPECT_NEAR(channels["min"][channel].get<double>(), least, 6e-3 * std::fabs(least));
                EXPECT_NEAR(channels["max"][channel].get<double>(), most, 6e-3 * std::fabs(most));
                EXPECT_NEAR(channels["mean"][channel].get<double>(), mean,
                            6e-3 * std::fabs(mean) + 1e-6);
                low = std::min(low, least);
                high = std::max(high, most);
                power += square / count;
                mean_power += mean * mean;
                largest.push_back(std::max(std::fabs(least), std::fabs(most)));
            }
            std::ranges::sort(largest);
            // Five digits of the heads.
            const auto near = [&](const char* field, double wanted) {
                EXPECT_NEAR(stats[field][head].get<double>(), wanted, 1e-4 * std::fabs(wanted))
                    << name << " " << field << " " << head;
            };
            near("min", low);
            near("max", high);
            near("rms", std::sqrt(power / 16));
            near("mean_share", mean_power / power);
            near("outlier", largest[15] / largest[7]);
        }
    }
}

TEST_F(Check, ManyHeadsKeepTheChannelsOfAFew) {
    (void)succeed({"sample", "--kind", "gaussian", "--tokens", "16", "--heads", "66", "--heads-kv",
                   "33", "--head-dim", "16", "-o", file("in")});
    const Json layer = json_of({"check", file("in"), "--recipes", "bf16,fp8"})["layers"][0];
    std::vector<int> heads;
    for (const Json& entry : layer["inputs"]["q"]["channels"]) {
        heads.push_back(entry["head"]);
    }
    EXPECT_LE(heads.size(), 3u);
    for (const Json& recipe : layer["recipes"]) {
        const int worst = recipe["worst_heads"][0];
        EXPECT_NE(std::ranges::find(heads, worst), heads.end());
        bool found = false;
        for (const Json& entry : layer["inputs"]["v"]["channels"]) {
            found = found || entry["head"] == worst / 2;
        }
        EXPECT_TRUE(found);
    }
    EXPECT_EQ(layer["inputs"]["q"]["rms"].size(), 66u);
    EXPECT_EQ(layer["inputs"]["k"]["rms"].size(), 33u);
}

// --- The page ---

// What the browser reads as data.
Json data_of(const std::string& html) {
    const std::string tag = "<script type=\"application/json\" id=\"data\">";
    const auto begin = html.find(tag);
    EXPECT_NE(begin, std::string::npos);
    EXPECT_EQ(html.find(tag, begin + 1), std::string::npos);
    const auto end = html.find("</script>", begin);
    return Json::parse(html.substr(begin + tag.size(), end - begin - tag.size()));
}

// The same but for the digits.
void expect_rounded(const Json& shown, const Json& exact) {
    ASSERT_EQ(shown.type(), exact.type()) << shown << " / " << exact;
    if (exact.is_structured()) {
        ASSERT_EQ(shown.size(), exact.size());
        for (auto a = shown.begin(), b = exact.begin(); b != exact.end(); ++a, ++b) {
            expect_rounded(*a, *b);
        }
    } else if (exact.is_number_float()) {
        const double value = exact;
        EXPECT_NEAR(shown.get<double>(), value, 1e-5 * std::fabs(value));
    } else {
        EXPECT_EQ(shown, exact);
    }
}

TEST_F(Check, TheReportHoldsTheDataOfTheJson) {
    const std::string text =
        succeed({"check", kRealFile, "--rows", "16", "--recipes", "bf16,fp8", "--json",
                 file("report.json"), "--report", file("report.html")});
    const std::string html = read_text(file("report.html"));
    EXPECT_NE(text.find("wrote " + file("report.html") + " ("), std::string::npos) << text;
    EXPECT_LT(html.size(), 300'000u);
    EXPECT_EQ(html.find("@@"), std::string::npos);
    for (const std::string loader :
         {"src=", "url(", "@import", "http-equiv=\"refresh\"", "<link"}) {
        EXPECT_EQ(html.find(loader), std::string::npos) << loader;
    }
    const Json json = Json::parse(read_text(file("report.json")));
    expect_rounded(data_of(html), json);
    EXPECT_EQ(json["command"],
              Json({"quatt", "check", kRealFile, "--rows", "16", "--recipes", "bf16,fp8", "--json",
                    file("report.json"), "--report", file("report.html")}));
    EXPECT_GE(json["machine"]["cores"], 1);
    EXPECT_TRUE(std::regex_match(json["created"].get<std::string>(),
                                 std::regex("2[0-9]{3}-[0-9]{2}-[0-9]{2}T[0-9:]{8}Z")));
    // Without scripts, the tables.
    EXPECT_NE(html.find("layers.7: "), std::string::npos);
    EXPECT_NE(html.find("worst heads"), std::string::npos);
    // Beside the JSON on standard output, nothing else is said there.
    const Json printed = json_of(
        {"check", kRealFile, "--rows", "16", "--recipes", "bf16", "--report", file("report.html")});
    expect_rounded(data_of(read_text(file("report.html"))), printed);
}

TEST_F(Check, NamesInAReportAreText) {
    const std::vector<std::string> names = {"</script><script>alert(1)</script>",
                                            "<!--<script>",
                                            "\"><img src=x onerror=alert(2)>",
                                            "@@css@@",
                                            "\xff\xfe \x1b[31m",
                                            "]]>&lt;"};
    Capture c;
    for (const std::string& name : names) {
        if (name.find('\xff') == std::string::npos) {
            c.add_qkv(name + ".", {6, 1, 16}, 1);
        }
    }
    c.metadata["scale"] = "</script><script>alert(3)</script>";
    const std::string path = file("<script>alert(4)<");
    c.write(path);
    const Json json =
        json_of({"check", path, "--recipes", "bf16", "--report", file("report.html")});
    const std::string html = read_text(file("report.html"));
    expect_rounded(data_of(html), json);
    // Two scripts are ours: the data and the code.
    const std::regex script("<script");
    EXPECT_EQ(std::distance(std::sregex_iterator(html.begin(), html.end(), script),
                            std::sregex_iterator()),
              2);
    EXPECT_EQ(html.find("<img"), std::string::npos);
    EXPECT_EQ(html.find("<!--<"), std::string::npos);
    EXPECT_NE(html.find("&lt;script&gt;alert(1)&lt;/script&gt;"), std::string::npos);
}

TEST_F(Check, AReportThatCannotBeWrittenStopsBeforeTheWork) {
    Capture c;
    c.add_qkv("", {4, 1, 16}, 1);
    c.write(file("in"));
    const std::string before = read_text(file("in"));
    const std::string nowhere = file("no/such/directory/report.html");
    fail({"check", file("in"), "--report", nowhere}, 1, {nowhere, "No such file"});
    fail({"check", file("in"), "--layers", "x", "--report", nowhere}, 1, {nowhere});
    fail({"check", file("in"), "--report", "/dev/full"}, 1, {"not a regular file"});
    fail({"check", file("in"), "--report", directory_.path().string()}, 1, {"not a regular file"});
    fail({"check", file("in"), "--report", ""}, 2, {"--report is ''"});
    fail({"check", file("in"), "--report", "-"}, 2, {"--report is '-'"});
    fail({"check", file("in"), "--report", file("in")}, 2, {"is the input file"});
    fs::create_symlink(file("in"), file("link"));
    fail({"check", file("in"), "--report", file("link")}, 2, {"is the input file"});
    fail({"check", file("in"), "--json", file("both"), "--report", file("both")}, 2,
         {"--json and --report are both", "two files"});
    fail({"check", file("in"), "--json", file("both"), "--report", file("./both")}, 2, {"both"});
    EXPECT_EQ(read_text(file("in")), before);
    EXPECT_FALSE(fs::exists(file("both")));
    // An older report stays as it was until the new one is complete.
    write_text(file("report.html"), "older");
    fail({"check", file("in"), "--layers", "x", "--report", file("report.html")}, 1, {"x.q"});
    EXPECT_EQ(read_text(file("report.html")), "older");
    (void)succeed({"check", file("in"), "--recipes", "bf16", "--report", file("report.html")});
    EXPECT_EQ(read_text(file("report.html")).find("<!DOCTYPE html>"), 0u);
    for (const auto& entry : fs::directory_iterator(directory_.path())) {
        EXPECT_NE(entry.path().extension(), ".tmp") << entry.path();
    }
}

// --- sample -----------------------------------------------------------------------------------

TEST_F(Cli, SampleIsDeterministicAndComplete) {
    const auto make = [&](const std::string& name, Args more) {
        Args args = {"sample",     "--kind", "dit",        "--segments", "12,0,30", "--heads", "4",
                     "--heads-kv", "2",      "--head-dim", "24",         "-o",      file(name)};
        args.insert(args.end(), more.begin(), more.end());
        (void)succeed(args);
        return read_text(file(name));
    };
    const std::string first = make("a", {"--seed", "5"});
    EXPECT_EQ(first, make("b", {"--seed", "5"}));
    EXPECT_NE(first, make("c", {"--seed", "6"}));
    EXPECT_NE(first, make("d", {"--seed", "5", "--gain", "2"}));

    const SafetensorsFile sample(file("a"));
    EXPECT_EQ(sample.at("q").describe(), "BF16 [42, 4, 24]");
    EXPECT_EQ(sample.at("v").describe(), "BF16 [42, 2, 24]");
    EXPECT_EQ(sample.at("cu_seqlens").describe(), "I32 [4]");
    EXPECT_EQ(sample.metadata().at("kind"), "dit");
    EXPECT_EQ(sample.metadata().at("seed"), "5");
    EXPECT_EQ(sample.metadata().at("causal"), "false");
    EXPECT_TRUE(sample.metadata().contains("softmax_scale"));
}

TEST_F(Cli, SampleRefusesHeadsThatNoKernelTakes) {
    const auto sample = [&](const std::string& dim) {
        return Args{"sample", "--kind",     "gaussian", "--tokens", "2",           "--heads",
                    "1",      "--head-dim", dim,        "-o",       file("sample")};
    };
    for (const std::string dim : {"257", "300", "65536"}) {
        fail(sample(dim), 2, {"--head-dim is '" + dim + "'", "from 1 to 256"});
        EXPECT_FALSE(fs::exists(file("sample")));
    }
    (void)succeed(sample("256"));
    EXPECT_NE(succeed({"check", file("sample"), "--recipes", "bf16"}).find("bf16"),
              std::string::npos);
}

TEST_F(Cli, SampleTakesItsFlags) {
    (void)succeed({"sample", "--kind", "sink", "--tokens", "20", "--heads", "2", "--head-dim", "8",
                   "--sink-weight", "0.7", "--sink-position", "0", "--score-std", "0.2", "--dtype",
                   "f32", "-o", file("sink")});
    const SafetensorsFile sink(file("sink"));
    EXPECT_EQ(sink.at("q").describe(), "F32 [20, 2, 8]");
    EXPECT_EQ(sink.metadata().at("sink_weight"), "0.7");
    EXPECT_EQ(sink.metadata().at("score_std"), "0.2");
    (void)succeed({"sample", "--kind", "dit", "--tokens", "24", "--grid", "2,3,4", "--head-dim",
                   "12", "--k-mean-std", "3", "--v-mean-std", "0", "--dtype", "f16", "-o",
                   file("dit")});
    const SafetensorsFile dit(file("dit"));
    EXPECT_EQ(dit.at("k").describe(), "F16 [24, 8, 12]");
    EXPECT_EQ(dit.metadata().at("grid"), "2,3,4");
    EXPECT_EQ(dit.metadata().at("k_mean_std"), "3");
    (void)succeed({"sample", "--kind", "outlier", "--tokens", "24", "--outlier-gain", "7", "-o",
                   file("outlier")});
    EXPECT_EQ(SafetensorsFile(file("outlier")).metadata().at("outlier_gain"), "7");
}

// What `make demo` does, smaller.
TEST_F(Cli, ASampleCanBeCheckedAndAttended) {
    for (const std::string kind : {"gaussian", "dit", "outlier", "sink"}) {
        (void)succeed({"sample", "--kind", kind, "--tokens", "96", "--heads", "2", "--head-dim",
                       "32", "-o", file("s")});
        EXPECT_NE(succeed({"check", file("s"), "--rows", "16"}).find("(q, k, v)"),
                  std::string::npos);
        (void)succeed({"attend", file("s"), "-o", file("out"), "--recipe", "nvfp4"});
    }
}

// --- bench ------------------------------------------------------------------------------------

TEST_F(Cli, BenchTimesEveryRecipeOnEveryShape) {
    const Args args = {"bench",     "--shape",  "1x40x4x32", "--shape",  "2x16x4x8", "--heads-kv",
                       "2",         "--recipe", "f16",       "--recipe", "fp8",      "--causal",
                       "--threads", "1",        "--rounds",  "3",        "--warmup", "0"};
    Args to_file = args;
    to_file.insert(to_file.end(), {"--json", file("bench.json")});
    const std::string text = succeed(to_file);
    EXPECT_NE(text.find("wrote " + file("bench.json") + " ("), std::string::npos) << text;
    const Json written = Json::parse(read_text(file("bench.json")));
    Args printed = args;
    printed.insert(printed.end(), {"--json", "-", "--device", "emulate"});
    for (const Json& json : {written, Json::parse(succeed(printed))}) {
        EXPECT_EQ(json["schema"], "quatt.bench");
        EXPECT_EQ(json["rounds"], 3);
        ASSERT_EQ(json["results"].size(), 4u);
        for (const Json& r : json["results"]) {
            EXPECT_GT(r["lowest_ms"].get<double>(), 0);
            EXPECT_LE(r["lowest_ms"], r["q1_ms"]);
            EXPECT_LE(r["q1_ms"], r["median_ms"]);
            EXPECT_LE(r["median_ms"], r["q3_ms"]);
            EXPECT_GT(r["gflops"].get<double>(), 0);
            EXPECT_EQ(r["threads"], 1);
            EXPECT_EQ(r["heads_kv"], 2);
            EXPECT_EQ(r["runs"], 1);
            EXPECT_GT(r["rel_l2"].get<double>(), 0);
            EXPECT_LT(r["rel_l2"].get<double>(), r["recipe"] == "f16" ? 1e-3 : 0.1);
        }
        EXPECT_FALSE(json.contains("machine"));
        EXPECT_EQ(json["results"][0]["name"], "1x40x4x32 kv 2 causal f16");
        EXPECT_EQ(json["results"][3]["name"], "2x16x4x8 kv 2 causal fp8");
        EXPECT_EQ(json["results"][0]["flop"], 4.0 * 4 * 32 * 40 * 41 / 2);
    }
    // cpu_avx2 and others where the processor has the instructions.
    EXPECT_EQ(written["results"][0]["kernel"].get<std::string>().rfind("cpu", 0), 0u);
    for (const std::string word : {"1x40x4x32 kv 2 causal", "2x16x4x8", "fp8", "cpu", "3 rounds"}) {
        EXPECT_NE(text.find(word), std::string::npos) << text;
    }
}

TEST_F(Cli, BenchRefusesBeforeItMeasures) {
#if defined(QUATT_HAVE_CUDA)  // no machine has so many
    for (const std::string device : {"cuda:999", "emu:sm_120:999"}) {
        const Outcome outcome = run({"bench", "--device", device});
        EXPECT_EQ(outcome.status, 1);
        EXPECT_TRUE(std::regex_match(
            outcome.err, std::regex("quatt: (bench on a GPU needs an NVIDIA driver, and there is "
                                    "none here|bench on a GPU needs a driver for CUDA .*|"
                                    "bench on a GPU needs one; .*|GPU 999 is not here; .*)\n")))
            << outcome.err;
    }
#else
    fail({"bench", "--device", "cuda"}, 1, {"built with CUDA", "QUATT_CUDA=ON"});
    fail({"bench", "--device", "emu:sm_120"}, 1, {"built with CUDA"});
#endif
    for (const std::string device :
         {"cuda:", "cuda:x", "cuda:-1", "cuda:1:2", "cuda:99999999999"}) {
        fail({"bench", "--device", device}, 2, {"--device is '" + device + "'", "cuda[:N]"});
    }
    fail({"bench", "--shape", "1x16x6x8", "--heads-kv", "4"}, 1, {"1x16x6x8 kv 4, recipe bf16: "});
    fail({"bench", "--json", file("none/x.json")}, 1, {"none"});
    for (const std::string shape : {"", "1x2x3", "1x2x3x4x5", "1x0x3x4", "1x-2x3x4", "axbxcxd",
                                    "1000000x1000000x1000000x1000000", "1x2x3x4 "}) {
        fail({"bench", "--shape", shape}, 2, {"--shape is '" + shape + "'", "BxSxHxD"});
    }
    fail({"bench", "--recipe", "fp8", "--recipe", "fp9"}, 2, {"--recipe is 'fp9'", "nvfp4"});
    fail({"bench", "--rounds", "0"}, 2, {"--rounds is '0'"});
    fail({"bench", "--rounds", "3", "--rounds", "4"}, 2, {"--rounds is given 2 times"});
    fail({"bench", "--causal", "--compare", "a", "b"}, 2, {"--compare goes without --causal"});
    fail({"bench", "--compare", "a"}, 2, {"--compare"});
    fail({"bench", "--causal", "--peers", "--list"}, 2, {"--peers goes without --causal"});
}

TEST_F(Cli, BenchComparesTwoFiles) {
    const auto write = [&](const std::string& name, const std::string& device, double a, double b) {
        Json json = {{"schema", "quatt.bench"}, {"version", 1}, {"device", device}};
        const auto add = [&](const std::string& of, double ms) {
            json["results"].push_back(
                {{"name", of}, {"median_ms", ms}, {"q1_ms", ms - 0.1}, {"q3_ms", ms + 0.1}});
        };
        add("common", a);
        add("steady", 10);
        add("only " + name, b);
        write_text(file(name), json.dump());
        return file(name);
    };
    const std::string before = write("before", "cpu", 10, 1);
    const std::string same = succeed({"bench", "--compare", before, before});
    EXPECT_NE(same.find("0 slower, 0 faster, of 3"), std::string::npos) << same;

    const Outcome slower = run({"bench", "--compare", before, write("after", "cuda", 12, 1)});
    EXPECT_EQ(slower.status, 1);
    EXPECT_EQ(slower.err, "");
    for (const std::string text :
         {"SLOWER", "1.200", "1 slower, 0 faster, of 2", "only in the old file: only before",
          "only in the new file: only after", "is of cpu, the new one of cuda"}) {
        EXPECT_NE(slower.out.find(text), std::string::npos) << slower.out;
    }
    const std::string faster = succeed({"bench", "--compare", before, write("fast", "cpu", 8, 1)});
    EXPECT_NE(faster.find("0 slower, 1 faster, of 2"), std::string::npos) << faster;

    write_text(file("empty"), R"({"schema": "quatt.bench", "version": 1, "device": "cpu",)"
                              R"( "results": []})");
    fail({"bench", "--compare", before, file("empty")}, 1, {"no measurement in common"});
    fail({"bench", "--compare", before, file("none")}, 1, {"none: cannot be read"});
    fail({"bench", "--compare", before, kRealFile}, 1, {"is no measurement"});
}

TEST_F(Cli, BenchHandsOverToTheProgramForPeers) {
    const Outcome list = run({"bench", "--peers", "--list", "--shapes", "2048x56"});
    if (list.err.find("needs peers.py") != std::string::npos) {
        GTEST_SKIP() << "built outside of its source tree";
    }
    EXPECT_NE(list.out.find("shapes: 2048x56\n"), std::string::npos) << list.out << list.err;
    // Its own words, and its own exit status.
    const Outcome wrong = run({"bench", "--peers", "--shapes", "7x7"});
    EXPECT_EQ(wrong.status, 2);
    EXPECT_NE(wrong.err.find("--shapes 7x7"), std::string::npos) << wrong.err;

    const std::string path = std::getenv("PATH");
    ::setenv("PATH", file("").c_str(), 1);
    fail({"bench", "--peers", "--list"}, 1, {"python3", "PATH"});
    ::setenv("PATH", path.c_str(), 1);
}

// --- Texts made of the flags ------------------------------------------------------------------

// {command: flags}, as the helps name them; "" is the program itself.
class MadeOfFlags : public Cli {
protected:
    void SetUp() override {
        std::istringstream help(succeed({"--help"}));
        std::string line;
        while (std::getline(help, line) && line != "Commands:") {
        }
        while (std::getline(help, line) && !line.empty()) {
            const std::string command = line.substr(2, line.find(' ', 2) - 2);
            const std::string text = succeed({command, "--help"});
            // Flags stand behind two spaces, or behind a short name.
            const std::regex flag("(^|\n)  (-[a-z], )?(--[a-z-]+)");
            for (std::sregex_iterator i(text.begin(), text.end(), flag), end; i != end; ++i) {
                flags_[command].insert((*i)[3]);
            }
        }
        ASSERT_EQ(flags_.size(), 9u);
        ASSERT_TRUE(flags_["bench"].contains("--heads-kv"));
        ASSERT_TRUE(flags_["attend"].contains("--output"));
    }
    std::map<std::string, std::set<std::string>> flags_;
};

TEST_F(MadeOfFlags, CompletionKnowsEveryFlagOfEveryCommand) {
    for (const std::string shell : {"bash", "zsh", "fish"}) {
        const std::string script = succeed({"completion", shell});
        for (const auto& [command, flags] : flags_) {
            // The part of the script that is about this command.
            std::string part = script;
            if (shell != "fish") {
                const auto begin = script.find("\n        " + command + ")\n");
                ASSERT_NE(begin, std::string::npos) << shell << " " << command;
                const std::string end = shell == "bash" ? "esac ;;\n" : " ;;\n        ";
                part = script.substr(begin, script.find(end, begin) - begin);
            }
            for (const std::string& flag : flags) {
                const std::regex wanted(shell == "bash"  ? flag + "[ \"]"
                                        : shell == "zsh" ? "\\)?" + flag + "\\["
                                                         : "_from " + command + "'[^\n]* -l " +
                                                               flag.substr(2) + " ");
                EXPECT_TRUE(std::regex_search(part, wanted)) << shell << " " << command << flag;
            }
        }
    }
    fail({"completion", "csh"}, 2, {"'csh'", "bash, zsh, fish"});
    fail({"completion"}, 2, {"SHELL"});
}

// As bash calls it: COMP_WORDS, COMP_CWORD, and the program, the current and the previous word.
TEST_F(Cli, BashCompletes) {
    write_text(file("quatt.bash"), succeed({"completion", "bash"}));
    const auto complete = [&](const std::string& words) {
        write_text(file("try.sh"), "complete() { :; }\ncompopt() { echo FILES; }\nsource '" +
                                       file("quatt.bash") + "'\nCOMP_WORDS=(" + words +
                                       ")\nCOMP_CWORD=$((${#COMP_WORDS[@]} - 1))\n"
                                       "_quatt quatt \"${COMP_WORDS[-1]}\" \"${COMP_WORDS[-2]}\"\n"
                                       "echo \"${COMPREPLY[*]}\"\n");
        const std::string command = "bash '" + file("try.sh") + "' > '" + file("reply") + "' 2>&1";
        EXPECT_EQ(std::system(command.c_str()), 0);
        return read_text(file("reply"));
    };
    EXPECT_EQ(complete("quatt c"), "check completion\n");
    EXPECT_EQ(complete("quatt --v"), "--version\n");
    EXPECT_EQ(complete("quatt bench --he"), "--help --heads-kv\n");
    EXPECT_EQ(complete("quatt bench --recipe nv"), "nvfp4 nvfp4_fp8\n");
    EXPECT_EQ(complete("quatt bench --threads ''"), "\n");
    EXPECT_EQ(complete("quatt bench --json ''"), "FILES\n\n");
    EXPECT_EQ(complete("quatt attend in"), "FILES\n\n");
    EXPECT_EQ(complete("quatt attend --device s"), "simt:sm_90\n");
    EXPECT_EQ(complete("quatt attend --device ''"), "cpu reference emulate simt:sm_90\n");
    EXPECT_EQ(complete("quatt check --device ''"), "cpu emulate simt:sm_90\n");
    EXPECT_EQ(complete("quatt bench --device cu"), "cuda\n");
    EXPECT_EQ(complete("quatt sample --kind ''"), "gaussian dit outlier sink\n");
    EXPECT_EQ(complete("quatt sample --dtype ''"), "bf16 f16 f32\n");
    EXPECT_EQ(complete("quatt explain --dtype e"), "e4m3\n");
    EXPECT_EQ(complete("quatt explain --key-tile 1"), "128 192\n");
    EXPECT_EQ(complete("quatt attend --layout bh"), "bhsd\n");
    EXPECT_EQ(complete("quatt check --recipes nv"), "nvfp4 nvfp4_fp8\n");
    EXPECT_EQ(complete("quatt check --recipes bf16,nv"), "bf16,nvfp4 bf16,nvfp4_fp8\n");
    EXPECT_EQ(complete("quatt check --recipes nvfp4,nv"), "nvfp4,nvfp4_fp8\n");
    EXPECT_EQ(complete("quatt help ch"), "check\n");
    EXPECT_EQ(complete("quatt completion f"), "fish\n");
}

TEST_F(MadeOfFlags, TheManualNamesEveryFlagAndIsPlainRoff) {
    const std::string page = succeed({"man"});
    for (const auto& [command, flags] : flags_) {
        const auto begin = page.find(".SS \"quatt " + command + " ");
        ASSERT_NE(begin, std::string::npos) << command;
        const std::string part = page.substr(begin, page.find("\n.S", begin + 1) - begin);
        for (const std::string& flag : flags) {
            const std::string escaped = std::regex_replace(flag, std::regex("-"), "\\-");
            EXPECT_NE(part.find(escaped), std::string::npos) << command << " " << flag;
        }
    }
    std::istringstream lines(page);
    const std::regex request(R"(\.(\\"|TH|SH|SS|TP|PP|nf|fi)( .*)?)");
    for (std::string line; std::getline(lines, line);) {
        EXPECT_TRUE(line.empty() || line[0] != '.' || std::regex_match(line, request)) << line;
    }
}

}  // namespace
}  // namespace quatt::tools
