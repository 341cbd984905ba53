#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "bluefog_cpp/error.hpp"
#include "examples/train_images/metrics_file.hpp"
#include "examples/train_images/peak_memory.hpp"
#include "examples/train_images/progress.hpp"
#include "examples/train_images/throughput.hpp"
#include "tests/support/error_of.hpp"
#include "tests/unit/examples/temporary_folder.hpp"

namespace bluefog::examples {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Seconds = std::chrono::duration<double>;

TEST(ThroughputTest, WarmUpWindowAndUnfinishedWindowDoNotCount) {
  Throughput throughput(2);
  EXPECT_THAT(throughput.window_rates(), IsEmpty());
  throughput.add_step(10, Seconds(5.0));
  EXPECT_THAT(throughput.window_rates(), ElementsAre(2.0));
  throughput.add_step(10, Seconds(5.0));
  EXPECT_THAT(throughput.window_rates(), ElementsAre(2.0));
  for (const double seconds : {1.0, 1.0, 0.25, 0.75, 100.0}) {
    throughput.add_step(10, Seconds(seconds));
  }
  EXPECT_THAT(throughput.window_rates(), ElementsAre(10.0, 20.0));
}

TEST(ThroughputTest, WindowOfNoStepsIsRefused) { EXPECT_THROW(Throughput(0), InvalidArgument); }

TEST(ThroughputTest, SummaryIsMeanAndInterval) {
  const RateSummary summary = summarize(std::vector<double>{1.0, 3.0});
  EXPECT_EQ(summary.mean, 2.0);
  EXPECT_EQ(summary.half_width, 1.96);
  EXPECT_EQ(summarize({}).mean, 0.0);
  EXPECT_EQ(total_line(4, "CPU", {812.34, 4.56}), "Total img/sec on 4 CPU(s): 812.3 +- 4.6");
}

ProgressState half_way() {
  ProgressState state;
  state.epoch = 1;
  state.epochs = 3;
  state.step = 50;
  state.steps_per_epoch = 100;
  state.loss = 0.4123;
  state.images_per_second = 3512.4;
  state.elapsed = Seconds(30.0);
  return state;
}

TEST(ProgressTest, LineHasEveryPart) {
  EXPECT_EQ(format_progress(half_way(), false),
            "epoch 2/3  50% step 50/100 loss 0.412 3512 img/s ETA 0:30");
  EXPECT_THAT(format_progress(half_way(), true), HasSubstr("epoch 2/3 [#####.....]  50% step"));
}

TEST(ProgressTest, LineFitsATerminal) {
  ProgressState state = half_way();
  state.epoch = 99;
  state.epochs = 100;
  state.step = 9999;
  state.steps_per_epoch = 9999;
  EXPECT_LE(format_progress(state, true).size(), 79U);
  EXPECT_THAT(format_progress(state, true), HasSubstr("ETA 0:00"));
  state.images_per_second = 1e12;
  EXPECT_EQ(format_progress(state, true).size(), 79U);
}

TEST(ProgressTest, TimeLeftGoesByThisRunsPace) {
  ProgressState state = half_way();
  EXPECT_EQ(time_left(state), Seconds(30.0));
  state.steps_before = 100;
  EXPECT_EQ(time_left(state), Seconds(90.0));
  state.steps_before = 150;
  EXPECT_EQ(time_left(state), Seconds(0.0));
}

TEST(ProgressTest, ClockHasHoursWhenNeeded) {
  EXPECT_EQ(format_clock(Seconds(6.6)), "0:07");
  EXPECT_EQ(format_clock(Seconds(754.0)), "12:34");
  EXPECT_EQ(format_clock(Seconds(3723.0)), "1:02:03");
}

TEST(ProgressTest, PipeIsNoTerminal) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  std::FILE* stream = fdopen(ends[1], "w");
  EXPECT_FALSE(ends_at_terminal(stream));
  std::fclose(stream);
  close(ends[0]);
}

TEST(MetricsFileTest, WritesOneObjectPerLineAndAppendsWhenResumed) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "metrics.jsonl";
  MetricsFile(path, MetricsFile::Mode::Replace).write({{"event", "old"}});
  {
    MetricsFile file(path, MetricsFile::Mode::Replace);
    file.write({{"event", "epoch"}, {"accuracy", {0.5, 0.25}}});
  }
  MetricsFile(path, MetricsFile::Mode::Append).write({{"event", "result"}});
  std::ifstream in(path);
  std::vector<nlohmann::json> lines;
  for (std::string line; std::getline(in, line);) {
    lines.push_back(nlohmann::json::parse(line));
  }
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[0]["accuracy"], nlohmann::json({0.5, 0.25}));
  EXPECT_EQ(lines[1]["event"], "result");
}

TEST(MetricsFileTest, FailuresNameTheFile) {
  const TemporaryFolder folder;
  EXPECT_THAT(testing::error_of<InvalidArgument>(
                  [&] { MetricsFile(folder.path() / "a" / "b", MetricsFile::Mode::Replace); }),
              HasSubstr("a/b cannot be opened for writing: No such file"));
  EXPECT_THAT(testing::error_of<Error>([&] {
                MetricsFile("/dev/full", MetricsFile::Mode::Append).write({{"event", "epoch"}});
              }),
              HasSubstr("/dev/full cannot be written: No space left"));
  MetricsFile("", MetricsFile::Mode::Replace).write({{"event", "epoch"}});
}

TEST(PeakMemoryTest, GrowsWithTouchedMemory) {
  const std::int64_t before = peak_resident_bytes();
  ASSERT_GT(before, 0);
  const std::vector<char> block(static_cast<std::size_t>(before) + (16U << 20), 1);
  EXPECT_GE(peak_resident_bytes(), static_cast<std::int64_t>(block.size()));
}

}  // namespace
}  // namespace bluefog::examples
