#include "tools/bfrun/rank/binding.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "tools/bfrun/options.hpp"

namespace bluefog::bfrun {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

/// A folder of our own with files of given contents.
class Folder {
 public:
  Folder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "bfrunXXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  ~Folder() { std::filesystem::remove_all(path_); }

  void write(const std::string& name, const std::string& text) const {
    const auto file = path_ / name;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  [[nodiscard]] std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

void write_cpu(const Folder& folder, int cpu, int package, int core) {
  const std::string topology = "cpu" + std::to_string(cpu) + "/topology/";
  folder.write(topology + "physical_package_id", std::to_string(package) + "\n");
  folder.write(topology + "core_id", std::to_string(core) + "\n");
}

TEST(Cores, HardwareThreadsOfOneCoreCountOnce) {
  const Folder folder;
  for (int cpu = 0; cpu < 8; ++cpu) {
    write_cpu(folder, cpu, cpu % 4 / 2, cpu % 2);
  }
  EXPECT_THAT(group_into_cores({0, 1, 2, 3, 4, 5, 6, 7}, folder.path()),
              ElementsAre(Core{0, {0, 4}}, Core{0, {1, 5}}, Core{1, {2, 6}}, Core{1, {3, 7}}));
  EXPECT_THAT(group_into_cores({5, 6}, folder.path()), ElementsAre(Core{0, {5}}, Core{1, {6}}));
}

TEST(Cores, WithoutTopologyEachThreadIsACore) {
  EXPECT_THAT(group_into_cores({2, 0}, "/nonexistent"), ElementsAre(Core{0, {0}}, Core{0, {2}}));
}

TEST(Quota, TightestGroupCountsInBothVersions) {
  const Folder folder;
  EXPECT_EQ(cgroup_quota_cores("0::/a/b\n", folder.path()), 0);
  folder.write("cpu.max", "max 100000\n");
  folder.write("a/cpu.max", "250000 100000\n");
  folder.write("a/b/cpu.max", "max 100000\n");
  EXPECT_EQ(cgroup_quota_cores("0::/a/b\n", folder.path()), 3);
  EXPECT_EQ(cgroup_quota_cores("0::/\n", folder.path()), 0);
  folder.write("cpu,cpuacct/docker/cpu.cfs_quota_us", "50000");
  folder.write("cpu,cpuacct/docker/cpu.cfs_period_us", "100000");
  EXPECT_EQ(cgroup_quota_cores("4:cpu,cpuacct:/docker\n0::/a\n", folder.path()), 1);
  folder.write("cpu,cpuacct/docker/cpu.cfs_quota_us", "-1");
  EXPECT_EQ(cgroup_quota_cores("4:cpu,cpuacct:/docker\n", folder.path()), 0);
  EXPECT_EQ(cgroup_quota_cores("nonsense\n::\n5\n", folder.path()), 0);
}

TEST(Placement, AutoBindsWhenRanksFitEvenly) {
  EXPECT_EQ(choose_placement(8, 0, 2, BindPolicy::Auto), (Placement{8, 4, 4}));
  EXPECT_EQ(choose_placement(2, 0, 2, BindPolicy::Auto), (Placement{2, 1, 1}));
  EXPECT_EQ(choose_placement(8, 0, 3, BindPolicy::Auto), (Placement{8, 0, 2}));
  EXPECT_EQ(choose_placement(2, 0, 8, BindPolicy::Auto), (Placement{2, 0, 1}));
  EXPECT_EQ(choose_placement(8, 0, 1, BindPolicy::Auto), (Placement{8, 0, 8}));
}

TEST(Placement, AQuotaLimitsThreadsAndBinding) {
  EXPECT_EQ(choose_placement(8, 4, 2, BindPolicy::Auto), (Placement{4, 0, 2}));
  EXPECT_EQ(choose_placement(8, 16, 2, BindPolicy::Auto), (Placement{8, 4, 4}));
}

TEST(Placement, PoliciesAreFollowed) {
  EXPECT_EQ(choose_placement(8, 0, 3, BindPolicy::Core), (Placement{8, 2, 2}));
  EXPECT_EQ(choose_placement(8, 0, 2, BindPolicy::None), (Placement{8, 0, 4}));
  EXPECT_THROW(static_cast<void>(choose_placement(2, 0, 3, BindPolicy::Core)), UsageError);
}

TEST(Placement, SharesAreDisjointAndInOrder) {
  const std::vector<Core> cores{{0, {0, 4}}, {0, {1, 5}}, {1, {2, 6}}, {1, {3, 7}}};
  const Placement placement{4, 2, 2};
  EXPECT_THAT(share_of(cores, placement, 0), ElementsAre(0, 4, 1, 5));
  EXPECT_THAT(share_of(cores, placement, 1), ElementsAre(2, 6, 3, 7));
  EXPECT_THAT(share_of(cores, Placement{4, 0, 2}, 1), IsEmpty());
}

TEST(Placement, IsDescribedInOneLine) {
  EXPECT_EQ(describe(2, 1, {2, 1, 1}, {}),
            "2 ranks on 1 host, 1 core each (bound), 1 thread per rank");
  EXPECT_EQ(describe(1, 1, {4, 0, 4}, {}),
            "1 rank on 1 host, not bound (4 cores), 4 threads per rank");
  EXPECT_EQ(describe(8, 2, {8, 2, 2}, {"OMP_NUM_THREADS=3", false}),
            "8 ranks on 2 hosts, 2 cores each (bound), OMP_NUM_THREADS=3 as set");
  EXPECT_EQ(describe(2, 1, {2, 0, 1}, {"", true}),
            "2 ranks on 1 host, bound by mpirun as its flags say, 1 thread per rank");
}

}  // namespace
}  // namespace bluefog::bfrun
