#include "bluefog_cpp/store_bootstrap.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <exception>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "bluefog_cpp/error.hpp"
#include "bluefog_cpp/store/memory_store.hpp"
#include "tests/unit/bootstrap/store_ranks.hpp"

namespace bluefog {
namespace {

using testing_store::blob_of;
using testing_store::expect_none;
using testing_store::join;
using testing_store::make_contents;
using testing_store::on_ranks;
using testing_store::quiet;
using testing_store::SharedContents;
using testing_store::soon;

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::HasSubstr;

class StoreBootstrapTest : public ::testing::TestWithParam<int> {};

TEST_P(StoreBootstrapTest, GathersBlobsOfDifferentLengthsAgainAndAgain) {
  const auto contents = make_contents();
  const int size = GetParam();
  expect_none(on_ranks(size, [&](int rank) {
    const auto bootstrap = join(contents, {.rank = rank, .size = size});
    EXPECT_EQ(bootstrap->rank(), rank);
    EXPECT_EQ(bootstrap->size(), size);
    EXPECT_EQ(bootstrap->name(), "store");
    EXPECT_FALSE(bootstrap->in_process());
    for (int round = 0; round < 20; ++round) {
      const auto blobs = bootstrap->allgather(blob_of((rank + round) % 5, rank + round), soon());
      ASSERT_EQ(blobs.size(), size);
      for (int other = 0; other < size; ++other) {
        EXPECT_EQ(blobs[other], blob_of((other + round) % 5, other + round));
      }
    }
  }));
  // Two collectives' keys of each rank, and rank 0's words to all.
  EXPECT_LE(contents->values.size(), 2 * (size + 1));
}

TEST_P(StoreBootstrapTest, BarrierWaitsForAll) {
  const auto contents = make_contents();
  const int size = GetParam();
  std::atomic<int> entered = 0;
  expect_none(on_ranks(size, [&](int rank) {
    const auto bootstrap = join(contents, {.rank = rank, .size = size});
    for (int round = 1; round <= 10; ++round) {
      ++entered;
      bootstrap->barrier(soon());
      EXPECT_GE(entered.load(), round * size);
      bootstrap->barrier(soon());
    }
  }));
}

TEST_P(StoreBootstrapTest, DuplicatesAreIndependent) {
  const auto contents = make_contents();
  const int size = GetParam();
  expect_none(on_ranks(size, [&](int rank) {
    const auto bootstrap = join(contents, {.rank = rank, .size = size});
    const auto other = bootstrap->duplicate(soon());
    const auto third = other->duplicate(soon());
    EXPECT_EQ(third->rank(), rank);
    std::jthread second([&] { other->barrier(soon()); });
    const auto blobs = bootstrap->allgather(blob_of(1, rank), soon());
    EXPECT_EQ(blobs.back(), blob_of(1, size - 1));
  }));
}

INSTANTIATE_TEST_SUITE_P(Sizes, StoreBootstrapTest, ::testing::Values(1, 2, 3, 8));

TEST(StoreBootstrap, LargeBlobsTravelInPieces) {
  const auto contents = make_contents();
  const auto errors = on_ranks(2, [&](int rank) {
    const auto bootstrap = join(contents, {.rank = rank, .size = 2});
    const std::size_t bytes = rank == 0 ? Bootstrap::kMaxBlobBytes : 700'001;
    for (int round = 0; round < 3; ++round) {
      const auto blobs = bootstrap->allgather(blob_of(bytes, rank + 1), soon());
      EXPECT_EQ(blobs[0], blob_of(Bootstrap::kMaxBlobBytes, 1));
      EXPECT_EQ(blobs[1], blob_of(700'001, 2));
    }
    EXPECT_THROW((void)bootstrap->allgather(blob_of(Bootstrap::kMaxBlobBytes + 1, 0), soon()),
                 InvalidArgument);
    bootstrap->barrier(soon());
    bootstrap->barrier(soon());
  });
  expect_none(errors);
  for (const auto& [key, value] : contents->values) {
    EXPECT_LE(value.size(), Store::kMaxValueBytes) << key;
  }
  EXPECT_LE(contents->values.size(), 6) << "pieces were left behind";
}

TEST(StoreBootstrap, NamesTheRanksThatDoNotCome) {
  const auto contents = make_contents();
  const auto errors = on_ranks(3, [&](int rank) {
    if (rank != 1) {
      (void)join(contents, {.rank = rank, .size = 4}, Deadline::after(milliseconds(300)));
    }
  });
  EXPECT_EQ(
      errors[0],
      "bootstrap start on rank 0, over a store of the test: expected all 4 ranks within 0.3 s "
      "(BLUEFOG_TIMEOUT), ranks 1, 3 have not come");
  EXPECT_THAT(errors[2], AllOf(HasSubstr("on rank 2"), HasSubstr("ranks 1, 3 have not come")));
}

TEST(StoreBootstrap, AStartMayBeWaitedForAgain) {
  const auto contents = make_contents();
  std::atomic<bool> has_given_up = false;
  expect_none(on_ranks(2, [&](int rank) {
    if (rank == 0) {
      has_given_up.wait(false);
      join(contents, {.rank = 0, .size = 2})->barrier(soon());
      return;
    }
    EXPECT_THROW((void)join(contents, {.rank = 1, .size = 2}, Deadline::after(milliseconds(50))),
                 TimeoutError);
    has_given_up = true;
    has_given_up.notify_all();
    join(contents, {.rank = 1, .size = 2})->barrier(soon());
  }));
}

TEST(StoreBootstrap, RanksMeetAgainUnderTheSamePrefix) {
  const auto contents = make_contents();
  expect_none(on_ranks(2, [&](int rank) {
    for (int meeting = 0; meeting < 5; ++meeting) {
      const auto bootstrap = join(contents, {.rank = rank, .size = 2});
      EXPECT_EQ(bootstrap->allgather(blob_of(1, meeting + rank), soon())[1],
                blob_of(1, meeting + 1));
    }
  }));
}

TEST(StoreBootstrap, VersionsThatDifferAreAnErrorOnAllRanksThatNamesBoth) {
  const auto contents = make_contents();
  const auto errors = on_ranks(3, [&](int rank) {
    (void)join(contents, {.rank = rank, .size = 3, .version = rank == 2 ? "9.9" : "0.1"});
  });
  for (const std::string& error : errors) {
    EXPECT_THAT(error,
                HasSubstr("expected the same version of bluefog_cpp on all ranks, rank 0 has "
                          "0.1, rank 2 has 9.9"));
  }
}

TEST(StoreBootstrap, SizesThatDifferAreAnErrorOnAllRanksThatNamesBoth) {
  const auto contents = make_contents();
  const auto errors = on_ranks(
      2, [&](int rank) { (void)join(contents, {.rank = rank, .size = rank == 0 ? 3 : 2}); });
  for (const std::string& error : errors) {
    EXPECT_THAT(error, HasSubstr("rank 0 was told 3, rank 1 was told 2"));
  }
}

TEST(StoreBootstrap, TwoProcessesOfOneRankAreAnError) {
  const auto contents = make_contents();
  std::atomic<int> refused = 0;
  const auto errors = on_ranks(3, [&](int thread) {
    try {
      if (thread == 0) {  // comes last: who comes after a meeting waits for the next one
        std::this_thread::sleep_for(milliseconds(1000));
      }
      (void)join(contents, {.rank = thread == 0 ? 0 : 1, .size = 2},
                 Deadline::after(milliseconds(20000)));
    } catch (const StateError& error) {
      EXPECT_THAT(error.what(), HasSubstr("another process has come as rank 1"));
      ++refused;
    }
  });
  EXPECT_EQ(refused, 1);
}

TEST(StoreBootstrap, DifferentCallsAreAnErrorOnEveryRankAndItGoesOn) {
  const auto contents = make_contents();
  expect_none(on_ranks(3, [&](int rank) {
    const auto bootstrap = join(contents, {.rank = rank, .size = 3});
    try {
      rank == 1 ? (void)bootstrap->duplicate(soon()) : bootstrap->barrier(soon());
      ADD_FAILURE() << "expected MismatchError";
    } catch (const MismatchError& error) {
      EXPECT_THAT(error.what(), HasSubstr("rank 0 called barrier, rank 1 called duplicate"));
    }
    bootstrap->barrier(soon());
  }));
}

TEST(StoreBootstrap, RefusesPlacesThatAreNone) {
  const auto contents = make_contents();
  for (const StorePlace& place :
       {StorePlace{.rank = 2, .size = 2}, StorePlace{.rank = -1, .size = 2},
        StorePlace{.rank = 0, .size = 0}, StorePlace{.prefix = "a b"}, StorePlace{.prefix = ""},
        StorePlace{.prefix = std::string(500, 'x')}}) {
    EXPECT_THROW((void)join(contents, place), InvalidArgument);
  }
  EXPECT_THROW((void)make_store_bootstrap(nullptr, {}, quiet(), soon()), InvalidArgument);
}

// Reads rank 0's words late, as a rank does whose core is busy.
class LateReader final : public MemoryStore {
 public:
  LateReader(SharedContents contents, std::atomic<int>& read)
      : MemoryStore(std::move(contents)), read_(read) {}

  [[nodiscard]] std::optional<Bytes> get(const std::string& key, Deadline deadline) override {
    const bool is_to_all = key.ends_with("/all");
    if (is_to_all) {
      std::this_thread::sleep_for(milliseconds(50));
    }
    auto value = MemoryStore::get(key, deadline);
    read_ += is_to_all && value ? 1 : 0;
    return value;
  }

 private:
  std::atomic<int>& read_;
};

TEST(StoreBootstrap, TheLastRankThatLeavesSaysSoAndNotThatOfAGroupThatHasFailed) {
  const auto contents = make_contents();
  Settings settings = quiet();
  settings.on_failure = OnFailure::Shrink;
  const auto has_ended = [&contents] {
    return MemoryStore(contents).get("p/m0/ended", Deadline::after(milliseconds(1))).has_value();
  };
  std::atomic<int> here{0};
  expect_none(on_ranks(2, [&](int rank) {
    const auto bootstrap =
        make_store_bootstrap(std::make_shared<MemoryStore>(contents),
                             {.rank = rank, .size = 2, .prefix = "p"}, settings, soon());
    const auto none_gone = [](int) { return std::nullopt; };
    {
      const auto failed = bootstrap->regroup(none_gone, soon(), false);
      EXPECT_FALSE(failed.settle(rank == 0, soon()));
    }
    ++here;
    while (here < 2) {
      std::this_thread::yield();
    }
    EXPECT_FALSE(has_ended());
    const auto group = bootstrap->regroup(none_gone, soon(), false);
    EXPECT_TRUE(group.settle(true, soon()));
    EXPECT_EQ(group.bootstrap->size(), 2);
    ++here;
    while (here < 4) {
      std::this_thread::yield();
    }
    EXPECT_FALSE(has_ended());
  }));
  EXPECT_TRUE(has_ended());
}

TEST(StoreBootstrap, RankZeroStaysUntilTheOthersHaveItsWords) {
  const auto contents = make_contents();
  std::atomic<int> read = 0;
  expect_none(on_ranks(2, [&](int rank) {
    std::shared_ptr<Store> store = std::make_shared<MemoryStore>(contents);
    if (rank == 1) {
      store = std::make_shared<LateReader>(contents, read);
    }
    auto bootstrap = make_store_bootstrap(store, {.rank = rank, .size = 2}, quiet(), soon());
    bootstrap->barrier(soon());
    bootstrap.reset();
    if (rank == 0) {
      EXPECT_EQ(read.load(), 2);
    }
  }));
}

TEST(StoreBootstrap, AnInterruptEndsTheWait) {
  struct Interrupt : std::exception {};
  EXPECT_THROW((void)make_store_bootstrap(std::make_shared<MemoryStore>(make_contents()),
                                          {.rank = 0, .size = 2}, quiet(), Deadline::never(),
                                          [] { throw Interrupt(); }),
               Interrupt);
}

TEST(StoreBootstrap, IsRefusedAfterACallThatFailed) {
  const auto contents = make_contents();
  expect_none(on_ranks(2, [&](int rank) {
    const auto bootstrap = join(contents, {.rank = rank, .size = 2});
    if (rank == 0) {
      EXPECT_THROW(bootstrap->barrier(Deadline::after(milliseconds(20))), TimeoutError);
      EXPECT_THROW(bootstrap->barrier(soon()), StateError);
    }
  }));
}

}  // namespace
}  // namespace bluefog
