// The program as a user meets it: a child process, its texts, its exit status and its files.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <quatt/attention.hpp>
#include <span>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "elements.hpp"
#include "safetensors.hpp"
#include "sample.hpp"
#include "temporary_directory.hpp"

namespace quatt::tools {

namespace fs = std::filesystem;

using Json = nlohmann::json;
using Bytes = std::vector<std::byte>;
using Args = std::vector<std::string>;

inline const std::string kRealFile =
    std::string(QUATT_TEST_DATA_DIR) + "/antibody_bert_packed.safetensors";

inline std::string read_text(const std::string& path) {
    std::ifstream stream(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), {}};
}

inline void write_text(const std::string& path, const std::string& text) {
    std::ofstream(path, std::ios::binary) << text;
}

struct Outcome {
    int status = -1;  // 128 + signal where one ended it
    std::string out;
    std::string err;
};

class Cli : public testing::Test {
protected:
    // `out`: a path to open as standard output, or "" for a file that is read back.
    Outcome run(const Args& args, const std::string& out = "") {
        const std::string out_path = out.empty() ? file("stdout") : out;
        return spawn(args, ::open(out_path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600),
                     out.empty());
    }

    Outcome spawn(const Args& args, int out_fd, bool read_out, bool ignores_closed_pipe = false) {
        return finish(start(args, out_fd, ignores_closed_pipe), read_out);
    }

    // The child runs on; finish() waits for it.
    pid_t start(const Args& args, int out_fd, bool ignores_closed_pipe = false) {
        const int err_fd = ::open(file("stderr").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
        Args all = {QUATT_CLI};
        all.insert(all.end(), args.begin(), args.end());
        std::vector<char*> argv;
        for (std::string& arg : all) {
            argv.push_back(arg.data());
        }
        argv.push_back(nullptr);
        const pid_t child = ::fork();
        if (child == 0) {
            std::signal(SIGPIPE, ignores_closed_pipe ? SIG_IGN : SIG_DFL);
            ::dup2(out_fd, STDOUT_FILENO);
            ::dup2(err_fd, STDERR_FILENO);
            ::execv(argv[0], argv.data());
            ::_exit(127);
        }
        ::close(out_fd);
        ::close(err_fd);
        return child;
    }
    Outcome finish(pid_t child, bool read_out) {
        int status = 0;
        ::waitpid(child, &status, 0);
        Outcome outcome;
        outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        outcome.out = read_out ? read_text(file("stdout")) : "";
        outcome.err = read_text(file("stderr"));
        return outcome;
    }
    // With its standard output in the file "stdout".
    pid_t start(const Args& args) {
        return start(args, ::open(file("stdout").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600));
    }

    // Succeeds, and says nothing on standard error.
    std::string succeed(const Args& args) {
        const Outcome outcome = run(args);
        EXPECT_EQ(outcome.status, 0) << testing::PrintToString(args) << outcome.err;
        EXPECT_EQ(outcome.err, "") << testing::PrintToString(args);
        return outcome.out;
    }

    // Fails with this status, and with these texts in messages of the right form only.
    void fail(const Args& args, int status, const std::vector<std::string>& texts) {
        const Outcome outcome = run(args);
        EXPECT_EQ(outcome.status, status) << testing::PrintToString(args);
        EXPECT_EQ(outcome.out, "") << testing::PrintToString(args);
        EXPECT_FALSE(outcome.err.empty()) << testing::PrintToString(args);
        std::istringstream lines(outcome.err);
        for (std::string line; std::getline(lines, line);) {
            EXPECT_EQ(line.rfind("quatt: ", 0), 0u) << line;
        }
        for (const std::string& text : texts) {
            EXPECT_NE(outcome.err.find(text), std::string::npos)
                << testing::PrintToString(args) << "\nsays: " << outcome.err << "wanted: " << text;
        }
    }

    [[nodiscard]] std::string file(const std::string& name) const { return directory_.file(name); }

    // No file that is written beside the one that it becomes.
    void expect_no_temporary_file() const {
        for (const auto& entry : fs::directory_iterator(directory_.path())) {
            EXPECT_NE(entry.path().extension(), ".tmp") << entry.path();
        }
    }

    TemporaryDirectory directory_;
};

// --- Inputs -----------------------------------------------------------------------------------

inline quatt_dtype type_of(Dtype dtype) {
    return dtype == Dtype::kI32 ? QUATT_I32 : library_dtype(dtype).value();
}

// Tensors to write and to hand to the library.
class Capture {
public:
    void add(const std::string& name, Dtype dtype, std::vector<std::int64_t> shape, Bytes bytes) {
        data_.push_back(std::make_unique<Bytes>(std::move(bytes)));
        views_.push_back({name, dtype, std::move(shape), *data_.back()});
    }
    void add(const std::string& name, std::vector<std::int64_t> shape,
             const std::vector<float>& values, Dtype dtype = Dtype::kF32) {
        add(name, dtype, std::move(shape), from_floats(dtype, values));
    }
    void add_ints(const std::string& name, const std::vector<std::int32_t>& values) {
        const auto bytes = std::as_bytes(std::span(values));
        add(name, Dtype::kI32, {static_cast<std::int64_t>(values.size())},
            {bytes.begin(), bytes.end()});
    }
    // Random q, k and v.
    void add_qkv(const std::string& prefix, std::vector<std::int64_t> shape, std::int64_t heads_kv,
                 Dtype dtype = Dtype::kBf16, std::uint64_t seed = 1) {
        SampleSpec spec;
        const std::size_t heads = shape.size() - 2;
        spec.segment_tokens = {shape.size() == 4 ? shape[0] * shape[1] : shape[0]};
        spec.heads_q = shape[heads];
        spec.heads_kv = heads_kv;
        spec.head_dim = shape.back();
        spec.seed = seed;
        const Sample sample = make_sample(spec);
        add(prefix + "q", shape, sample.q, dtype);
        shape[heads] = heads_kv;
        add(prefix + "k", shape, sample.k, dtype);
        add(prefix + "v", shape, sample.v, dtype);
    }
    void write(const std::string& path) const { write_safetensors(path, views_, metadata); }

    [[nodiscard]] quatt_tensor tensor(const std::string& name) const {
        for (const TensorView& view : views_) {
            if (view.name == name) {
                return quatt_tensor_contiguous(
                    const_cast<std::byte*>(view.bytes.data()), type_of(view.dtype),
                    static_cast<std::int32_t>(view.shape.size()), view.shape.data());
            }
        }
        return {};
    }

    // What the library itself computes. The result's bytes, then those of lse.
    [[nodiscard]] std::pair<Bytes, std::vector<float>> attention(Problem problem,
                                                                 quatt_dtype out_dtype,
                                                                 const Device& device) const {
        quatt_tensors& t = problem.tensors;
        t.q = tensor("q");
        t.k = tensor("k");
        t.v = tensor("v");
        t.cu_seqlens_q =
            tensor(tensor("cu_seqlens").dtype != QUATT_NONE ? "cu_seqlens" : "cu_seqlens_q");
        t.cu_seqlens_k = tensor("cu_seqlens_k");
        t.kv_lens = tensor("kv_lens");
        t.q_descale = tensor("q_descale");
        t.k_descale = tensor("k_descale");
        t.v_descale = tensor("v_descale");
        t.sink = tensor("sink");
        const Tensor q = t.q;
        Bytes out(static_cast<std::size_t>(q.size()) * quatt_dtype_bytes(out_dtype));
        t.out = quatt_tensor_contiguous(out.data(), out_dtype, q.rank, q.extent);
        std::vector<float> lse(static_cast<std::size_t>(q.size() / q.extent[q.rank - 1]));
        const std::int64_t rows[] = {q.extent[0], q.extent[q.rank - 2], q.extent[q.rank - 3]};
        t.lse = quatt_tensor_contiguous(lse.data(), QUATT_F32, q.rank - 1,
                                        q.rank == 4 ? rows : rows + 1);
        if (problem.softmax_scale == 0.0f) {
            problem.softmax_scale = 1.0f / std::sqrt(static_cast<float>(q.extent[q.rank - 1]));
        }
        problem.zero_tail = 1;
        quatt::attention(problem, device);
        return {out, lse};
    }

    Metadata metadata;

private:
    std::vector<std::unique_ptr<Bytes>> data_;
    std::vector<TensorView> views_;
};

inline Problem problem_of(const std::string& recipe) {
    Problem problem;
    problem.recipe = Recipe(recipe);
    return problem;
}

inline void expect_same(const std::string& path,
                        const std::pair<Bytes, std::vector<float>>& wanted) {
    const SafetensorsFile file(path);
    const TensorView& out = file.at("out");
    EXPECT_TRUE(std::ranges::equal(out.bytes, wanted.first));
    const TensorView& lse = file.at("lse");
    EXPECT_TRUE(std::ranges::equal(lse.bytes, std::as_bytes(std::span(wanted.second))));
}

}  // namespace quatt::tools
