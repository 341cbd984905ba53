#include "bluefog_cpp/bootstrap/launch_environment.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "bluefog_cpp/bootstrap/default_bootstrap.hpp"
#include "bluefog_cpp/bootstrap/mpi_bootstrap.hpp"
#include "bluefog_cpp/error.hpp"

namespace bluefog {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using Variables = std::map<std::string, std::string>;

void expect_launch(const Variables& variables, const std::string& launcher, int size) {
  const LaunchEnvironment environment = LaunchEnvironment::detect(variables);
  EXPECT_EQ(environment.launcher, launcher);
  EXPECT_EQ(environment.size, size);
  EXPECT_EQ(environment.launched(), !launcher.empty());
}

TEST(LaunchEnvironment, AloneWithoutVariables) { expect_launch({}, "", 0); }

TEST(LaunchEnvironment, OpenMpi) {
  expect_launch({{"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_RANK", "1"}}, "Open MPI", 4);
  expect_launch({{"OMPI_COMM_WORLD_SIZE", "1"}}, "", 0);
}

TEST(LaunchEnvironment, Pmix) {
  expect_launch({{"PMIX_RANK", "0"},
                 {"PMIX_NAMESPACE", "job"},
                 {"PMIX_SERVER_URI41", "job.0;tcp4://127.0.0.1:5234"}},
                "PMIx", 0);
  expect_launch({{"PMIX_RANK", "0"},
                 {"PMIX_NAMESPACE", "slurm.pmix.1.0"},
                 {"PMIX_SERVER_URI2", "pmix-server.7;tcp4://10.0.0.1:5234"},
                 {"SLURM_PROCID", "0"},
                 {"SLURM_STEP_NUM_TASKS", "8"}},
                "PMIx", 8);
}

TEST(LaunchEnvironment, RefusesPmixWithoutAServer) {
  const Variables alone{{"PMIX_RANK", "0"}, {"PMIX_NAMESPACE", "x"}};
  for (const Variables& more :
       {Variables{}, Variables{{"PMIX_SERVER_URI2", ""}},
        Variables{{"PMIX_SERVER_URI2", "nonsense"}},
        Variables{{"OMPI_COMM_WORLD_SIZE", "1"}, {"OMPI_COMM_WORLD_RANK", "0"}}}) {
    Variables variables = alone;
    variables.insert(more.begin(), more.end());
    try {
      (void)LaunchEnvironment::detect(variables);
      ADD_FAILURE() << "expected UnsupportedError";
    } catch (const UnsupportedError& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr("expected a PMIX_SERVER_URI"));
    }
  }
  expect_launch({{"PMIX_RANK", "0"}}, "", 0);
}

TEST(LaunchEnvironment, Pmi) {
  expect_launch({{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}}, "PMI", 2);
  expect_launch({{"PMI_RANK", "0"}, {"PMI_FD", "5"}}, "PMI", 0);
}

TEST(LaunchEnvironment, ABatchScriptIsAlone) {
  expect_launch({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}, {"SLURM_STEP_NUM_TASKS", "1"}}, "",
                0);
}

std::string refusal_of(const Variables& variables) {
  try {
    (void)LaunchEnvironment::detect(variables);
  } catch (const UnsupportedError& error) {
    return error.what();
  }
  return "nothing was refused";
}

TEST(LaunchEnvironment, SlurmTasksWithoutPmixMeetOnTheirFirstHost) {
  const auto launch_on = [](const std::string& nodes) {
    return LaunchEnvironment::detect({{"SLURM_PROCID", "3"},
                                      {"SLURM_STEP_NUM_TASKS", "8"},
                                      {"SLURM_JOB_ID", "17"},
                                      {"SLURM_STEP_ID", "0"},
                                      {"SLURM_STEP_NODELIST", nodes}});
  };
  EXPECT_EQ(launch_on("n1").way, LaunchWay::Slurm);
  EXPECT_EQ(launch_on("n1").rank, 3);
  EXPECT_EQ(launch_on("n1").size, 8);
  EXPECT_THAT(launch_on("n1").store, StartsWith("127.0.0.1:2"));
  EXPECT_THAT(launch_on("n[03-05,9],m1").store, StartsWith("n03:2"));
  EXPECT_THAT(launch_on("m7,n[03-05]").store, StartsWith("m7:2"));
  EXPECT_THAT(launch_on("rack[1-2]n[07-9].cluster,m1").store, StartsWith("rack1n07.cluster:2"));
  EXPECT_THAT(launch_on("n[3]").store, StartsWith("n3:2"));
  EXPECT_EQ(launch_on("n[1,2]").store, launch_on("n[1,2]").store);
}

const Variables kByRank{{"RANK", "1"},
                        {"WORLD_SIZE", "4"},
                        {"LOCAL_WORLD_SIZE", "2"},
                        {"MASTER_ADDR", "127.0.0.1"},
                        {"MASTER_PORT", "29500"}};

Variables with(Variables variables, const Variables& more) {
  for (const auto& [name, value] : more) {
    variables[name] = value;
  }
  return variables;
}

TEST(LaunchEnvironment, RankAndMasterAreAStoreOfRankZero) {
  const LaunchEnvironment launch = LaunchEnvironment::detect(kByRank);
  EXPECT_EQ(launch.way, LaunchWay::Environment);
  EXPECT_EQ(launch.rank, 1);
  EXPECT_EQ(launch.size, 4);
  EXPECT_EQ(launch.local_size, 2);
  EXPECT_EQ(launch.store, "127.0.0.1:29500");
  EXPECT_FALSE(launch.is_store_served);
  EXPECT_EQ(launch.stated_by, "RANK=1 and WORLD_SIZE=4");
  EXPECT_NE(launch.job, "");
  EXPECT_EQ(LaunchEnvironment::detect(with(kByRank, {{"MASTER_ADDR", "::1"}})).store,
            "[::1]:29500");
  expect_launch(with(kByRank, {{"RANK", "0"}, {"WORLD_SIZE", "1"}}), "", 0);
  EXPECT_THROW((void)LaunchEnvironment::detect(with(kByRank, {{"MASTER_PORT", "none"}})),
               InvalidArgument);
}

TEST(LaunchEnvironment, TorchrunsRestartsDifferInTheirPrefix) {
  const Variables torchrun = with(kByRank, {{"TORCHELASTIC_RUN_ID", "x"},
                                            {"TORCHELASTIC_RESTART_COUNT", "0"},
                                            {"TORCHELASTIC_USE_AGENT_STORE", "True"}});
  const LaunchEnvironment launch = LaunchEnvironment::detect(torchrun);
  EXPECT_EQ(launch.way, LaunchWay::Torchrun);
  EXPECT_TRUE(launch.is_store_served);
  const LaunchEnvironment again =
      LaunchEnvironment::detect(with(torchrun, {{"TORCHELASTIC_RESTART_COUNT", "1"}}));
  EXPECT_NE(again.prefix, launch.prefix);
  EXPECT_NE(again.job, launch.job);
  EXPECT_FALSE(
      LaunchEnvironment::detect(with(torchrun, {{"TORCHELASTIC_USE_AGENT_STORE", "False"}}))
          .is_store_served);
}

TEST(LaunchEnvironment, BfrunsMarkerComesFirst) {
  const Variables bfrun = with(kByRank, {{"BFRUN_STORE", "127.0.0.1:4711"},
                                         {"BFRUN_STORE_SECRET", "a secret"},
                                         {"BFRUN_RANK", "1"},
                                         {"BFRUN_SIZE", "4"}});
  const LaunchEnvironment launch = LaunchEnvironment::detect(bfrun);
  EXPECT_EQ(launch.way, LaunchWay::Bfrun);
  EXPECT_EQ(launch.store, "127.0.0.1:4711");
  EXPECT_EQ(launch.secret, "a secret");
  EXPECT_THAT(
      refusal_of(with(bfrun, {{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "4"}})),
      StartsWith("BFRUN_RANK=1 and BFRUN_SIZE=4, by bfrun, and OMPI_COMM_WORLD_RANK=0 and "
                 "OMPI_COMM_WORLD_SIZE=4, by Open MPI: expected both"));
  // A program that a rank starts with another rank.
  EXPECT_THAT(
      refusal_of(with(bfrun, {{"RANK", "3"}})),
      AllOf(HasSubstr("BFRUN_RANK=1"), HasSubstr("RANK=3 and WORLD_SIZE=4, by MASTER_ADDR")));
  EXPECT_EQ(
      LaunchEnvironment::detect(with(bfrun, {{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "2"}}))
          .way,
      LaunchWay::Bfrun);
  EXPECT_THROW((void)LaunchEnvironment::detect(with(bfrun, {{"BFRUN_STORE", "nowhere"}})),
               InvalidArgument);
}

TEST(LaunchEnvironment, RefusesLaunchersOfOthersByTheirVariables) {
  EXPECT_THAT(refusal_of({{"RANK", "1"}, {"WORLD_SIZE", "2"}}),
              testing::AllOf(StartsWith("RANK=1 and WORLD_SIZE=2 say that a launcher started 2"),
                             HasSubstr("start them with bfrun")));
  EXPECT_THAT(refusal_of({{"TORCHELASTIC_RUN_ID", "x"}, {"RANK", "0"}, {"WORLD_SIZE", "2"}}),
              StartsWith("TORCHELASTIC_RUN_ID=x, RANK=0 and WORLD_SIZE=2 say that torchrun"));
  EXPECT_THAT(refusal_of({{"PMI_SIZE", "2"}}), StartsWith("PMI_SIZE=2 says that PMI started 2"));
  EXPECT_THAT(refusal_of({{"MV2_COMM_WORLD_RANK", "0"}, {"MV2_COMM_WORLD_SIZE", "4"}}),
              StartsWith("MV2_COMM_WORLD_RANK=0 and MV2_COMM_WORLD_SIZE=4 say that MVAPICH"));
  EXPECT_THAT(refusal_of({{"MVP_COMM_WORLD_RANK", "0"}, {"MVP_COMM_WORLD_SIZE", "4"}}),
              StartsWith("MVP_COMM_WORLD_RANK=0"));
  EXPECT_THAT(refusal_of({{"PALS_RANKID", "0"}, {"PALS_SIZE", "2"}}),
              StartsWith("PALS_RANKID=0 and PALS_SIZE=2 say that PALS"));
  EXPECT_THAT(refusal_of({{"PALS_RANKID", "1"}}), HasSubstr("PALS started several"));
  EXPECT_THAT(refusal_of({{"JSM_NAMESPACE_RANK", "1"}, {"JSM_NAMESPACE_SIZE", "2"}}),
              StartsWith("JSM_NAMESPACE_RANK=1 and JSM_NAMESPACE_SIZE=2 say that jsrun"));
  EXPECT_THAT(refusal_of({{"MPT_MPI_RANK", "0"}, {"MPT_MPI_SIZE", "2"}}),
              StartsWith("MPT_MPI_RANK=0 and MPT_MPI_SIZE=2 say that HPE MPT started 2"));
  EXPECT_THAT(refusal_of({{"HOROVOD_RANK", "0"}, {"HOROVOD_SIZE", "2"}}),
              StartsWith("HOROVOD_RANK=0 and HOROVOD_SIZE=2 say that horovodrun"));
  EXPECT_THAT(refusal_of({{"OMPI_COMM_WORLD_SIZE", "4"}}),
              StartsWith("OMPI_COMM_WORLD_SIZE=4 says that Open MPI started 4"));
  EXPECT_THAT(refusal_of({{"OMPI_COMM_WORLD_RANK", "1"}}),
              StartsWith("OMPI_COMM_WORLD_RANK=1 says that Open MPI started several"));
  EXPECT_THAT(refusal_of({{"BFRUN_RANK", "0"}, {"BFRUN_SIZE", "2"}}),
              StartsWith("BFRUN_RANK=0 and BFRUN_SIZE=2 say that bfrun"));
  EXPECT_THAT(refusal_of({{"FLUX_TASK_RANK", "0"}, {"FLUX_JOB_SIZE", "2"}}),
              StartsWith("FLUX_TASK_RANK=0 and FLUX_JOB_SIZE=2 say that Flux"));
}

// Each of these processes would take itself for the only one.
TEST(LaunchEnvironment, VariablesThatAreMissingOrMakeNoSenseAreNamed) {
  const auto error_of = [](const Variables& variables) -> std::string {
    try {
      (void)LaunchEnvironment::detect(variables);
    } catch (const InvalidArgument& error) {
      return error.what();
    }
    return "no InvalidArgument";
  };
  const Variables by_master{{"MASTER_ADDR", "h"}, {"MASTER_PORT", "29500"}};
  for (const Variables& more : {Variables{}, by_master, {{"TORCHELASTIC_RUN_ID", "x"}}}) {
    EXPECT_THAT(error_of(with(more, {{"RANK", "0"}, {"WORLD_SIZE", "abc"}})),
                StartsWith("RANK=0 and WORLD_SIZE=abc: expected a number of ranks, from 1 on, in "
                           "WORLD_SIZE, found none; start several ranks with bfrun"));
    EXPECT_THAT(error_of(with(more, {{"RANK", "1"}})),
                AllOf(StartsWith("RANK=1: expected WORLD_SIZE beside it, found none"),
                      HasSubstr("or unset it to run")));
    EXPECT_THAT(error_of(with(more, {{"RANK", "1"}, {"WORLD_SIZE", ""}})), StartsWith("RANK=1: "));
    EXPECT_THAT(error_of(with(more, {{"RANK", "-1"}, {"WORLD_SIZE", "2"}})),
                HasSubstr("expected a rank, from 0 on, in RANK"));
    EXPECT_THAT(error_of(with(more, {{"RANK", "2"}, {"WORLD_SIZE", "2"}})),
                HasSubstr("expected a rank below the number of ranks in RANK"));
    EXPECT_THAT(error_of(with(more, {{"RANK", "1"}, {"WORLD_SIZE", "1"}})),
                StartsWith("RANK=1 and WORLD_SIZE=1: expected a rank below"));
    EXPECT_THAT(error_of(with(more, {{"RANK", "0"}, {"WORLD_SIZE", "0"}})),
                HasSubstr("expected a number of ranks, from 1 on"));
    EXPECT_THAT(error_of(with(more, {{"RANK", "0"}, {"WORLD_SIZE", "\x1b[2J"}})),
                StartsWith("RANK=0 and WORLD_SIZE='?[2J': "));
  }
  EXPECT_THAT(error_of(with(by_master, {{"WORLD_SIZE", "2"}})),
              StartsWith("WORLD_SIZE=2: expected RANK beside it"));
  EXPECT_THAT(error_of(with(by_master, {{"RANK", "0"}})),
              StartsWith("RANK=0: expected WORLD_SIZE beside it"));
  EXPECT_THAT(error_of({{"BFRUN_STORE", "127.0.0.1:4711"}, {"BFRUN_SIZE", "2"}}),
              StartsWith("BFRUN_SIZE=2: expected BFRUN_RANK beside it"));
  EXPECT_THAT(error_of({{"PMIX_RANK", "1"}}), StartsWith("PMIX_RANK=1: expected PMIX_NAMESPACE"));
  EXPECT_THAT(error_of({{"SLURM_PROCID", "1"}}),
              StartsWith("SLURM_PROCID=1: expected SLURM_STEP_NUM_TASKS beside it"));
  for (const char* const launcher : {"OMPI_COMM_WORLD", "PMI", "MV2_COMM_WORLD", "MPT_MPI"}) {
    const std::string name = launcher;
    for (const char* const size : {"many", "-3", "0"}) {
      EXPECT_THAT(
          error_of({{name + "_RANK", "0"}, {name + "_SIZE", size}}),
          StartsWith(name + "_RANK=0 and " + name + "_SIZE=" + size + ": expected a number"));
    }
  }
}

/// Such a process would be rank 0 of 1: a batch script without srun.
TEST(LaunchEnvironment, ANumberOfRanksWithoutAPlaceAmongThemIsRefused) {
  EXPECT_THAT(refusal_of({{"WORLD_SIZE", "4"}}),
              testing::AllOf(StartsWith("WORLD_SIZE=4: expected 4 processes that a launcher"),
                             HasSubstr("set BLUEFOG_EXPECT_SIZE=1, to run as a single process")));
  EXPECT_THAT(refusal_of({{"SLURM_NTASKS", "8"}, {"SLURM_PROCID", "0"}, {"SLURM_JOB_ID", "7"}}),
              StartsWith("SLURM_NTASKS=8: expected 8 processes"));
  EXPECT_THAT(refusal_of({{"WORLD_SIZE", "4"}, {"BLUEFOG_EXPECT_SIZE", "4"}}),
              StartsWith("WORLD_SIZE=4: "));
  const Variables by_mpi{{"OMPI_COMM_WORLD_SIZE", "2"}, {"OMPI_COMM_WORLD_RANK", "1"}};
  const Variables by_slurm{{"SLURM_PROCID", "1"}, {"SLURM_STEP_NUM_TASKS", "2"}};
  for (const Variables& launch : {by_mpi, by_slurm}) {
    EXPECT_THAT(refusal_of(with(launch, {{"WORLD_SIZE", "4"}})), HasSubstr("says, found 2; start"));
    EXPECT_EQ(LaunchEnvironment::detect(with(launch, {{"WORLD_SIZE", "2"}})).size, 2);
  }
}

TEST(LaunchEnvironment, NumbersThatMakeNoSeveralRanksAreQuiet) {
  expect_launch({{"RANK", "0"}, {"WORLD_SIZE", "1"}}, "", 0);
  expect_launch({{"TORCHELASTIC_RUN_ID", "x"}, {"RANK", "0"}, {"WORLD_SIZE", "1"}}, "", 0);
  expect_launch({{"WORLD_SIZE", "2"}, {"BLUEFOG_EXPECT_SIZE", "1"}}, "", 0);
  expect_launch({{"RANK", "0"}}, "", 0);
  expect_launch({{"RANK", ""}, {"WORLD_SIZE", ""}}, "", 0);
  expect_launch({{"MASTER_ADDR", "h"}, {"MASTER_PORT", "1"}, {"WORLD_SIZE", "1"}}, "", 0);
  expect_launch({{"SLURM_NTASKS", "8"}, {"BLUEFOG_EXPECT_SIZE", "1"}}, "", 0);
  expect_launch({{"SLURM_NTASKS", "1"}, {"SLURM_PROCID", "0"}}, "", 0);
  expect_launch({{"PALS_RANKID", "0"}}, "", 0);
  expect_launch({{"MPT_MPI_RANK", "0"}, {"MPT_MPI_SIZE", "1"}}, "", 0);
  expect_launch({{"SLURM_PROCID", "0"}}, "", 0);
  expect_launch({{"MV2_COMM_WORLD_RANK", "0"}, {"MV2_COMM_WORLD_SIZE", "1"}}, "", 0);
}

// bfrun sets torch's variables too.
TEST(LaunchEnvironment, OpenMpiComesBeforeRankAndWorldSize) {
  Variables variables{{"OMPI_COMM_WORLD_SIZE", "4"},
                      {"OMPI_COMM_WORLD_RANK", "1"},
                      {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                      {"RANK", "1"},
                      {"WORLD_SIZE", "4"}};
  const LaunchEnvironment launch = LaunchEnvironment::detect(variables);
  EXPECT_EQ(launch.launcher, "Open MPI");
  EXPECT_EQ(launch.rank, 1);
  EXPECT_EQ(launch.local_size, 2);
  EXPECT_EQ(launch.stated_by, "OMPI_COMM_WORLD_RANK=1 and OMPI_COMM_WORLD_SIZE=4");
  variables["TORCHELASTIC_RUN_ID"] = "x";
  expect_launch(variables, "Open MPI", 4);
  variables["RANK"] = "3";
  EXPECT_THAT(refusal_of(variables),
              StartsWith("RANK=3 and WORLD_SIZE=4, by torchrun, and OMPI_COMM_WORLD_RANK=1 and "
                         "OMPI_COMM_WORLD_SIZE=4, by Open MPI: expected both"));
}

TEST(LaunchEnvironment, JobsOfTheSameNameDifferByTheirServers) {
  const auto job_of = [](const std::string& place) {
    return LaunchEnvironment::detect({{"PMIX_RANK", "0"},
                                      {"PMIX_NAMESPACE", "prterun-host-7@1"},
                                      {"PMIX_SERVER_URI41", "x.0;tcp4://127.0.0.1:" + place}})
        .job;
  };
  EXPECT_EQ(job_of("5234"), job_of("5234"));
  EXPECT_NE(job_of("5234"), job_of("5235"));
  EXPECT_NE(job_of("5234"), "");
  EXPECT_EQ(LaunchEnvironment::detect(Variables{}).job, "");
}

// Changes variables of this process and puts them back.
class Environment {
 public:
  explicit Environment(const Variables& changes) {
    for (const char* name : {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "PMIX_RANK",
                             "PMI_RANK", "PMI_SIZE", "SLURM_PROCID", "RANK", "WORLD_SIZE"}) {
      change(name, nullptr);
    }
    for (const auto& [name, value] : changes) {
      change(name, value.c_str());
    }
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;
  ~Environment() {
    for (const auto& [name, value] : before_) {
      value.empty() ? ::unsetenv(name.c_str()) : ::setenv(name.c_str(), value.c_str(), 1);
    }
  }

 private:
  void change(const std::string& name, const char* value) {
    const char* before = std::getenv(name.c_str());
    before_.try_emplace(name, before == nullptr ? "" : before);
    value == nullptr ? ::unsetenv(name.c_str()) : ::setenv(name.c_str(), value, 1);
  }

  Variables before_;
};

TEST(DefaultBootstrap, AProcessWithoutLauncherIsAlone) {
  const Environment environment({});
  const auto bootstrap =
      make_default_bootstrap(Settings{}, Deadline::after(std::chrono::seconds(5)));
  EXPECT_EQ(bootstrap->name(), "single");
  EXPECT_EQ(bootstrap->rank(), 0);
  EXPECT_EQ(bootstrap->size(), 1);
  EXPECT_EQ(bootstrap->allgather({}, Deadline::never()).size(), 1);
}

TEST(DefaultBootstrap, WithoutMpiALaunchOfSeveralRanksIsRefused) {
  if (mpi::is_available()) {
    GTEST_SKIP() << "this build has MPI";
  }
  const Environment environment({{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}});
  EXPECT_THROW((void)make_default_bootstrap(Settings{}, Deadline::never()), UnsupportedError);
}

TEST(DefaultBootstrap, WithoutMpiALaunchOfOneRankIsAlone) {
  if (mpi::is_available()) {
    GTEST_SKIP() << "this build has MPI";
  }
  const Environment environment({{"PMI_RANK", "0"}, {"PMI_SIZE", "1"}});
  EXPECT_EQ(make_default_bootstrap(Settings{}, Deadline::never())->name(), "single");
}

TEST(LaunchEnvironment, APlaceBesideAStoreIsTheLaunchersToo) {
  const auto refusal = [](int rank, int size, const Variables& variables) -> std::string {
    try {
      LaunchEnvironment::check_handed_place(rank, size, variables);
    } catch (const UnsupportedError& error) {
      return error.what();
    }
    return "";
  };
  const Variables by_torchrun{{"RANK", "1"}, {"WORLD_SIZE", "4"}, {"TORCHELASTIC_RUN_ID", "x"}};
  EXPECT_EQ(refusal(1, 4, by_torchrun), "");
  EXPECT_EQ(refusal(0, 1, {}), "");
  EXPECT_EQ(refusal(0, 1, {{"RANK", "3"}}), "") << "half a place is none";
  for (const auto& [rank, size] : {std::pair(0, 4), std::pair(1, 2)}) {
    EXPECT_THAT(refusal(rank, size, by_torchrun),
                ::testing::AllOf(::testing::HasSubstr("RANK=1 and WORLD_SIZE=4, by torchrun"),
                                 ::testing::HasSubstr(rank == 0 ? "rank 0 of 4" : "rank 1 of 2")));
  }
  EXPECT_THAT(refusal(0, 2, {{"BFRUN_RANK", "1"}, {"BFRUN_SIZE", "2"}}),
              ::testing::HasSubstr("BFRUN_RANK=1 and BFRUN_SIZE=2, by bfrun"));
  EXPECT_THAT(refusal(0, 2, {{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "3"}}),
              ::testing::HasSubstr("by Open MPI"));
}

}  // namespace
}  // namespace bluefog
