#include "tools/bfrun/start/environment.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace bluefog::bfrun {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Environment, ExportsWhatProgramsAndLibrariesLookFor) {
  for (const char* name :
       {"PATH", "HOME", "LD_LIBRARY_PATH", "BLUEFOG_TIMEOUT", "PYTHONPATH", "OMP_NUM_THREADS",
        "OMPI_MCA_btl", "MASTER_ADDR", "BFRUN_REPORT_KEY", "NCCL_DEBUG", "TORCH_HOME"}) {
    EXPECT_TRUE(is_exportable(name)) << name;
  }
  for (const char* name :
       {"HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "WANDB_API_KEY", "GITHUB_TOKEN", "PWD", "_",
        "HOSTNAME", "SSH_CLIENT", "BASH_FUNC_x%%", "LD_A.B", "1A", "PMIX_RANK",
        "OMPI_COMM_WORLD_RANK", "RANK", "TORCHELASTIC_RUN_ID", "DISPLAY", "A_1", ""}) {
    EXPECT_FALSE(is_exportable(name)) << name;
  }
  EXPECT_THAT(exportable_names({{"PATH", "/bin"}, {"A", "1"}, {"B", "2"}, {"HF_TOKEN", "3"}},
                               {"A", "B=2", "MISSING"}),
              ElementsAre("A", "B", "PATH"));
}

Environment job_variables(const Options& options, Environment environment,
                          std::vector<std::string>& warnings) {
  add_job_variables(options, {"10.0.0.1", 29500}, true, "key", environment, warnings);
  return environment;
}

TEST(Environment, CarriesWhatTheJobNeeds) {
  Options options;
  options.environment = {"A=1=2", "B", "MISSING"};
  options.timeline_filename = "trace";
  options.network_interface = "eth0";
  options.bind = BindPolicy::Core;
  std::vector<std::string> warnings;
  const auto environment = job_variables(options, {{"B", "kept"}, {"A", "old"}}, warnings);
  const Environment expected{{"A", "1=2"},
                             {"B", "kept"},
                             {"BFRUN_BIND", "core"},
                             {"BFRUN_REPORT_KEY", "key"},
                             {"BLUEFOG_TIMELINE", "trace"},
                             {"GLOO_SOCKET_IFNAME", "eth0"},
                             {"MASTER_ADDR", "10.0.0.1"},
                             {"MASTER_PORT", "29500"},
                             {"NCCL_SOCKET_IFNAME", "eth0"}};
  EXPECT_EQ(environment, expected);
  EXPECT_THAT(warnings, ElementsAre(HasSubstr("MISSING")));
}

TEST(Environment, TheUsersMasterStays) {
  std::vector<std::string> warnings;
  const auto environment =
      job_variables({}, {{"MASTER_ADDR", "head"}, {"MASTER_PORT", "1234"}}, warnings);
  EXPECT_EQ(environment.at("MASTER_ADDR"), "head");
  EXPECT_EQ(environment.at("MASTER_PORT"), "1234");
}

TEST(Environment, AllocationsAreIgnoredUnlessTheUserChose) {
  Environment five;
  ignore_allocations({5, 0, 11}, five);
  EXPECT_EQ(five.at("PRTE_MCA_plm"), "ssh");
  EXPECT_THAT(five.at("PRTE_MCA_ras"), HasSubstr("^slurm,"));
  EXPECT_EQ(five.size(), 2U);
  Environment four{{"OMPI_MCA_plm", "slurm"}};
  ignore_allocations({4, 1, 6}, four);
  EXPECT_EQ(four.at("OMPI_MCA_plm"), "slurm");
  EXPECT_THAT(four.at("OMPI_MCA_ras"), HasSubstr("^slurm,"));
}

TEST(Environment, BindPoliciesSurviveTheTrip) {
  for (const auto policy : {BindPolicy::Auto, BindPolicy::Core, BindPolicy::None}) {
    EXPECT_EQ(bind_policy_from(to_text(policy)), policy);
  }
  EXPECT_EQ(bind_policy_from("nonsense"), BindPolicy::None);
}

}  // namespace
}  // namespace bluefog::bfrun
