#include "bench.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "temporary_directory.hpp"

namespace quatt::tools {
namespace {

TEST(Bench, QuartilesLieBetweenTheTimes) {
    const Spread five = spread_of({5, 1, 3, 2, 4});
    EXPECT_EQ(five.median, 3);
    EXPECT_EQ(five.q1, 2);
    EXPECT_EQ(five.q3, 4);
    EXPECT_EQ(five.lowest, 1);
    const Spread two = spread_of({2, 1});
    EXPECT_EQ(two.median, 1.5);
    EXPECT_EQ(two.q1, 1.25);
    EXPECT_EQ(two.q3, 1.75);
    const Spread one = spread_of({7});
    EXPECT_EQ(one.median, 7);
    EXPECT_EQ(one.q1, 7);
    EXPECT_EQ(one.q3, 7);
}

TEST(Bench, WorkAndTitleOfAShape) {
    BenchResult r;
    r.shape = {2, 100, 8, 64};
    r.heads_kv = 8;
    EXPECT_EQ(r.title(), "2x100x8x64");
    EXPECT_EQ(r.flop(), 4.0 * 2 * 8 * 64 * 100 * 100);
    r.ms.median = 0.5;
    EXPECT_DOUBLE_EQ(r.gflops(), r.flop() / 0.5e-3 / 1e9);
    r.heads_kv = 2;
    r.causal = true;
    EXPECT_EQ(r.title(), "2x100x8x64 kv 2 causal");
    EXPECT_EQ(r.flop(), 4.0 * 2 * 8 * 64 * 5050);
}

TEST(Bench, AChangeIsBeyondTwoPercentAndTheQuartilesOfBoth) {
    const auto at = [](double median, double spread) {
        return Timing{"", median, median - spread / 2, median + spread / 2};
    };
    struct Case {
        Timing before, after;
        Change change;
    };
    for (const Case& c : {Case{at(100, 0), at(101.9, 0), Change::kNone},
                          {at(100, 0), at(102.1, 0), Change::kSlower},
                          {at(100, 0), at(97.9, 0), Change::kFaster},
                          {at(100, 0), at(98.1, 0), Change::kNone},
                          {at(100, 5), at(104.9, 0), Change::kNone},
                          {at(100, 0), at(104.9, 5), Change::kNone},
                          {at(100, 4), at(105.1, 5), Change::kSlower},
                          {at(100, 5), at(94.9, 4), Change::kFaster}}) {
        EXPECT_EQ(change_of(c.before, c.after), c.change)
            << c.before.median << " to " << c.after.median;
    }
}

class BenchFiles : public testing::Test {
protected:
    [[nodiscard]] std::string write(const std::string& text) const {
        std::ofstream(directory_.file("t.json"), std::ios::binary) << text;
        return directory_.file("t.json");
    }
    TemporaryDirectory directory_;
};

TEST_F(BenchFiles, WhatWasWrittenIsRead) {
    BenchResult r;
    r.shape = {1, 64, 2, 32};
    r.heads_kv = 1;
    r.recipe = "fp8";
    r.kernel = "cpu";
    r.ms = {2, 1.5, 2.5, 1};
    const Timings timings = read_timings(write(bench_json({r, r}, {}, "")));
    EXPECT_EQ(timings.where, "cpu");
    ASSERT_EQ(timings.rows.size(), 2u);
    EXPECT_EQ(timings.rows[0].name, "1x64x2x32 kv 1 fp8");
    EXPECT_EQ(timings.rows[0].median, 2);
    EXPECT_EQ(timings.rows[0].q1, 1.5);
    EXPECT_EQ(timings.rows[0].q3, 2.5);

    BenchOptions on_gpu;
    on_gpu.device = "cuda:1";
    EXPECT_EQ(read_timings(write(bench_json({r}, on_gpu, "a GPU"))).where, "cuda:1, a GPU");
}

TEST_F(BenchFiles, PeersAreReadByShapeCandidateAndWhatWasTimed) {
    const Timings timings =
        read_timings(write(R"({"schema": "quatt.peers", "version": 1, "machine": {"gpu": "a GPU"},
                  "shapes": [{"name": "1024x8", "candidates": {
                      "FA3 FP8": {"call_ms": {"median": 3, "q1": 2, "q3": 4}},
                      "quatt fp8": {"call_ms": {"median": 2, "q1": 2, "q3": 2},
                                    "kernel_ms": {"median": 1, "q1": 1, "q3": 1}}}}]})"));
    EXPECT_EQ(timings.where, "a GPU");
    ASSERT_EQ(timings.rows.size(), 3u);
    EXPECT_EQ(timings.rows[0].name, "1024x8 FA3 FP8, call");
    EXPECT_EQ(timings.rows[2].name, "1024x8 quatt fp8, kernel");
    EXPECT_EQ(timings.rows[2].median, 1);
}

TEST_F(BenchFiles, OtherFilesAreRefusedByName) {
    for (
        const std::string text :
        {"", "[", "[]", "7", R"({"version": 1})", R"({"schema": 1, "version": 1})",
         R"({"schema": "quatt.check", "version": 1})", R"({"schema": "quatt.bench", "version": 2})",
         R"({"schema": "quatt.bench", "version": 1})",
         R"({"schema": "quatt.bench", "version": 1, "device": "cpu", "results": [{"name": 1}]})",
         R"({"schema": "quatt.bench", "version": 1, "device": "cuda", "machine": {}, "results": []})",
         R"({"schema": "quatt.peers", "version": 1, "machine": {}, "shapes": []})"}) {
        try {
            (void)read_timings(write(text));
            ADD_FAILURE() << text;
        } catch (const Error& error) {
            EXPECT_NE(std::string(error.what()).find("t.json: "), std::string::npos) << text;
        }
    }
    EXPECT_THROW((void)read_timings(directory_.file("none.json")), Error);
}

}  // namespace
}  // namespace quatt::tools
