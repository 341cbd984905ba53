#include "examples/common/algorithm_options.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "bluefog_cpp/error.hpp"
#include "examples/common/named_algorithm.hpp"
#include "ops/compression.hpp"
#include "optimizers/algorithm_row.hpp"
#include "optimizers/options.hpp"
#include "tests/support/error_of.hpp"

namespace bluefog::examples {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

/// Registers a row with numbers of its own, once, whatever tests run.
std::string row_with_numbers() {
  const std::string name = "with_numbers";
  if (optimizers::find_algorithm(name) == nullptr) {
    optimizers::AlgorithmRow row;
    row.name = name;
    row.options.push_back({.name = "mixing_share",
                           .default_value = 0.75,
                           .meaning = "share of the average",
                           .least = 0.0,
                           .below = 1.0});
    row.options.push_back({.name = "depth", .default_value = std::int64_t{2}, .meaning = "rounds"});
    row.options.push_back({.name = "shrinks", .default_value = false, .meaning = "a switch"});
    row.make = [](const optimizers::AlgorithmParts&) -> std::unique_ptr<optimizers::Algorithm> {
      return nullptr;
    };
    optimizers::register_algorithm(std::move(row));
  }
  return name;
}

TEST(AlgorithmOptionsTest, FieldsOfRowsGoBeforeTheShortForms) {
  const auto momentum = options_of({.algorithm = "qg-dsgdm",
                                    .momentum = 0.25,
                                    .values = option_values({"momentum=0.5"}, {"qg-dsgdm"})},
                                   2);
  EXPECT_EQ(momentum.momentum, 0.5);
  const auto rounds =
      options_of({.algorithm = "gossip-pga",
                  .values = option_values({"global-period-rounds=8"}, {"gossip-pga"})},
                 2);
  EXPECT_EQ(rounds.global_period_rounds, 8);
  EXPECT_EQ(rounds.num_steps_per_communication, 1);
  EXPECT_EQ(options_of({.algorithm = "awc", .local_steps = 3}, 2).num_steps_per_communication, 3);
  const auto early = option_values({"step_in_backward=1"}, {"atc"});
  EXPECT_TRUE(options_of({.algorithm = "atc", .values = early}, 2).step_in_backward);
}

TEST(AlgorithmOptionsTest, EveryFieldOfARowCanBeSet) {
  for (const optimizers::AlgorithmRow* row : optimizers::algorithms()) {
    for (const optimizers::AlgorithmOption& option : row->options) {
      optimizers::DistributedOptimizerOptions options{.algorithm = row->name};
      const OptionValues values =
          option.default_number()
              ? OptionValues{{option.name, 1.0}}
              : OptionValues{{option.name, std::get<std::string>(option.default_value)}};
      EXPECT_NO_THROW(set_values(values, options)) << row->name << option.name;
    }
  }
}

TEST(AlgorithmOptionsTest, NumbersOfARowAreGivenByName) {
  const std::string name = row_with_numbers();
  const OptionValues values =
      option_values({"mixing-share=0.5", "depth=3", "shrinks=1"}, {name, "qg-dsgdm"});
  EXPECT_THAT(values,
              ElementsAre(Pair("depth", 3.0), Pair("mixing_share", 0.5), Pair("shrinks", 1.0)));
  EXPECT_THAT(options_of({.algorithm = name, .values = values}, 2).numbers,
              ElementsAre(Pair("depth", 3.0), Pair("mixing_share", 0.5), Pair("shrinks", 1.0)));
  EXPECT_THAT(options_of({.algorithm = "qg-dsgdm", .values = values}, 2).numbers, IsEmpty());
}

TEST(AlgorithmOptionsTest, ACodeIsGivenByItsName) {
  const OptionValues values = option_values({"compression=topk:8"}, {"choco"});
  EXPECT_EQ(options_of({.algorithm = "choco", .values = values}, 2).compression->name(), "topk:8");
  EXPECT_EQ(options_of({.algorithm = "choco"}, 2).compression, nullptr);
  EXPECT_THAT(why_no_options({"compression=int3"}, {"choco"}),
              HasSubstr("compression: expected one of bfloat16, float16, int8, int4, sign, topk"));
  EXPECT_THAT(
      why_no_options({"compresion=int8"}, {"choco"}),
      HasSubstr("compression (one of bfloat16, float16, int8, int4, sign, topk, topk8, by default "
                "int4)"));
}

TEST(AlgorithmOptionsTest, OptionsThatNoRowListsAreRefusedWithThoseThereAre) {
  EXPECT_EQ(why_no_options({}, {"extra"}), "");
  EXPECT_EQ(why_no_options({"momentum=0.5"}, {"extra", "d2"}),
            "expected no option for extra, d2, found 'momentum=0.5'");
  EXPECT_EQ(why_no_options({"momentun=0.5"}, {"qg-dsgdm"}),
            "expected NAME=VALUE with an option of qg-dsgdm: momentum (a number from 0 to below 1, "
            "by default 0.9); found 'momentun=0.5'; did you mean momentum?");
  EXPECT_EQ(why_no_options({"momentum"}, {"qg-dsgdm", "gossip-pga"}),
            "expected NAME=VALUE with an option of qg-dsgdm, gossip-pga: momentum (a number from 0 "
            "to below 1, by default 0.9), global_period_rounds (a whole number of at least 1, by "
            "default 6); found 'momentum'");
  EXPECT_THAT(why_no_options({""}, {"atc"}),
              AllOf(HasSubstr("step_in_backward (0 or 1, by default 0)"), HasSubstr("; found ''")));
}

TEST(AlgorithmOptionsTest, ValuesOutOfBoundsAreRefused) {
  for (const std::string wrong : {"1", "-0.1", "nan", "inf", "", "0.5x", "half", " 0.5"}) {
    EXPECT_EQ(
        why_no_options({"momentum=" + wrong}, {"qg-dsgdm"}),
        "momentum: expected a number from 0 to below 1 (by default 0.9), found '" + wrong + "'");
  }
  for (const std::string wrong : {"0", "1.5", "1e300", "-1"}) {
    EXPECT_EQ(
        why_no_options({"global_period_rounds=" + wrong}, {"gossip-pga"}),
        "global_period_rounds: expected a whole number of at least 1 (by default 6), found '" +
            wrong + "'");
  }
  EXPECT_THAT(why_no_options({"step_in_backward=2"}, {"atc"}),
              HasSubstr("expected 0 or 1 (by default 0), found '2'"));
  EXPECT_EQ(why_no_options({"momentum=0.5", "momentum=0.5"}, {"qg-dsgdm"}),
            "momentum: expected it once, found it twice");
  EXPECT_THAT(testing::error_of<InvalidArgument>([] { (void)option_values({"x=1"}, {"none"}); }),
              HasSubstr("expected no option for none"));
}

}  // namespace
}  // namespace bluefog::examples
