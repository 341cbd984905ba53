#include "examples/train_images/options.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/examples/temporary_folder.hpp"

namespace bluefog::examples {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

ParsedOptions parse(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "train_images");
  return parse_train_options(static_cast<int>(arguments.size()), arguments.data(),
                             {{"cnn", "resnet18"},
                              {"none", "atc"},
                              {"default", "ring", "exponential"},
                              {"sgd", "adam"},
                              {"local", "average"},
                              [](const auto& words, const std::string& algorithm) {
                                return words.size() > 2 ? "expected two for " + algorithm
                                                        : std::string();
                              }});
}

TEST(TrainOptionsTest, DefaultsAreThoseOfTheStruct) {
  const ParsedOptions parsed = parse({});
  EXPECT_FALSE(parsed.exit_code.has_value()) << parsed.text;
  EXPECT_EQ(parsed.options.model, TrainOptions{}.model);
  EXPECT_EQ(parsed.options.batch_size, TrainOptions{}.batch_size);
  EXPECT_EQ(parsed.options.data, kDefaultDataFolder);
  EXPECT_EQ(parsed.options.shards, ShardKind::Iid);
  EXPECT_EQ(parsed.options.progress, ProgressKind::Auto);
}

TEST(TrainOptionsTest, EveryOptionIsRead) {
  const ParsedOptions parsed = parse({"--model",
                                      "resnet18",
                                      "--algorithm",
                                      "none",
                                      "--topology",
                                      "ring",
                                      "--optimizer",
                                      "adam",
                                      "--batch-size",
                                      "32",
                                      "--epochs",
                                      "7",
                                      "--max-batches",
                                      "5",
                                      "--local-steps",
                                      "4",
                                      "--lr",
                                      "0.25",
                                      "--buffers",
                                      "local",
                                      "--momentum",
                                      "0",
                                      "--weight-decay",
                                      "1e-4",
                                      "--seed",
                                      "18446744073709551615",
                                      "--shards",
                                      "dirichlet",
                                      "--alpha",
                                      "0.1",
                                      "--augment",
                                      "--data",
                                      "/d",
                                      "--checkpoint",
                                      "/c",
                                      "--resume",
                                      "--metrics",
                                      "/m",
                                      "--threads",
                                      "2",
                                      "--max-test-images",
                                      "100",
                                      "--progress",
                                      "lines"});
  ASSERT_FALSE(parsed.exit_code.has_value()) << parsed.text;
  const TrainOptions& options = parsed.options;
  EXPECT_EQ(options.model, "resnet18");
  EXPECT_EQ(options.algorithm, "none");
  EXPECT_EQ(options.topology, "ring");
  EXPECT_EQ(options.optimizer, "adam");
  EXPECT_EQ(options.buffers, "local");
  EXPECT_EQ(options.batch_size, 32);
  EXPECT_EQ(options.epochs, 7);
  EXPECT_EQ(options.max_batches, 5);
  EXPECT_EQ(options.local_steps, 4);
  EXPECT_EQ(options.learning_rate, 0.25);
  EXPECT_EQ(options.momentum, 0.0);
  EXPECT_EQ(options.weight_decay, 1e-4);
  EXPECT_EQ(options.seed, 18446744073709551615ULL);
  EXPECT_EQ(options.shards, ShardKind::Dirichlet);
  EXPECT_EQ(options.alpha, 0.1);
  EXPECT_TRUE(options.augments);
  EXPECT_EQ(options.data, "/d");
  EXPECT_EQ(options.checkpoint, "/c");
  EXPECT_TRUE(options.resumes);
  EXPECT_EQ(options.metrics, "/m");
  EXPECT_EQ(options.threads, 2);
  EXPECT_EQ(options.max_test_images, 100);
  EXPECT_EQ(options.progress, ProgressKind::Lines);
}

TEST(TrainOptionsTest, HelpListsNamesAndDefaults) {
  const ParsedOptions parsed = parse({"--help"});
  EXPECT_EQ(parsed.exit_code, 0);
  EXPECT_THAT(parsed.text, AllOf(HasSubstr("{cnn,resnet18}"), HasSubstr("{iid,dirichlet}"),
                                 HasSubstr("=default"), HasSubstr("--max-batches")));
}

TEST(TrainOptionsTest, UnknownNamesAreRefusedWithTheKnownOnes) {
  for (const char* option :
       {"--model", "--algorithm", "--topology", "--optimizer", "--buffers", "--shards"}) {
    const ParsedOptions parsed = parse({option, "nonsense"});
    ASSERT_TRUE(parsed.exit_code.has_value()) << option;
    EXPECT_EQ(parsed.exit_code, 2);
    EXPECT_THAT(parsed.text, AllOf(HasSubstr(option), HasSubstr("nonsense"))) << option;
  }
  EXPECT_THAT(parse({"--model", "vgg"}).text,
              HasSubstr("expected one of cnn, resnet18; found vgg"));
  EXPECT_THAT(parse({"--model", "resnet8"}).text, HasSubstr("did you mean resnet18?"));
  EXPECT_THAT(parse({"--shards", "irichlet"}).text,
              HasSubstr("expected one of dirichlet, iid; found irichlet; did you mean dirichlet?"));
}

TEST(TrainOptionsTest, ATopologyMayBeAFile) {
  const TemporaryFolder folder;
  const std::string file = folder.write("graph.txt", {'0', ' ', '0', '\n'}).string();
  EXPECT_EQ(parse({"--topology", file.c_str()}).options.topology, file);
  const std::string absent = file + ".not";
  EXPECT_THAT(parse({"--topology", absent.c_str()}).text,
              HasSubstr("or a file of lines 'i j [weight]'; found " + absent));
}

TEST(TrainOptionsTest, ValuesOutOfRangeAreRefused) {
  const std::vector<std::pair<const char*, const char*>> cases{
      {"--batch-size", "0"},     {"--epochs", "0"},
      {"--max-batches", "-1"},   {"--lr", "0"},
      {"--lr", "nan"},           {"--lr", "inf"},
      {"--lr", "fast"},          {"--alpha", "0"},
      {"--local-steps", "0"},    {"--threads", "-1"},
      {"--momentum", "-0.1"},    {"--seed", "-1"},
      {"--epochs", "1.5"},       {"--weight-decay", "-1"},
      {"--batch-size", "x"},     {"--seed", "18446744073709551616"},
      {"--batch-size", "65537"}, {"--batch-size", "1e30"},
      {"--threads", "1025"},     {"--momentum", "1"},
      {"--momentum", "1e300"},   {"--momentum", "nan"},
      {"--shards", "1"},         {"--lr", "1e308"},
      {"--lr", "-0.1"},          {"--weight-decay", "1e308"},
      {"--alpha", "1e308"}};
  for (const auto& [option, value] : cases) {
    const ParsedOptions parsed = parse({option, value});
    ASSERT_TRUE(parsed.exit_code.has_value()) << option << ' ' << value;
    EXPECT_EQ(parsed.exit_code, 2);
    EXPECT_THAT(parsed.text, AllOf(HasSubstr(option), HasSubstr(value), HasSubstr("expected ")));
  }
  EXPECT_THAT(parse({"--batch-size", "65537"}).text,
              HasSubstr("expected a whole number from 1 to 65536, found 65537"));
  EXPECT_THAT(parse({"--momentum", "1"}).text,
              HasSubstr("expected a number of at least 0 and less than 1, found 1"));
}

TEST(TrainOptionsTest, OptionsOfAlgorithmsAreCheckedForTheChosenOne) {
  const ParsedOptions parsed = parse({"--option", "a=1", "--option=b=2"});
  ASSERT_FALSE(parsed.exit_code.has_value()) << parsed.text;
  EXPECT_THAT(parsed.options.algorithm_options, ElementsAre("a=1", "b=2"));
  const ParsedOptions refused =
      parse({"--option", "a=1", "--option", "b=2", "--option", "c=3", "--algorithm", "none"});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.text, HasSubstr("--option: expected two for none"));
  EXPECT_THAT(parse({"--option", "a=1", "b=2"}).text, HasSubstr("found 'b=2'"));
}

TEST(TrainOptionsTest, ResumeNeedsACheckpoint) {
  EXPECT_THAT(parse({"--resume"}).text, HasSubstr("--checkpoint"));
}

TEST(TrainOptionsTest, StrayArgumentsAreRefused) {
  EXPECT_EQ(parse({"stray"}).exit_code, 2);
  EXPECT_EQ(parse({"--frobnicate"}).exit_code, 2);
  EXPECT_THAT(parse({"stray"}).text, HasSubstr("found 'stray'"));
  EXPECT_THAT(parse({"--algoritm", "atc"}).text,
              HasSubstr("there is no option --algoritm; did you mean --algorithm?"));
  EXPECT_THAT(parse({"--frobnicate"}).text, HasSubstr("there is no option --frobnicate\n"));
}

}  // namespace
}  // namespace bluefog::examples
