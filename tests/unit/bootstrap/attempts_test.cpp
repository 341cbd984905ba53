// Restarts of a launch in the store of the starts before.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "bluefog_cpp/bootstrap/launch_environment.hpp"
#include "tests/unit/bootstrap/store_ranks.hpp"

namespace bluefog {
namespace {

using testing_store::blob_of;
using testing_store::expect_none;
using testing_store::join;
using testing_store::make_contents;
using testing_store::on_ranks;
using testing_store::soon;

// The first one is not over when it is given up: rank 1 has asked, and is gone.
TEST(StoreBootstrap, AttemptsInOneStoreDoNotMeetEachOther) {
  const auto contents = make_contents();
  const StorePlace place{.size = 3, .has_attempts = true};
  const auto of = [&place](int rank) {
    StorePlace own = place;
    own.rank = rank;
    return own;
  };
  const auto first = on_ranks(3, [&](int rank) {
    if (rank == 1) {
      (void)join(contents, of(1), Deadline::after(std::chrono::milliseconds(50)));
    } else if (rank == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      (void)join(contents, of(0), Deadline::after(std::chrono::milliseconds(300)));
    }
  });
  EXPECT_THAT(first[1], ::testing::HasSubstr("rank 0 has not come"));
  EXPECT_THAT(first[0], ::testing::HasSubstr("ranks 1, 2 have not come"));
  for (int attempt = 0; attempt < 2; ++attempt) {
    std::vector<std::shared_ptr<Bootstrap>> all(3);
    expect_none(on_ranks(3, [&](int rank) {
      all[static_cast<std::size_t>(rank)] = join(contents, of(rank));
      const auto blobs =
          all[static_cast<std::size_t>(rank)]->allgather(blob_of(1, attempt * 10 + rank), soon());
      for (int other = 0; other < 3; ++other) {
        EXPECT_EQ(blobs[static_cast<std::size_t>(other)], blob_of(1, attempt * 10 + other));
      }
    }));
  }
}

LaunchEnvironment of_agents(const std::string& agents, const std::string& restarts) {
  return LaunchEnvironment::detect({{"RANK", "1"},
                                    {"WORLD_SIZE", "4"},
                                    {"MASTER_ADDR", "127.0.0.1"},
                                    {"MASTER_PORT", "29500"},
                                    {"TORCHELASTIC_RUN_ID", "x"},
                                    {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                                    {"TORCHELASTIC_RESTART_COUNT", restarts},
                                    {"GROUP_WORLD_SIZE", agents}});
}

// They count restarts each for itself: after one that has only followed another's both differ.
TEST(LaunchEnvironment, AgentsOfTorchrunHaveOnePrefixForAllRestarts) {
  EXPECT_TRUE(of_agents("2", "0").has_attempts);
  EXPECT_EQ(of_agents("2", "1").prefix, of_agents("2", "0").prefix);
  EXPECT_FALSE(of_agents("1", "0").has_attempts);
  EXPECT_NE(of_agents("1", "1").prefix, of_agents("1", "0").prefix);
}

}  // namespace
}  // namespace bluefog
