#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tools/bftopo/commands.hpp"

namespace bluefog::bftopo {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

std::string output_of(const std::vector<std::string>& arguments) {
  const Options options = parse_options(arguments);
  if (options.command == Command::List) {
    return list_text(options);
  }
  const Subject subject = make_subject(options);
  switch (options.command) {
    case Command::Show:
      return show_text(options, subject);
    case Command::Check:
      return check_answer(options, subject).text;
    case Command::Gap:
      return gap_text(options, subject);
    default:
      return simulate_text(options, subject, nullptr);
  }
}

TEST(BftopoOutput, CheckIsOneObject) {
  const json report = json::parse(output_of({"check", "base", "--n", "25", "--k", "1", "--json"}));
  EXPECT_EQ(report["n"], 25);
  EXPECT_EQ(report["period"], 9);
  EXPECT_LE(report["row_error"], 1e-15);
  EXPECT_LE(report["column_error"], 1e-15);
  EXPECT_LE(report["period_residual"], 1e-12);
  EXPECT_EQ(report["period_residual_method"], "product");
  EXPECT_NEAR(report["spectral_gap"], 1.0, 1e-12);
  EXPECT_EQ(report["max_degree"], 1);
  EXPECT_LE(report["messages_per_step"], 24.0);
  EXPECT_EQ(report["edge_mismatches"], 0);
  EXPECT_TRUE(report["bytes_between_machines_per_step"].is_null());
}

TEST(BftopoOutput, CheckSaysNullWhereItDoesNotKnow) {
  const json report = json::parse(output_of({"check", "random-matching", "--n", "6", "--json"}));
  EXPECT_EQ(report["period"], 65'536);
  EXPECT_EQ(report["steps_checked"], 1000);
  EXPECT_TRUE(report["period_residual"].is_null());
  EXPECT_TRUE(report["spectral_gap"].is_null());
}

TEST(BftopoOutput, CheckCountsBytesBetweenMachines) {
  const json report = json::parse(
      output_of({"check", "ring", "--n", "8", "--local-size", "4", "--bytes", "1000", "--json"}));
  EXPECT_EQ(report["bytes_per_rank_per_step"], 2000.0);
  EXPECT_EQ(report["bytes_between_machines_per_step"], 4000.0);
  const json machines = json::parse(output_of({"check", "machine-exponential", "--n", "8",
                                               "--local-size", "4", "--bytes", "10", "--json"}));
  EXPECT_EQ(machines["n"], 2);
  EXPECT_EQ(machines["bytes_between_machines_per_step"], 20.0);
}

TEST(BftopoOutput, CheckOfEveryFamily) {
  for (const topology::Family& family : topology::families()) {
    std::vector<std::string> arguments{"check", std::string(family.name), "--n", "16", "--json"};
    if (family.kind == topology::FamilyKind::Machines) {
      arguments.insert(arguments.end(), {"--local-size", "4"});
    }
    const json report = json::parse(output_of(arguments));
    EXPECT_LE(report["row_error"], 1e-12) << family.name;
    EXPECT_LE(report["column_error"], 1e-12) << family.name;
    EXPECT_EQ(report["edge_mismatches"], 0) << family.name;
    EXPECT_TRUE(report["problems"].empty()) << family.name << ": " << report["problems"];
  }
}

/// The answer of `check` about a file with these lines.
Answer check_of(const std::string& lines, const std::vector<std::string>& further = {}) {
  const std::string path = ::testing::TempDir() + "/bftopo_checked_graph.txt";
  std::ofstream(path) << lines;
  std::vector<std::string> arguments{"check", path};
  arguments.insert(arguments.end(), further.begin(), further.end());
  const Options options = parse_options(arguments);
  const Answer answer = check_answer(options, make_subject(options));
  std::filesystem::remove(path);
  return answer;
}

TEST(BftopoOutput, CheckSaysWhatIsBroken) {
  const auto expect_broken = [](const std::string& lines, const std::string& words) {
    const Answer answer = check_of(lines);
    EXPECT_EQ(answer.exit_code, 1) << lines;
    EXPECT_THAT(answer.text, HasSubstr(words));
    const json report = json::parse(check_of(lines, {"--json"}).text);
    EXPECT_THAT(report["problems"].dump(), HasSubstr(words));
  };
  expect_broken("0 0 0.5\n1 0 0.75\n1 1 0.5\n0 1 0.5\n",
                "rows do not sum to 1: that of rank 0 sums to 1.25");
  expect_broken("0 1 1e308\n0 0 1e308\n1 1 1e308\n", "that of rank 1 sums to inf");
  expect_broken("0 0 1e308\n1 0 -1e308\n2 0 1\n1 1 1\n2 2 1\n",
                "weights are so large that values overflow");
  expect_broken("0 1\n1 0\n2 3\n3 2\n",
                "the ranks fall into 2 parts that never hear of each other: rank 2 is in another");
  expect_broken("0 1 0\n0 0 1\n1 1 1\n", "the ranks fall into 2 parts");
  expect_broken("0 1 1\n1 0 1\n", "differences between ranks do not die out");
  EXPECT_EQ(check_of("0 1\n1 0\n").exit_code, 0);
}

TEST(BftopoOutput, CheckForPushSumLooksAtColumns) {
  const std::string columns = "0 0 0.5\n0 1 0.5\n1 0 1\n";
  EXPECT_EQ(check_of(columns).exit_code, 1);
  EXPECT_THAT(check_of(columns).text, HasSubstr("columns do: push-sum can use it (--push-sum)"));
  EXPECT_EQ(check_of(columns, {"--push-sum"}).exit_code, 0);
  const Answer rows = check_of("0 0 0.5\n1 0 0.5\n0 1 1\n", {"--push-sum"});
  EXPECT_EQ(rows.exit_code, 1);
  EXPECT_THAT(rows.text, HasSubstr("columns do not sum to 1: that of rank 0 sums to 1.5"));
}

TEST(BftopoOutput, WithoutRanksTheOthersAreLookedAt) {
  const json report = json::parse(
      output_of({"check", "one-peer-exponential", "--n", "8", "--without", "5,3", "--json"}));
  EXPECT_EQ(report["n"], 6);
  EXPECT_EQ(report["without"], json::parse("[3, 5]"));
  EXPECT_LE(report["column_error"], 1e-15);
  EXPECT_EQ(report["edge_mismatches"], 0);
  EXPECT_EQ(report["parts"], 1);
  EXPECT_TRUE(report["problems"].empty());
  const json one = json::parse(
      output_of({"gap", "one-peer-exponential", "--n", "8", "--without", "3", "--json"}));
  EXPECT_NEAR(1.0 - one["norm_gap"].get<double>(), 0.354, 5e-4);
  EXPECT_EQ(one["without"], json::parse("[3]"));
  EXPECT_EQ(json::parse(output_of({"gap", "ring", "--n", "8", "--json"}))["without"],
            json::array());
  EXPECT_THAT(output_of({"check", "ring", "--n", "8", "--without", "5,3"}),
              HasSubstr("without                   3, 5 of 8\n"));
  EXPECT_THAT(output_of({"gap", "ring", "--n", "8", "--without", "5,3"}),
              HasSubstr("ring, 6 of 8 ranks, without 3, 5, over a period"));
}

TEST(BftopoOutput, WithoutRanksTheOthersKeepTheirNumbers) {
  const std::string shown = output_of({"show", "ring-right", "--n", "4", "--without", "1"});
  EXPECT_THAT(shown, HasSubstr("    1  self 1, hears nobody, sends to nobody"));
  EXPECT_THAT(shown, HasSubstr("    2  self 0.5, hears 0 (0.5), sends to 3"));
  // Rank 1 was the only way from 0 to 2 and 3, and 2's row is too short before and after.
  const std::string path = ::testing::TempDir() + "/bftopo_without_graph.txt";
  std::ofstream(path) << "0 0 0.5\n1 0 0.5\n1 1 1\n2 2 0.75\n3 2 0.125\n3 3 1\n";
  const Options options = parse_options({"check", path, "--without", "0"});
  const Answer answer = check_answer(options, make_subject(options));
  std::filesystem::remove(path);
  EXPECT_EQ(answer.exit_code, 1);
  EXPECT_THAT(answer.text, HasSubstr("that of rank 2 sums to 0.875"));
  EXPECT_THAT(answer.text, HasSubstr("rank 2 is in another one than rank 1"));
}

TEST(BftopoOutput, WithoutRanksMachinesStayWhatTheyAre) {
  const json report = json::parse(output_of({"check", "ring", "--n", "8", "--local-size", "4",
                                             "--without", "1,5", "--bytes", "1000", "--json"}));
  // 3 and 4, and 7 and 0, are still neighbours.
  EXPECT_EQ(report["bytes_between_machines_per_step"], 4000.0);
  const json machines =
      json::parse(output_of({"check", "machine-exponential", "--n", "12", "--local-size", "4",
                             "--without", "2", "--bytes", "10", "--json"}));
  EXPECT_EQ(machines["n"], 2);
  EXPECT_EQ(machines["bytes_between_machines_per_step"], 20.0);
}

TEST(BftopoOutput, WithoutRanksTheMeanOfTheOthersIsKept) {
  const json run = json::parse(output_of({"simulate", "base", "--n", "25", "--k", "1", "--without",
                                          "0,24", "--steps", "200", "--json"}));
  EXPECT_EQ(run["n"], 23);
  EXPECT_LE(run["mean_drift"], 1e-14);
  EXPECT_LE(run["steps"][199]["consensus_distance"], 1e-9);
}

TEST(BftopoOutput, GapOfTheExponentialGraph) {
  const json gap = json::parse(output_of({"gap", "exponential", "--n", "16", "--json"}));
  EXPECT_NEAR(gap["spectral_gap"], 0.4, 1e-12);
  EXPECT_NEAR(gap["norm_gap"], 0.4, 1e-12);
  EXPECT_EQ(gap["gap_method"], "Fourier");
  EXPECT_THAT(output_of({"gap", "exponential", "--n", "16"}), HasSubstr("0.4"));
  EXPECT_THAT(output_of({"gap", "equidyn", "--n", "16"}), HasSubstr("--period"));
}

TEST(BftopoOutput, ShowPrintsThePlans) {
  const std::string text = output_of({"show", "ring", "--n", "4", "--ranks", "2"});
  EXPECT_THAT(text, HasSubstr("self 0.3333, hears 1 (0.3333), 3 (0.3333), sends to 1, 3"));
  EXPECT_THAT(text, HasSubstr("2 ranks more"));
  const json plans =
      json::parse(output_of({"show", "one-peer-exponential", "--n", "4", "--step", "1", "--json"}));
  EXPECT_EQ(plans["steps"].size(), 1U);
  EXPECT_EQ(plans["steps"][0]["ranks"][3]["src_weights"], json::parse("[[1, 0.5]]"));
  EXPECT_EQ(plans["steps"][0]["ranks"][3]["destinations"], json::parse("[1]"));
  EXPECT_THAT(output_of({"show", "ceca", "--n", "6"}), HasSubstr("all send s"));
}

TEST(BftopoOutput, SimulateReachesConsensusAndCounts) {
  const json run = json::parse(
      output_of({"simulate", "base", "--n", "25", "--k", "1", "--steps", "9", "--alpha", "1",
                 "--bandwidth", "8", "--bytes", "1000", "--compute", "0.001", "--json"}));
  ASSERT_EQ(run["steps"].size(), 9U);
  EXPECT_GT(run["initial_distance"], 1.0);
  EXPECT_LE(run["steps"][8]["consensus_distance"], 1e-13);
  EXPECT_NEAR(run["steps"][8]["elapsed_s"], 9 * 3e-6, 1e-12);  // α + bytes/bandwidth + compute
  EXPECT_NEAR(run["ring_allreduce_s"], 1e-6 + 48e-6 + 48.0 / 25.0 * 1e-6, 1e-12);
  EXPECT_THAT(output_of({"simulate", "ceca", "--n", "13"}), HasSubstr("period"));
}

TEST(BftopoOutput, ListNamesEveryFamily) {
  const std::string text = "\n" + output_of({"list"});
  const json names = json::parse(output_of({"list", "--json"}));
  EXPECT_EQ(names.size(), topology::families().size());
  for (const topology::Family& family : topology::families()) {
    EXPECT_THAT(text, HasSubstr("\n" + std::string(family.name) + " "));
  }
}

TEST(BftopoOutput, FilesAreReadWithTheirRule) {
  const std::string path = ::testing::TempDir() + "bftopo_path_of_three";
  std::ofstream(path) << "0 1\n1 0\n1 2\n2 1\n";
  const json uniform = json::parse(output_of({"check", path, "--json"}));
  EXPECT_EQ(uniform["n"], 3);
  EXPECT_GT(uniform["column_error"], 0.1);
  const json metropolis = json::parse(output_of({"check", path, "--rule", "metropolis", "--json"}));
  EXPECT_LE(metropolis["column_error"], 1e-15);
  EXPECT_NEAR(metropolis["spectral_gap"], 1.0 / 3.0, 1e-12);
  EXPECT_EQ(json::parse(output_of({"check", path, "--n", "4", "--json"}))["n"], 4);
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace bluefog::bftopo
