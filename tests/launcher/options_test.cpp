#include "tools/bfrun/options.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace bluefog::bfrun {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string usage_error(const std::vector<std::string>& arguments) {
  try {
    static_cast<void>(parse_options(arguments));
  } catch (const UsageError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Options, UnderstandsEverySpellingOfTheNumberOfRanks) {
  for (const std::vector<std::string>& spelling : {std::vector<std::string>{"-np", "4"},
                                                   {"-np=4"},
                                                   {"-n", "4"},
                                                   {"--num-proc", "4"},
                                                   {"--num-proc=4"}}) {
    auto arguments = spelling;
    arguments.push_back("program");
    const auto options = parse_options(arguments);
    EXPECT_EQ(options.num_proc, 4) << spelling.front();
    EXPECT_THAT(options.command, ElementsAre("program")) << spelling.front();
  }
}

TEST(Options, LeavesTheCommandUntouched) {
  const auto options =
      parse_options({"-np", "2", "program", "-np", "9", "--verbose", "-x", "--", "-H"});
  EXPECT_EQ(options.num_proc, 2);
  EXPECT_FALSE(options.verbose);
  EXPECT_THAT(options.command, ElementsAre("program", "-np", "9", "--verbose", "-x", "--", "-H"));
}

TEST(Options, TwoDashesBeginTheCommand) {
  const auto options = parse_options({"-np", "2", "--", "--strange-program", "1"});
  EXPECT_THAT(options.command, ElementsAre("--strange-program", "1"));
}

TEST(Options, ReadsEveryOption) {
  const auto options = parse_options({"-np",
                                      "4",
                                      "-H",
                                      "a:2,b:2",
                                      "-p",
                                      "2222",
                                      "--network-interface",
                                      "eth0",
                                      "--use-infiniband",
                                      "--extra-mpi-flags",
                                      "--prtemca plm_ssh_agent agent",
                                      "--prefix",
                                      "/opt",
                                      "--timeline-filename",
                                      "trace",
                                      "-x",
                                      "A",
                                      "-x",
                                      "B=1 2",
                                      "--bind-to",
                                      "core",
                                      "--mpirun",
                                      "/m",
                                      "--fault-tolerant",
                                      "--verbose",
                                      "program"});
  EXPECT_EQ(options.hosts, "a:2,b:2");
  EXPECT_EQ(options.ssh_port, 2222);
  EXPECT_EQ(options.network_interface, "eth0");
  EXPECT_EQ(options.extra_mpi_flags, "--prtemca plm_ssh_agent agent");
  EXPECT_EQ(options.prefix, "/opt");
  EXPECT_EQ(options.timeline_filename, "trace");
  EXPECT_THAT(options.environment, ElementsAre("A", "B=1 2"));
  EXPECT_EQ(options.bind, BindPolicy::Core);
  EXPECT_EQ(options.mpirun, "/m");
  EXPECT_TRUE(options.fault_tolerant);
  EXPECT_TRUE(options.verbose);
  EXPECT_THAT(options.command, ElementsAre("program"));
}

TEST(Options, EnvironmentTakesOneValueEachAndNotTheCommand) {
  const auto options = parse_options({"-np", "1", "-x", "A", "program", "B"});
  EXPECT_THAT(options.environment, ElementsAre("A"));
  EXPECT_THAT(options.command, ElementsAre("program", "B"));
}

TEST(Options, MinNpIsANumberOfTheRanks) {
  EXPECT_EQ(parse_options({"-np", "4", "program"}).min_np, 0);
  EXPECT_EQ(parse_options({"-np", "4", "--min-np", "4", "program"}).min_np, 4);
  EXPECT_EQ(parse_options({"--min-np=1", "-np", "4", "program"}).min_np, 1);
  for (const char* bad : {"0", "5", "-1", "two", "2x"}) {
    EXPECT_THAT(usage_error({"-np", "4", "--min-np", bad, "program"}),
                HasSubstr("--min-np wants a number from 1 to 4"))
        << bad;
  }
  EXPECT_THAT(usage_error({"-np", "4", "--min-np", "2", "--fault-tolerant", "program"}),
              HasSubstr("give one of them"));
}

TEST(Options, RespawnIsForRanksOfWhichSomeSuffice) {
  const std::vector<std::string> enough{"-np", "4", "--min-np", "2"};
  const auto with = [&](const std::string& number) {
    std::vector<std::string> arguments = enough;
    arguments.insert(arguments.end(), {"--respawn", number, "program"});
    return arguments;
  };
  EXPECT_EQ(parse_options({"-np", "4", "--min-np", "2", "program"}).respawn, 0);
  EXPECT_EQ(parse_options(with("1")).respawn, 1);
  EXPECT_EQ(parse_options(with("10000")).respawn, 10000);
  for (const char* bad : {"0", "10001", "-1", "two", "2x"}) {
    EXPECT_THAT(usage_error(with(bad)), HasSubstr("--respawn wants a number from 1 to 10000"))
        << bad;
  }
  EXPECT_THAT(usage_error({"-np", "4", "--respawn", "2", "program"}),
              HasSubstr("expected --min-np N, which says how many suffice for that, found none"));
}

TEST(Options, RanksMayComeAndGo) {
  const auto with = [](std::vector<std::string> more) {
    more.insert(more.begin(), {"-np", "4", "--min-np", "2"});
    more.push_back("program");
    return more;
  };
  EXPECT_EQ(parse_options({"-np", "4", "program"}).max_np, 4);
  EXPECT_FALSE(parse_options(with({"--max-np", "4"})).is_elastic());
  const Options grown = parse_options(with({"--max-np", "6"}));
  EXPECT_TRUE(grown.is_elastic());
  EXPECT_EQ(grown.max_np, 6);
  EXPECT_EQ(grown.bind, BindPolicy::None);
  for (const char* name : {"--host-discovery", "--host-discovery-script"}) {
    const Options by_script = parse_options(with({name, "./hosts.sh a", "--elastic-timeout", "7"}));
    EXPECT_TRUE(by_script.is_elastic());
    EXPECT_EQ(by_script.host_discovery, "./hosts.sh a");
    EXPECT_EQ(by_script.elastic_timeout, 7);
  }
  EXPECT_THAT(usage_error(with({"--max-np", "3"})),
              HasSubstr("--max-np wants at least as many as -np 4, found '3'"));
  EXPECT_THAT(usage_error({"-np", "4", "--max-np", "6", "program"}),
              HasSubstr("--max-np has ranks come while the others go on: expected --min-np N"));
  EXPECT_THAT(
      usage_error({"-np", "4", "--host-discovery", "x", "program"}),
      HasSubstr("--host-discovery has ranks come while the others go on: expected --min-np"));
  EXPECT_THAT(usage_error(with({"--elastic-timeout", "9"})),
              HasSubstr("--elastic-timeout is for --host-discovery"));
  EXPECT_THAT(usage_error(with({"--elastic-timeout", "0", "--host-discovery", "x"})),
              HasSubstr("--elastic-timeout wants a number from 1 to 86400"));
  EXPECT_THAT(usage_error(with({"--host-discovery", "x", "-H", "a:2"})),
              HasSubstr("give it, or -H or --hostfile"));
  EXPECT_THAT(usage_error(with({"--max-np", "6", "--bind-to", "core"})),
              HasSubstr("a fixed number of ranks, found --max-np"));
}

TEST(Options, RefusesBadNumbersByName) {
  for (const char* bad : {"0", "-1", "two", "2x", "", "99999999999"}) {
    EXPECT_THAT(usage_error({"-np", bad, "program"}), HasSubstr("-np")) << bad;
  }
  for (const char* bad : {"0", "65536", "ssh"}) {
    EXPECT_THAT(usage_error({"-np", "1", "-p", bad, "program"}), HasSubstr("-p wants a number"))
        << bad;
  }
}

TEST(Options, AHostMayBeSilentForAWhile) {
  EXPECT_EQ(parse_options({"-np", "1", "program"}).host_silence, 60);
  EXPECT_EQ(parse_options({"-np", "1", "--host-silence", "0", "program"}).host_silence, 0);
  EXPECT_EQ(parse_options({"-np", "1", "--host-silence", "3", "program"}).host_silence, 3);
  for (const char* bad : {"-1", "1", "2", "86401", "x", "1.5"}) {
    EXPECT_THAT(usage_error({"-np", "1", "--host-silence", bad, "program"}),
                HasSubstr("--host-silence wants 0 or a number of seconds from 3 to 86400"))
        << bad;
  }
}

TEST(Options, RefusesWhatIsMissingOrContradicts) {
  EXPECT_THAT(usage_error({"program"}), HasSubstr("-np N is missing"));
  EXPECT_THAT(usage_error({}), HasSubstr("-np N is missing"));
  EXPECT_THAT(usage_error({"-np", "2"}), HasSubstr("no command given"));
  EXPECT_THAT(usage_error({"-np", "2", "--"}), HasSubstr("no command given"));
  EXPECT_THAT(usage_error({"-np"}), HasSubstr("-np"));
  EXPECT_THAT(usage_error({"-np", "2", "-H", "a", "--hostfile", "f", "program"}),
              HasSubstr("not both"));
  EXPECT_THAT(usage_error({"-np", "2", "--bogus", "program"}), HasSubstr("--bogus"));
  EXPECT_THAT(usage_error({"-np", "2", "--bind-to", "socket", "program"}), HasSubstr("'socket'"));
  EXPECT_THAT(usage_error({"-np", "2", "-x", "1A=2", "program"}), HasSubstr("'1A=2'"));
}

TEST(Options, VersionAndBuildNeedNoCommand) {
  EXPECT_TRUE(parse_options({"-v"}).show_version);
  EXPECT_TRUE(parse_options({"--version"}).show_version);
  EXPECT_TRUE(parse_options({"--check-build"}).check_build);
  EXPECT_THAT(parse_options({"--help"}).help_text, HasSubstr("bfrun -np N"));
}

}  // namespace
}  // namespace bluefog::bfrun
