#include "bluefog_cpp/thread_bootstrap.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <exception>
#include <functional>
#include <string>
#include <thread>

#include "bluefog_cpp/error.hpp"

namespace bluefog {
namespace {

using ::testing::HasSubstr;

Deadline soon() { return Deadline::after(std::chrono::seconds(5)); }

Bootstrap::Blob blob_of(std::size_t bytes, int value) {
  return Bootstrap::Blob(bytes, static_cast<std::byte>(value));
}

// Runs `body` as every rank; a rank's bootstrap goes when its body returns or throws.
// Rethrows the first rank's exception.
void on_ranks(int size, const std::function<void(Bootstrap&)>& body) {
  auto bootstraps = make_thread_bootstraps(size);
  std::vector<std::exception_ptr> errors(size);
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < size; ++rank) {
      threads.emplace_back([&errors, &body, rank, own = std::move(bootstraps[rank])]() mutable {
        try {
          body(*own);
        } catch (...) {
          errors[rank] = std::current_exception();
        }
        own.reset();
      });
    }
  }
  for (const auto& error : errors) {
    if (error) {
      std::rethrow_exception(error);
    }
  }
}

class ThreadBootstrapTest : public testing::TestWithParam<int> {};

TEST_P(ThreadBootstrapTest, GathersBlobsOfDifferentLengthsAgainAndAgain) {
  const int size = GetParam();
  on_ranks(size, [size](Bootstrap& bootstrap) {
    EXPECT_EQ(bootstrap.size(), size);
    EXPECT_TRUE(bootstrap.in_process());
    EXPECT_EQ(bootstrap.name(), size == 1 ? "single" : "threads");
    for (int round = 0; round < 100; ++round) {
      const auto own = blob_of((bootstrap.rank() + round) % 5, bootstrap.rank() + round);
      const auto blobs = bootstrap.allgather(own, soon());
      ASSERT_EQ(blobs.size(), size);
      for (int rank = 0; rank < size; ++rank) {
        EXPECT_EQ(blobs[rank], blob_of((rank + round) % 5, rank + round));
      }
    }
  });
}

TEST_P(ThreadBootstrapTest, BarrierWaitsForAll) {
  std::atomic<int> entered = 0;
  on_ranks(GetParam(), [&entered](Bootstrap& bootstrap) {
    for (int round = 1; round <= 20; ++round) {
      ++entered;
      bootstrap.barrier(soon());
      EXPECT_GE(entered.load(), round * bootstrap.size());
      bootstrap.barrier(soon());
    }
  });
}

TEST_P(ThreadBootstrapTest, DuplicatesAreIndependent) {
  on_ranks(GetParam(), [](Bootstrap& bootstrap) {
    const auto other = bootstrap.duplicate(soon());
    EXPECT_EQ(other->rank(), bootstrap.rank());
    EXPECT_EQ(other->size(), bootstrap.size());
    // Different orders on the two would deadlock if they shared anything.
    std::jthread second([&other] { other->barrier(soon()); });
    const auto blobs = bootstrap.allgather(blob_of(1, bootstrap.rank()), soon());
    EXPECT_EQ(blobs.back(), blob_of(1, bootstrap.size() - 1));
  });
}

INSTANTIATE_TEST_SUITE_P(Sizes, ThreadBootstrapTest, testing::Values(1, 2, 3, 8));

TEST(ThreadBootstrap, NamesTheRanksThatDoNotCome) {
  auto bootstraps = make_thread_bootstraps(3);
  try {
    bootstraps[1]->barrier(Deadline::after(std::chrono::milliseconds(20)));
    FAIL() << "expected TimeoutError";
  } catch (const TimeoutError& error) {
    EXPECT_STREQ(
        error.what(),
        "bootstrap barrier on rank 1: expected all 3 ranks within 0.02 s (BLUEFOG_TIMEOUT), ranks "
        "0, 2 have not come");
  }
}

TEST(ThreadBootstrap, GoesOnAfterATimeout) {
  std::atomic<bool> timed_out = false;
  on_ranks(2, [&timed_out](Bootstrap& bootstrap) {
    if (bootstrap.rank() == 0) {
      EXPECT_THROW(bootstrap.barrier(Deadline::after(std::chrono::milliseconds(1))), TimeoutError);
      timed_out = true;
      timed_out.notify_all();
    }
    timed_out.wait(false);
    EXPECT_EQ(bootstrap.allgather(blob_of(2, bootstrap.rank()), soon())[1], blob_of(2, 1));
  });
}

TEST(ThreadBootstrap, FailsWhenARankHasLeft) {
  on_ranks(3, [](Bootstrap& bootstrap) {
    if (bootstrap.rank() == 2) {
      return;
    }
    try {
      bootstrap.barrier(Deadline::never());
      FAIL() << "expected PeerFailure";
    } catch (const PeerFailure& failure) {
      // Rank 2 left; the other waiter may have left because of that.
      EXPECT_NE(failure.rank(), bootstrap.rank());
      EXPECT_THAT(failure.what(), HasSubstr("has left"));
    }
  });
}

TEST(ThreadBootstrap, DifferentCallsAreAnErrorOnEveryRankAndItGoesOn) {
  on_ranks(3, [](Bootstrap& bootstrap) {
    const auto call = [&bootstrap] {
      if (bootstrap.rank() == 1) {
        (void)bootstrap.duplicate(soon());
      } else {
        bootstrap.barrier(soon());
      }
    };
    try {
      call();
      FAIL() << "expected MismatchError";
    } catch (const MismatchError& error) {
      EXPECT_THAT(error.what(), HasSubstr("rank 0 called barrier, rank 1 called duplicate"));
    }
    bootstrap.barrier(soon());
  });
}

TEST(ThreadBootstrap, RefusesABlobThatIsTooLargeBeforeItMoves) {
  on_ranks(2, [](Bootstrap& bootstrap) {
    if (bootstrap.rank() == 0) {
      EXPECT_THROW((void)bootstrap.allgather(blob_of(Bootstrap::kMaxBlobBytes + 1, 0), soon()),
                   InvalidArgument);
    }
    EXPECT_EQ(bootstrap.allgather(blob_of(1, 7), soon()).size(), 2);
  });
}

TEST(ThreadBootstrap, LargestBlob) {
  on_ranks(2, [](Bootstrap& bootstrap) {
    const auto blobs = bootstrap.allgather(blob_of(Bootstrap::kMaxBlobBytes, 1), soon());
    EXPECT_EQ(blobs[1].size(), Bootstrap::kMaxBlobBytes);
  });
}

TEST(ThreadBootstrap, RefusesNoRanks) {
  EXPECT_THROW((void)make_thread_bootstraps(0), InvalidArgument);
  EXPECT_THROW((void)make_thread_bootstraps(-1), InvalidArgument);
}

}  // namespace
}  // namespace bluefog
