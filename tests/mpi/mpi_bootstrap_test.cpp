#include "bluefog_cpp/bootstrap/mpi_bootstrap.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <type_traits>

#include "bluefog_cpp/bootstrap/default_bootstrap.hpp"
#include "bluefog_cpp/error.hpp"
#include "tests/support/other_ranks.hpp"

namespace bluefog {
namespace {

using ::testing::HasSubstr;

Deadline soon() { return Deadline::after(std::chrono::seconds(10)); }

Bootstrap::Blob blob_of(std::size_t bytes, int value) {
  return Bootstrap::Blob(bytes, static_cast<std::byte>(value));
}

std::shared_ptr<Bootstrap> make() { return make_default_bootstrap(Settings{}, soon()); }

TEST(MpiBootstrap, IsTheDefaultUnderALauncher) {
  const auto bootstrap = make();
  EXPECT_EQ(bootstrap->name(), "mpi");
  EXPECT_FALSE(bootstrap->in_process());
  if (const char* size = std::getenv("OMPI_COMM_WORLD_SIZE")) {
    EXPECT_EQ(std::to_string(bootstrap->size()), size);
    EXPECT_EQ(std::to_string(bootstrap->rank()), std::getenv("OMPI_COMM_WORLD_RANK"));
  }
}

// The variables of Open MPI itself are absent, as under srun --mpi=pmix.
TEST(MpiBootstrap, KnowsPmixAlone) {
  const char* size = std::getenv("OMPI_COMM_WORLD_SIZE");
  if (size == nullptr || std::getenv("PMIX_RANK") == nullptr) {
    GTEST_SKIP() << "not started by a launcher that sets both";
  }
  const std::string kept = size;
  ::unsetenv("OMPI_COMM_WORLD_SIZE");
  const auto bootstrap = make();
  ::setenv("OMPI_COMM_WORLD_SIZE", kept.c_str(), 1);
  EXPECT_EQ(bootstrap->name(), "mpi");
  EXPECT_EQ(std::to_string(bootstrap->size()), kept);
}

// The mpirun of another MPI makes each process rank 0 of 1.
TEST(MpiBootstrap, FewerRanksThanTheLauncherNamesAreRefused) {
  const char* size = std::getenv("OMPI_COMM_WORLD_SIZE");
  if (size == nullptr) {
    GTEST_SKIP() << "not started by Open MPI's launcher";
  }
  const std::string kept = size;
  const std::string more = std::to_string(std::stoi(kept) + 1);
  ::setenv("OMPI_COMM_WORLD_SIZE", more.c_str(), 1);
  // bfrun has set this one too, and two launchers that disagree are another error.
  const bool by_bfrun = std::getenv("WORLD_SIZE") != nullptr;
  if (by_bfrun) {
    ::setenv("WORLD_SIZE", more.c_str(), 1);
  }
  try {
    (void)make();
    ADD_FAILURE() << "expected UnsupportedError";
  } catch (const UnsupportedError& error) {
    EXPECT_THAT(error.what(), HasSubstr("OMPI_COMM_WORLD_SIZE=" + more +
                                        " say that Open MPI started " + more + " processes"));
    EXPECT_THAT(error.what(), HasSubstr(" of " + kept + "; start them with bfrun"));
  }
  ::setenv("OMPI_COMM_WORLD_SIZE", kept.c_str(), 1);
  if (by_bfrun) {
    ::setenv("WORLD_SIZE", kept.c_str(), 1);
  }
  EXPECT_EQ(std::to_string(make()->size()), kept);
}

TEST(MpiBootstrap, GathersBlobsOfDifferentLengthsAgainAndAgain) {
  const auto bootstrap = make();
  for (const std::size_t step : {0, 1, 63, 64, 65, 1000}) {
    const auto length = [step](int rank) { return step * static_cast<std::size_t>(rank + 1); };
    const auto blobs =
        bootstrap->allgather(blob_of(length(bootstrap->rank()), bootstrap->rank()), soon());
    ASSERT_EQ(blobs.size(), bootstrap->size());
    for (int rank = 0; rank < bootstrap->size(); ++rank) {
      EXPECT_EQ(blobs[rank], blob_of(length(rank), rank));
    }
  }
}

TEST(MpiBootstrap, BarrierWaitsForAll) {
  const auto bootstrap = make();
  if (bootstrap->rank() == bootstrap->size() - 1) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  const auto entered = std::chrono::steady_clock::now().time_since_epoch().count();
  bootstrap->barrier(soon());
  const auto left = std::chrono::steady_clock::now().time_since_epoch().count();
  // One host, one clock: nobody leaves before the last one entered.
  Bootstrap::Blob mine(sizeof entered);
  std::memcpy(mine.data(), &entered, sizeof entered);
  for (const auto& blob : bootstrap->allgather(mine, soon())) {
    std::remove_const_t<decltype(entered)> theirs = 0;
    ASSERT_EQ(blob.size(), sizeof theirs);
    std::memcpy(&theirs, blob.data(), sizeof theirs);
    EXPECT_GE(left, theirs);
  }
}

TEST(MpiBootstrap, DuplicatesAreIndependent) {
  const auto bootstrap = make();
  const auto other = bootstrap->duplicate(soon());
  EXPECT_EQ(other->rank(), bootstrap->rank());
  EXPECT_EQ(other->size(), bootstrap->size());
  // Different orders on the two would deadlock if they shared anything.
  std::jthread second([&other] { other->barrier(soon()); });
  EXPECT_EQ(bootstrap->allgather(blob_of(1, bootstrap->rank()), soon()).back(),
            blob_of(1, bootstrap->size() - 1));
}

TEST(MpiBootstrap, RefusesABlobThatIsTooLargeBeforeItMoves) {
  const auto bootstrap = make();
  if (bootstrap->rank() == 0) {
    EXPECT_THROW((void)bootstrap->allgather(blob_of(Bootstrap::kMaxBlobBytes + 1, 0), soon()),
                 InvalidArgument);
  }
  EXPECT_EQ(bootstrap->allgather(blob_of(1, 7), soon()).size(), bootstrap->size());
}

TEST(MpiBootstrap, LargestBlob) {
  const auto bootstrap = make();
  const std::size_t bytes = bootstrap->rank() == 0 ? Bootstrap::kMaxBlobBytes : 3;
  const auto blobs = bootstrap->allgather(blob_of(bytes, 1), soon());
  EXPECT_EQ(blobs[0], blob_of(Bootstrap::kMaxBlobBytes, 1));
}

TEST(MpiBootstrap, DifferentCallsAreAnErrorOnEveryRankAndItGoesOn) {
  const auto bootstrap = make();
  if (bootstrap->size() < 2) {
    GTEST_SKIP() << testing::other_ranks("two ranks");
  }
  const auto call = [&bootstrap] {
    if (bootstrap->rank() == 1) {
      (void)bootstrap->duplicate(soon());
    } else {
      bootstrap->barrier(soon());
    }
  };
  try {
    call();
    FAIL() << "expected MismatchError";
  } catch (const MismatchError& error) {
    EXPECT_THAT(error.what(), HasSubstr("rank 0 called barrier, rank 1 called duplicate"));
  }
  bootstrap->barrier(soon());
}

TEST(MpiBootstrap, ARankThatDoesNotComeEndsInATimeout) {
  const auto bootstrap = make();
  const auto meeting_point = make();
  if (bootstrap->size() < 2) {
    GTEST_SKIP() << testing::other_ranks("two ranks");
  }
  if (bootstrap->rank() != 0) {
    try {
      bootstrap->barrier(Deadline::after(std::chrono::milliseconds(20)));
      ADD_FAILURE() << "expected TimeoutError";
    } catch (const TimeoutError& error) {
      EXPECT_THAT(error.what(),
                  HasSubstr("bootstrap barrier on rank " + std::to_string(bootstrap->rank()) +
                            ": expected all " + std::to_string(bootstrap->size()) +
                            " ranks within 0.02 s (BLUEFOG_TIMEOUT), one or more have not come"));
    }
    EXPECT_THROW(bootstrap->barrier(soon()), StateError);
  }
  meeting_point->barrier(soon());
}

TEST(MpiBootstrap, ARankThatMakesNoneIsNamed) {
  const auto meeting_point = make();
  if (meeting_point->size() < 2) {
    GTEST_SKIP() << testing::other_ranks("two ranks");
  }
  const std::string last = std::to_string(meeting_point->size() - 1);
  if (meeting_point->rank() != 0) {
    // The time until these ranks give up is long enough for all others to come.
    meeting_point->barrier(soon());
    try {
      const auto deadline = Deadline::after(std::chrono::milliseconds(500));
      (void)make_default_bootstrap(Settings{}, deadline);
      ADD_FAILURE() << "expected TimeoutError";
    } catch (const TimeoutError& error) {
      EXPECT_THAT(error.what(), HasSubstr(" ranks within 0.5 s (BLUEFOG_TIMEOUT)"));
      EXPECT_THAT(error.what(), HasSubstr(last + "; not seen: 0"));
    }
    meeting_point->barrier(soon());
  } else {
    meeting_point->barrier(soon());
    meeting_point->barrier(soon());
    // The others began it and gave up: the first call meets theirs, the next one nobody.
    const auto deadline = Deadline::after(std::chrono::milliseconds(500));
    EXPECT_THROW((void)make_default_bootstrap(Settings{}, deadline), TimeoutError);
  }
  meeting_point->barrier(soon());
}

}  // namespace
}  // namespace bluefog
