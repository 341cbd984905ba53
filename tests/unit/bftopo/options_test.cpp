#include "tools/bftopo/options.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace bluefog::bftopo {
namespace {

using ::testing::HasSubstr;
using ::testing::StrEq;
using ::testing::ThrowsMessage;

TEST(BftopoOptions, ReadAFamilyAndItsOptions) {
  const Options options = parse_options({"check", "base", "--n", "25", "--k", "2", "--json"});
  EXPECT_EQ(options.command, Command::Check);
  EXPECT_EQ(options.family->name, "base");
  EXPECT_EQ(options.family_options.size, 25);
  EXPECT_EQ(options.family_options.peers, 2);
  EXPECT_TRUE(options.json);
}

TEST(BftopoOptions, ReadGridsSeedsAndMachines) {
  EXPECT_EQ(parse_options({"show", "torus", "-n", "12", "--shape", "2x6"}).family_options.shape,
            (topology::GridShape{2, 6}));
  const Options drawn = parse_options(
      {"gap", "equidyn", "--n", "9", "--seed", "5", "--eta", "0.25", "--period", "30"});
  EXPECT_EQ(drawn.family_options.seed, 5U);
  EXPECT_EQ(drawn.family_options.eta, 0.25);
  EXPECT_EQ(drawn.family_options.period_steps, 30);
  EXPECT_EQ(
      parse_options({"check", "ring", "--n", "8", "--local-size", "4"}).family_options.local_size,
      4);
}

TEST(BftopoOptions, ReadTheRanksThatAreLost) {
  const auto lost = [](const std::vector<std::string>& arguments) {
    return parse_options(arguments).without;
  };
  EXPECT_EQ(lost({"check", "ring", "--n", "8", "--without", "3,5"}), (std::vector<int>{3, 5}));
  EXPECT_EQ(lost({"gap", "--without", "5", "ring", "--n", "8"}), (std::vector<int>{5}));
  EXPECT_EQ(lost({"draw", "ring", "--n", "8", "--without", "3", "--without", "0,1"}),
            (std::vector<int>{3, 0, 1}));
  EXPECT_TRUE(lost({"check", "ring", "--n", "8"}).empty());
}

TEST(BftopoOptions, ReadTheCostModelInItsUnits) {
  const Options options =
      parse_options({"simulate", "ring", "--n", "8", "--alpha", "2", "--bandwidth", "8", "--bytes",
                     "1000", "--compute", "3", "--steps", "7", "--seed", "2"});
  EXPECT_DOUBLE_EQ(options.cost.latency.count(), 2e-6);
  EXPECT_DOUBLE_EQ(options.cost.bytes_per_second, 1e9);
  EXPECT_EQ(options.cost.message_bytes, 1000);
  EXPECT_DOUBLE_EQ(options.cost.compute.count(), 3e-3);
  EXPECT_EQ(options.simulated_steps, 7);
  EXPECT_DOUBLE_EQ(
      parse_options({"simulate", "ring", "--n", "8", "--beta", "0.5"}).cost.bytes_per_second, 2e9);
}

TEST(BftopoOptions, PicturesByFormatOrName) {
  EXPECT_EQ(parse_options({"draw", "ring", "--n", "3"}).format, PictureFormat::Dot);
  EXPECT_EQ(parse_options({"draw", "ring", "--n", "3", "-o", "a.svg"}).format, PictureFormat::Svg);
  for (const char* const name : {"a.dot", "a.gv", "a", "folder.png/a", "/dev/stdout"}) {
    EXPECT_EQ(parse_options({"draw", "ring", "--n", "3", "-o", name}).format, PictureFormat::Dot);
  }
  EXPECT_THROW((void)parse_options({"draw", "ring", "--n", "3", "-o", "a.png"}), UsageError);
  EXPECT_EQ(parse_options({"draw", "ring", "--n", "3", "-o", "a.svg", "--format", "dot"}).format,
            PictureFormat::Dot);
}

TEST(BftopoOptions, HelpNamesEveryFamily) {
  const std::string help = parse_options({"check", "--help"}).help_text;
  for (const topology::Family& family : topology::families()) {
    EXPECT_THAT(help, HasSubstr(std::string(family.name)));
  }
  EXPECT_THAT(parse_options({"--help"}).help_text, HasSubstr("bftopo show|check"));
  EXPECT_THAT(help, HasSubstr("Usage: bftopo check FAMILY|FILE"));
}

TEST(BftopoOptions, EveryFamilyOptionIsKnown) {
  const std::string help = parse_options({"check", "--help"}).help_text;
  for (const topology::Family& family : topology::families()) {
    for (const std::string_view option : family.options) {
      EXPECT_THAT(help, HasSubstr("--" + std::string(option) + " ")) << family.name;
    }
  }
}

TEST(BftopoOptions, WrongUseSaysWhatIsWrong) {
  const auto throws = [](const std::vector<std::string>& arguments, const std::string& words) {
    EXPECT_THAT([&] { (void)parse_options(arguments); },
                ThrowsMessage<UsageError>(HasSubstr(words)));
  };
  throws({}, "found nothing");
  throws({"paint", "ring"}, "found 'paint'");
  throws({"check", "ring"}, "--n N is missing");
  throws({"check", "wheel", "--n", "3"}, "'wheel' is neither a file nor a family");
  throws({"check", "ring", "--n", "0"}, "--n");
  throws({"check", "ring", "--n", "3", "--k", "2"}, "--k: 'ring' does not read it");
  throws({"check", "ring", "--n", "3", "--rule", "metropolis"}, "--rule: 'ring' does not read it");
  throws({"check", std::string(5000, 'x')}, "is neither a file nor a family");
  throws({"show", "ring", "--n", "4", "--local-size", "2"}, "--local-size");
  throws({"check", "ring", "--n", "3", "--seed", "2"}, "--seed");
  throws({"check", "torus", "--n", "6", "--shape", "2"}, "--shape wants ROWSxCOLUMNS");
  throws({"simulate", "ring", "--n", "3", "--beta", "1", "--bandwidth", "1"}, "--bandwidth");
  throws({"check", "ceca", "--n", "6", "--without", "1"},
         "--without: 'ceca' keeps two variables per rank, expected a graph or schedule");
}

TEST(BftopoOptions, NumbersOutOfRangeAreNamedWithTheRange) {
  struct Case {
    std::vector<std::string> command;
    std::string option;
    std::string expected;
    std::vector<std::string> wrong;
  };
  const std::string any_rate = "a number of at least 1e-12 and at most 1000000000000";
  const std::string any_time = "a number of at least 0 and at most 1000000000000";
  const std::string share = "a number of more than 0 and at most 1";
  const std::vector<std::string> simulate{"simulate", "ring", "--n", "4"};
  for (const Case& c :
       {Case{{"check", "ring"},
             "--n",
             "a whole number from 1 to 10000000",
             {"0", "-1", "2.5", "nan", "inf", "010", "10000001", "99999999999999999999"}},
        Case{{"check", "base", "--n", "4"}, "--k", "a whole number from 1 to 10000000", {"0"}},
        Case{{"check", "star", "--n", "4"},
             "--center",
             "a whole number from 0 to 9999999",
             {"-1", "99999999999"}},
        Case{{"gap", "equistatic", "--n", "8"}, "--rho", share, {"0", "nan", "1.5", "x"}},
        Case{{"gap", "equidyn", "--n", "8"}, "--eta", share, {"-1", "inf"}},
        Case{simulate, "--without", "a whole number from 0 to 9999999", {"-1", "x", "1.5"}},
        Case{simulate, "--seed", "a whole number from 0 to 18446744073709551615", {"-1", "x"}},
        Case{simulate, "--steps", "a whole number from 0 to 10000000", {"-1", "1e3"}},
        Case{simulate, "--bytes", "a whole number from 0 to 1125899906842624", {"nan"}},
        Case{simulate, "--bandwidth", any_rate, {"0", "-1", "nan", "inf", "1e400", "1e-320", "x"}},
        Case{simulate, "--beta", any_rate, {"0", "nan", "1e13"}},
        Case{simulate, "--alpha", any_time, {"-1", "nan", "-inf", "1e300"}},
        Case{simulate, "--compute", any_time, {"-0.5", "inf"}}}) {
    for (const std::string& wrong : c.wrong) {
      std::vector<std::string> arguments = c.command;
      arguments.insert(arguments.end(), {c.option, wrong});
      EXPECT_THAT([&] { (void)parse_options(arguments); },
                  ThrowsMessage<UsageError>(
                      StrEq(c.option + ": expected " + c.expected + ", found " + wrong)));
    }
  }
  EXPECT_THAT(
      [&] {
        (void)parse_options({"simulate", "ring", "--n", "4", "--alpha", ""});
      },
      ThrowsMessage<UsageError>(HasSubstr("found nothing")));
}

}  // namespace
}  // namespace bluefog::bftopo
