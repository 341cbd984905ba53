#include "tools/bfrun/rank/rank_shim.hpp"

#include <gtest/gtest.h>

namespace bluefog::bfrun {
namespace {

Environment open_mpi(const std::string& rank, const std::string& size,
                     const std::string& local_rank, const std::string& local_size) {
  return {{"OMPI_COMM_WORLD_RANK", rank},
          {"OMPI_COMM_WORLD_SIZE", size},
          {"OMPI_COMM_WORLD_LOCAL_RANK", local_rank},
          {"OMPI_COMM_WORLD_LOCAL_SIZE", local_size}};
}

TEST(RankIdentity, IsWhatOpenMpiSays) {
  EXPECT_EQ(read_identity(open_mpi("3", "4", "1", "2")), (RankIdentity{3, 4, 1, 2}));
  EXPECT_EQ(read_identity({}), std::nullopt);
  for (const auto& bad :
       {open_mpi("4", "4", "0", "2"), open_mpi("-1", "4", "0", "2"), open_mpi("x", "4", "0", "2"),
        open_mpi("0", "4", "2", "2"), open_mpi("0", "1", "0", "2")}) {
    EXPECT_EQ(read_identity(bad), std::nullopt);
  }
}

TEST(RankVariables, AreSetForEachRank) {
  Environment environment{{"RANK", "old"}, {"BFRUN_REPORT_KEY", "k"}, {"BFRUN_BIND", "auto"}};
  add_rank_variables({3, 4, 1, 2}, {8, 4, 4}, environment);
  const Environment expected{{"RANK", "3"},
                             {"WORLD_SIZE", "4"},
                             {"LOCAL_RANK", "1"},
                             {"LOCAL_WORLD_SIZE", "2"},
                             {"OMP_NUM_THREADS", "4"},
                             {"MKL_NUM_THREADS", "4"},
                             {"MALLOC_TRIM_THRESHOLD_", "4294967296"},
                             {"MALLOC_MMAP_THRESHOLD_", "1073741824"}};
  EXPECT_EQ(environment, expected);
}

TEST(RankVariables, TheUsersThreadsStay) {
  Environment environment{{"OMP_NUM_THREADS", "7"}};
  add_rank_variables({0, 2, 0, 2}, {8, 4, 4}, environment);
  EXPECT_EQ(environment.at("OMP_NUM_THREADS"), "7");
  EXPECT_EQ(environment.count("MKL_NUM_THREADS"), 0U);
}

TEST(RankVariables, TheUsersMallocStays) {
  for (const auto& [name, value] : Environment{{"MALLOC_TRIM_THRESHOLD_", "131072"},
                                               {"MALLOC_MMAP_THRESHOLD_", "131072"},
                                               {"GLIBC_TUNABLES", "glibc.malloc.top_pad=1"}}) {
    Environment environment{{name, value}};
    add_rank_variables({0, 2, 0, 2}, {8, 4, 4}, environment);
    EXPECT_EQ(environment.at(name), value);
    EXPECT_EQ(
        environment.count("MALLOC_TRIM_THRESHOLD_") + environment.count("MALLOC_MMAP_THRESHOLD_"),
        name == "GLIBC_TUNABLES" ? 0U : 1U);
  }
  Environment others{{"GLIBC_TUNABLES", "glibc.cpu.hwcaps=-AVX512F"}};
  add_rank_variables({0, 2, 0, 2}, {8, 4, 4}, others);
  EXPECT_EQ(others.count("MALLOC_TRIM_THRESHOLD_"), 1U);
}

TEST(RankVariables, MpiYieldsWhenRanksOutnumberCores) {
  Environment environment;
  add_rank_variables({0, 4, 0, 4}, {2, 0, 1}, environment);
  EXPECT_EQ(environment.at("OMPI_MCA_mpi_yield_when_idle"), "1");
  Environment own{{"OMPI_MCA_mpi_yield_when_idle", "0"}};
  add_rank_variables({0, 4, 0, 4}, {2, 0, 1}, own);
  EXPECT_EQ(own.at("OMPI_MCA_mpi_yield_when_idle"), "0");
}

}  // namespace
}  // namespace bluefog::bfrun
