#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "bluefog_cpp/error.hpp"
#include "examples/train_pipeline/configuration.hpp"
#include "examples/train_pipeline/step_record.hpp"
#include "tests/support/error_of.hpp"
#include "tests/unit/examples/temporary_folder.hpp"

namespace bluefog::examples {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

PipelineConfiguration read(const std::string& text) {
  const TemporaryFolder folder;
  return read_configuration(folder.write("run.yaml", Bytes(text.begin(), text.end())));
}

std::string refusal(const std::string& text) {
  return testing::error_of<InvalidArgument>([&] { static_cast<void>(read(text)); });
}

TEST(PipelineConfiguration, KeysThatAreLeftOutHaveTheirDefaults) {
  for (const std::string text : {"", "# nothing\n", "{}\n", "---\n"}) {
    const PipelineConfiguration chosen = read(text);
    EXPECT_EQ(chosen.stages, 0) << text;
    EXPECT_EQ(chosen.alpha, 1.0 / 3) << text;
    EXPECT_TRUE(chosen.freeze) << text;
    EXPECT_FALSE(chosen.cache) << text;
  }
}

TEST(PipelineConfiguration, ValuesOfEachType) {
  const PipelineConfiguration chosen = read(
      "stages: 2\nschedule: gpipe\nreplicas: parameters\nfreeze: false\ncache: yes\n"
      "alpha: 5e-1\nlr: 1\ncache_folder: /var/tmp\nseed: 0\n");
  EXPECT_EQ(chosen.stages, 2);
  EXPECT_EQ(chosen.schedule, "gpipe");
  EXPECT_EQ(chosen.replicas, "parameters");
  EXPECT_FALSE(chosen.freeze);
  EXPECT_TRUE(chosen.cache);
  EXPECT_EQ(chosen.alpha, 0.5);
  EXPECT_EQ(chosen.lr, 1);
  EXPECT_EQ(chosen.cache_folder, "/var/tmp");
  EXPECT_EQ(chosen.seed, 0);
}

TEST(PipelineConfiguration, AnUnknownKeyIsNamedWithItsLine) {
  EXPECT_THAT(refusal("epochs: 3\nfrieze: true\n"),
              AllOf(HasSubstr("run.yaml, line 2: expected keys of model, stages, schedule, "),
                    HasSubstr("found 'frieze'")));
  EXPECT_THAT(refusal("[a, b]: 1\n"), HasSubstr("found a list"));
  EXPECT_THAT(refusal("epochs: 3\nepochs: 4\n"), HasSubstr("line 2: expected 'epochs' once"));
}

TEST(PipelineConfiguration, WrongValuesAreNamed) {
  EXPECT_THAT(refusal("alpha: deep\n"),
              HasSubstr("expected a number between 0 and 1 for 'alpha', found 'deep'"));
  for (const std::string value : {"0", "1", ".nan", "-0.5"}) {
    EXPECT_THAT(refusal("alpha: " + value + "\n"), HasSubstr("found '" + value + "'"));
  }
  for (const std::string value : {"true", "0", "-1", "1.5", "9999999999", "3 4"}) {
    EXPECT_THAT(refusal("epochs: " + value + "\n"),
                HasSubstr("expected a whole number from 1 to 1073741824 for 'epochs', found '" +
                          value + "'"));
  }
  EXPECT_THAT(refusal("freeze: 1\n"), HasSubstr("expected true or false for 'freeze', found '1'"));
  EXPECT_THAT(refusal("freeze: {a: 1}\n"), HasSubstr("found names with values"));
  EXPECT_THAT(refusal("schedule: zb\n"),
              HasSubstr("expected 1f1b or gpipe for 'schedule', found 'zb'"));
  EXPECT_THAT(refusal("cache_folder: ''\n"), HasSubstr("expected a text for 'cache_folder'"));
  EXPECT_THAT(refusal("width:\n"), HasSubstr("found nothing"));
  EXPECT_THAT(refusal("schedule: \"a\\x1bb\"\n"), HasSubstr("found 'a?b'"));
}

TEST(PipelineConfiguration, FilesThatAreNone) {
  EXPECT_THAT(refusal("epochs: [\n"), HasSubstr("expected a YAML file, found: "));
  EXPECT_THAT(refusal("- a\n"), HasSubstr("expected names with values, found a list"));
  EXPECT_THAT(refusal("epochs\n"), HasSubstr("expected names with values, found 'epochs'"));
  const TemporaryFolder folder;
  const auto error_at = [](const std::filesystem::path& path) {
    return testing::error_of<InvalidArgument>([&] { static_cast<void>(read_configuration(path)); });
  };
  EXPECT_THAT(error_at(folder.path() / "none.yaml"), HasSubstr("none.yaml: expected a YAML file"));
  EXPECT_THAT(error_at(folder.path()), HasSubstr("found a folder"));
}

StepRecord record() {
  StepRecord found{.replica = 1, .stage = 2, .rows = 64, .cached_rows = 5};
  found.times = {.loading = 0.1,
                 .forward = 0.2,
                 .backward = 0.3,
                 .waiting = 0.15,
                 .averaging = 0.05,
                 .averaging_whole = 0.1,
                 .optimizer = 0.2,
                 .total = 0.9};
  found.traffic = {.stage_bytes = 4'000'000,
                   .averaged_bytes = 1'000'000,
                   .averaged_parameters = 250'000,
                   .machine_syncs = 3};
  return found;
}

TEST(StepRecord, TravelsWhole) {
  const StepRecord found = unpacked(packed(record()));
  EXPECT_EQ(json_of(found, 6), json_of(record(), 6));
  EXPECT_EQ(found.rows, 64);
  EXPECT_EQ(found.cached_rows, 5);
}

TEST(StepRecord, JsonNamesUses) {
  const nlohmann::json json = json_of(record(), 6);
  EXPECT_EQ(json.at("rank"), 6);
  EXPECT_EQ(json.at("pipeline"), 1);
  EXPECT_EQ(json.at("stage"), 2);
  EXPECT_EQ(json.at("seconds").at("loading"), 0.1);
  EXPECT_EQ(json.at("seconds").at("bubble"), 0.15);
  EXPECT_EQ(json.at("seconds").at("allreduce_exposed"), 0.05);
  EXPECT_EQ(json.at("seconds").at("allreduce"), 0.1);
  EXPECT_EQ(json.at("allreduce_parameters"), 250'000);
  EXPECT_EQ(json.at("machine_syncs"), 3);
}

TEST(StepRecord, SharesAreOfTheWholeTime) {
  StepRecord sum = record();
  sum.add(record());
  EXPECT_EQ(sum.rows, 128);
  EXPECT_EQ(sum.stage, 2);
  EXPECT_EQ(breakdown_text(sum, 2),
            "loading 10 %, forward 20 %, backward 30 %, bubble 15 %, all-reduce 5 % (10 % whole), "
            "optimizer 20 %; 4.00 MB/s to stages, 1.00 MB/s in all-reduces of 250000 parameters, "
            "3.0 syncs/s between machines");
  EXPECT_THAT(breakdown_text({}, 0), HasSubstr("loading 0 %"));
}

}  // namespace
}  // namespace bluefog::examples
