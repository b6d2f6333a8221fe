// Files while the program reads and writes them: other programs, signals, links and permissions.
#include <sys/resource.h>
#include <sys/stat.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <thread>

#include "cli_fixture.hpp"
#include "signals.hpp"

namespace quatt::tools {
namespace {

using namespace std::chrono_literals;

class CliFiles : public Cli {
protected:
    // In a child, as the program: its exit status, or 128 + the signal that ended it.
    int in_child(const std::function<void()>& body) {
        const pid_t child = ::fork();
        if (child == 0) {
            const int err = ::open(file("stderr").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
            ::dup2(err, STDERR_FILENO);
            const rlimit no_core{0, 0};
            ::setrlimit(RLIMIT_CORE, &no_core);
            prepare_signals();
            body();
            ::_exit(99);
        }
        int status = 0;
        ::waitpid(child, &status, 0);
        return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }

    // q, k and v of zeros, [tokens, 8, 64], which take no room on the disk.
    void write_sparse(const std::string& path, std::int64_t tokens) {
        const std::int64_t bytes = tokens * 8 * 64 * 2;
        std::string header = "{";
        for (int i = 0; i < 3; ++i) {
            header += (i > 0 ? ",\"" : "\"") + std::string(1, "qkv"[i]) +
                      R"(":{"dtype":"BF16","shape":[)" + std::to_string(tokens) +
                      R"(,8,64],"data_offsets":[)" + std::to_string(i * bytes) + "," +
                      std::to_string((i + 1) * bytes) + "]}";
        }
        header += "}";
        header.resize((header.size() + 63) / 64 * 64 - 8, ' ');
        std::string length(8, '\0');
        const std::uint64_t size = header.size();
        std::memcpy(length.data(), &size, 8);
        write_text(path, length + header);
        fs::resize_file(path, 8 + size + static_cast<std::uint64_t>(3 * bytes));
    }

    // Waits until it holds, or the child has ended.
    static bool wait_for(pid_t child, const std::function<bool()>& condition) {
        siginfo_t info{};
        while (::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
               info.si_pid == 0) {
            if (condition()) {
                return true;
            }
            std::this_thread::sleep_for(100us);
        }
        return false;
    }

    // Starts `attend` on the file in "in", and calls `change` once the file is mapped.
    Outcome attend_while(std::int64_t tokens, const std::function<void()>& change) {
        for (int attempt = 0; attempt < 5; ++attempt) {
            write_sparse(file("in"), tokens);
            const pid_t child = start({"attend", file("in"), "-o", file("out"), "--recipe", "fp8",
                                       "--device", "emulate", "--threads", "1"});
            const std::string maps = "/proc/" + std::to_string(child) + "/maps";
            const bool mapped = wait_for(
                child, [&] { return read_text(maps).find(file("in")) != std::string::npos; });
            if (mapped) {
                ::kill(child, SIGSTOP);
                change();
                ::kill(child, SIGCONT);
            }
            Outcome outcome = finish(child, true);
            if (mapped && outcome.status != 0) {
                return outcome;
            }
            fs::remove(file("out"));  // it had ended before
        }
        ADD_FAILURE() << "the program was always faster";
        return {};
    }
};

// --- Input ------------------------------------------------------------------------------------

TEST_F(CliFiles, AFileCutShortWhileItIsReadIsNamed) {
    const Outcome outcome = attend_while(16384, [&] { fs::resize_file(file("in"), 4096); });
    EXPECT_EQ(outcome.status, 1);
    EXPECT_EQ(outcome.out, "");
    EXPECT_EQ(outcome.err, "quatt: " + file("in") + ": the file was cut short while it was read\n");
    EXPECT_FALSE(fs::exists(file("out")));
    expect_no_temporary_file();
}

TEST_F(CliFiles, AFileWrittenToWhileItIsReadIsNamed) {
    const Outcome outcome = attend_while(512, [&] {
        std::fstream stream(file("in"), std::ios::in | std::ios::out | std::ios::binary);
        stream.seekp(-1, std::ios::end);
        stream.put('\1');
    });
    EXPECT_EQ(outcome.status, 1);
    EXPECT_EQ(outcome.err,
              "quatt: " + file("in") + ": the file was written to while it was read\n");
    EXPECT_FALSE(fs::exists(file("out")));
    expect_no_temporary_file();
}

TEST_F(CliFiles, AMappingBehindTheEndOfItsFileEndsTheProgram) {
    write_sparse(file("in"), 64);
    const auto read_all = [](const SafetensorsFile& input) {
        unsigned sum = 0;
        for (const std::byte b : input.at("v").bytes) {
            sum += static_cast<unsigned>(b);
        }
        return static_cast<int>(sum);
    };
    // With a file that is being written, moved on the way, and among others.
    EXPECT_EQ(in_child([&] {
                  SafetensorsFile first(file("in"));
                  const SafetensorsFile input(std::move(first));
                  write_sparse(file("other"), 64);
                  const SafetensorsFile other(file("other"));
                  ::close(create_unfinished(file("unfinished")));
                  fs::resize_file(file("in"), 4096);
                  ::_exit(read_all(other) + read_all(input));
              }),
              1);
    EXPECT_EQ(read_text(file("stderr")),
              "quatt: " + file("in") + ": the file was cut short while it was read\n");
    EXPECT_FALSE(fs::exists(file("unfinished")));
    // Any other such fault is what it always was.
    EXPECT_EQ(in_child([] { std::raise(SIGBUS); }), 128 + SIGBUS);
}

// --- Output and signals -----------------------------------------------------------------------

const std::vector<int> kEnding = {SIGINT,  SIGTERM, SIGHUP,  SIGQUIT,
                                  SIGALRM, SIGUSR1, SIGUSR2, SIGXCPU};

TEST_F(CliFiles, ASignalLeavesNoUnfinishedFile) {
    for (const int signal : kEnding) {
        EXPECT_EQ(in_child([&] {
                      ::close(create_unfinished(file("unfinished")));
                      if (!fs::exists(file("unfinished"))) {
                          ::_exit(98);
                      }
                      std::raise(signal);
                  }),
                  128 + signal);
        EXPECT_FALSE(fs::exists(file("unfinished"))) << signal;
        // What is finished is no business of a signal's.
        EXPECT_EQ(in_child([&] {
                      ::close(create_unfinished(file("finished")));
                      forget_unfinished();
                      std::raise(signal);
                  }),
                  128 + signal);
        EXPECT_TRUE(fs::remove(file("finished"))) << signal;
    }
}

TEST_F(CliFiles, WhatWasIgnoredStaysIgnored) {
    std::signal(SIGHUP, SIG_IGN);
    EXPECT_EQ(in_child([&] {
                  ::close(create_unfinished(file("unfinished")));
                  std::raise(SIGHUP);
                  ::_exit(fs::exists(file("unfinished")) ? 7 : 8);
              }),
              7);
    std::signal(SIGHUP, SIG_DFL);
}

TEST_F(CliFiles, ASignalWhileAnOutputIsWrittenLeavesNothing) {
    // A large output of little work: no row has more than a few keys.
    constexpr std::int64_t kTokens = 16'000;
    write_sparse(file("in"), kTokens);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) {
        bool ended = false;
        for (int attempt = 0; attempt < 10 && !ended; ++attempt) {
            const pid_t child = start({"attend", file("in"), "-o", file("out"), "--recipe", "bf16",
                                       "--window", "2,0", "--threads", "1"});
            (void)wait_for(child, [&] {
                // Not the empty one that is made and removed before the work.
                std::error_code gone;
                for (const auto& entry : fs::directory_iterator(directory_.path())) {
                    if (entry.path().extension() == ".tmp" && entry.file_size(gone) > 0 && !gone) {
                        return true;
                    }
                }
                return false;
            });
            ::kill(child, signal);
            const Outcome outcome = finish(child, true);
            ended = outcome.status == 128 + signal;
            EXPECT_TRUE(ended || outcome.status == 0) << outcome.status << outcome.err;
            EXPECT_NE(fs::exists(file("out")), ended);
            expect_no_temporary_file();
            fs::remove(file("out"));
        }
        EXPECT_TRUE(ended) << signal;
    }
}

TEST_F(CliFiles, TheLimitOnTheSizeOfFilesIsAFailureOfTheWrite) {
    write_sparse(file("in"), 1024);
    write_text(file("out"), "older");
    rlimit before{};
    ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
    const rlimit small{12288, before.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
    const Outcome attend = run({"attend", file("in"), "-o", file("out"), "--recipe", "bf16"});
    const Outcome sample = run({"sample", "--kind", "gaussian", "--tokens", "99", "-o", file("s")});
    ::setrlimit(RLIMIT_FSIZE, &before);
    for (const Outcome& outcome : {attend, sample}) {
        EXPECT_EQ(outcome.status, 1);
        EXPECT_NE(outcome.err.find("cannot write the file: File too large"), std::string::npos)
            << outcome.err;
    }
    EXPECT_EQ(read_text(file("out")), "older");
    EXPECT_FALSE(fs::exists(file("s")));
    expect_no_temporary_file();
}

// Nobody reads the table; the JSON is written all the same.
TEST_F(CliFiles, AClosedPipeDoesNotStopTheFiles) {
    Capture c;
    c.add_qkv("", {8, 2, 16}, 2);
    c.write(file("in"));
    int ends[2];
    ASSERT_EQ(::pipe(ends), 0);
    ::close(ends[0]);
    const Outcome outcome = spawn({"check", file("in"), "--recipes", "bf16", "--json", file("json"),
                                   "--report", file("report")},
                                  ends[1], false);
    EXPECT_EQ(outcome.status, 128 + SIGPIPE);
    EXPECT_EQ(outcome.err, "");
    EXPECT_EQ(Json::parse(read_text(file("json")))["schema"], "quatt.check");
    EXPECT_NE(read_text(file("report")).find("</html>"), std::string::npos);
}

// --- Names of outputs -------------------------------------------------------------------------

// Every way to write a file, into this one.
std::vector<Args> writers(const std::string& in, const std::string& out) {
    return {{"attend", in, "-o", out, "--recipe", "bf16"},
            {"check", in, "--recipes", "bf16", "--json", out},
            {"check", in, "--recipes", "bf16", "--report", out},
            {"sample", "--kind", "gaussian", "--tokens", "8", "--head-dim", "16", "-o", out},
            {"bench", "--shape", "1x8x1x16", "--recipe", "bf16", "--rounds", "1", "--json", out}};
}

class Outputs : public CliFiles {
protected:
    void SetUp() override {
        Capture c;
        c.add_qkv("", {8, 2, 16}, 2);
        c.write(file("in"));
        fs::create_directory(file("other"));
    }
};

TEST_F(Outputs, ALinkStaysWhetherItsTargetExistsOrNot) {
    fs::create_symlink("target", file("link"));
    fs::create_symlink("../link", file("other/second"));
    fs::create_symlink(file("other/second"), file("third"));
    for (const std::string name : {"link", "other/second", "third"}) {
        for (const Args& args : writers(file("in"), file(name))) {
            fs::remove(file("target"));
            (void)succeed(args);
            EXPECT_TRUE(fs::is_symlink(file(name))) << args[0];
            EXPECT_TRUE(fs::is_regular_file(fs::symlink_status(file("target")))) << args[0];
            (void)succeed(args);  // it exists now
            EXPECT_TRUE(fs::is_symlink(file(name))) << args[0];
        }
    }
    fs::remove(file("target"));
    fs::create_symlink("none/target", file("nowhere"));
    fs::create_symlink("loop", file("loop"));
    for (const std::string name : {"nowhere", "loop"}) {
        for (const Args& args : writers(file("in"), file(name))) {
            fail(args, 1, {file(name)});
            EXPECT_TRUE(fs::is_symlink(file(name))) << args[0];
        }
    }
    fail({"check", file("in"), "--json", file("third"), "--report", file("target")}, 2,
         {"--json and --report are both"});
    expect_no_temporary_file();
}

TEST_F(Outputs, WhatIsProtectedIsReplacedByForceOnly) {
    for (const mode_t mode : {0400u, 0444u}) {
        for (Args args : writers(file("in"), file("out"))) {
            write_text(file("out"), "older");
            ::chmod(file("out").c_str(), mode);
            fail(args, 1, {file("out") + ": is write-protected; --force replaces it"});
            EXPECT_EQ(read_text(file("out")), "older");
            args.emplace_back("--force");
            (void)succeed(args);
            EXPECT_NE(read_text(file("out")), "older");
            struct stat info {};
            ASSERT_EQ(::stat(file("out").c_str(), &info), 0);
            EXPECT_EQ(info.st_mode & 0777, mode);
            fs::remove(file("out"));
        }
    }
    expect_no_temporary_file();
}

TEST_F(Outputs, AnotherUsersFileIsReplacedByForceOnly) {
    if (::geteuid() != 0) {
        GTEST_SKIP() << "only root can make another user's file";
    }
    for (Args args : writers(file("in"), file("out"))) {
        write_text(file("out"), "older");
        ::chmod(file("out").c_str(), 0666);
        ASSERT_EQ(::chown(file("out").c_str(), 1234, 1234), 0);
        fail(args, 1, {file("out") + ": belongs to another user; --force replaces it"});
        EXPECT_EQ(read_text(file("out")), "older");
        args.emplace_back("--force");
        (void)succeed(args);
        EXPECT_NE(read_text(file("out")), "older");
        fs::remove(file("out"));
    }
}

TEST_F(Outputs, ADashIsNoFile) {
    const fs::path before = fs::current_path();
    fs::current_path(directory_.path());
    for (const Args& args : writers("in", "-")) {
        if (args[args.size() - 2] == "--json") {
            EXPECT_EQ(Json::parse(succeed(args))["version"], 1);
        } else {
            const std::string flag = args[0] == "check" ? "--report" : "--output";
            fail(args, 2, {flag + " is '-'; allowed is the name of a file"});
        }
    }
    EXPECT_FALSE(fs::exists("-"));
    (void)succeed({"sample", "--kind", "gaussian", "--tokens", "8", "-o", "./-"});
    EXPECT_TRUE(fs::exists("-"));
    fs::current_path(before);
}

}  // namespace
}  // namespace quatt::tools
