#include "tools/bfrun/start/slurm.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace bluefog::bfrun {
namespace {

using ::testing::ElementsAre;
using ::testing::Optional;

TEST(Nodelist, IsExpanded) {
  EXPECT_THAT(expand_nodelist("n1"), Optional(ElementsAre("n1")));
  EXPECT_THAT(expand_nodelist("n[1-3,07],m2"),
              Optional(ElementsAre("n1", "n2", "n3", "n07", "m2")));
  EXPECT_THAT(expand_nodelist("rack[08-10]-ib"),
              Optional(ElementsAre("rack08-ib", "rack09-ib", "rack10-ib")));
  for (const char* bad :
       {"", "n[1-", "n[3-1]", "n[x]", "n1]", "a,,b", "n[1][2]", "n[0-99999999]"}) {
    EXPECT_EQ(expand_nodelist(bad), std::nullopt) << bad;
  }
}

TEST(TaskCounts, AreExpanded) {
  EXPECT_THAT(expand_counts("4"), Optional(ElementsAre(4)));
  EXPECT_THAT(expand_counts("2(x3),1"), Optional(ElementsAre(2, 2, 2, 1)));
  for (const char* bad : {"", "2(x", "2(x)", "0", "-1", "x", "2(x0)", "2(x99999999)"}) {
    EXPECT_EQ(expand_counts(bad), std::nullopt) << bad;
  }
}

TEST(SlurmHosts, AreThoseOfTheJob) {
  const Environment job{
      {"SLURM_JOB_ID", "17"}, {"SLURM_JOB_NODELIST", "n[1-2]"}, {"SLURM_TASKS_PER_NODE", "2,1"}};
  EXPECT_THAT(slurm_hosts(job), Optional(ElementsAre(HostSlots{"n1", 2}, HostSlots{"n2", 1})));
  for (const auto& [name, value] : job) {
    Environment partial = job;
    partial.erase(name);
    EXPECT_EQ(slurm_hosts(partial), std::nullopt) << "without " << name;
  }
  Environment other = job;
  other["SLURM_TASKS_PER_NODE"] = "2(x3)";
  EXPECT_EQ(slurm_hosts(other), std::nullopt);
}

}  // namespace
}  // namespace bluefog::bfrun
