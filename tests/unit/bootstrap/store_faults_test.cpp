// Starts over a store that goes away, hangs, or holds what no rank has written.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>

#include "bluefog_cpp/error.hpp"
#include "bluefog_cpp/store_bootstrap.hpp"
#include "tests/unit/bootstrap/store_ranks.hpp"

namespace bluefog {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;
using testing_store::make_contents;
using testing_store::quiet;
using testing_store::SharedContents;
using testing_store::soon;

// A store that does what `on_get` says.
class HostileStore final : public MemoryStore {
 public:
  HostileStore(SharedContents contents, std::function<std::optional<Bytes>()> on_get)
      : MemoryStore(std::move(contents)), on_get_(std::move(on_get)) {}

  [[nodiscard]] std::optional<Bytes> get(const std::string&, Deadline) override {
    return on_get_();
  }

 private:
  std::function<std::optional<Bytes>()> on_get_;
};

// A store that ends with rank 0, and is slow.
class StoreThatEnds final : public MemoryStore {
 public:
  StoreThatEnds(SharedContents contents, const std::atomic<bool>& has_ended)
      : MemoryStore(std::move(contents)), has_ended_(has_ended) {}

  [[nodiscard]] std::optional<Bytes> get(const std::string& key, Deadline deadline) override {
    auto value = MemoryStore::get(key, deadline);
    std::this_thread::sleep_for(milliseconds(50));
    if (has_ended_) {
      throw TransportError("connection reset by peer");
    }
    return value;
  }
  void remove(const std::string& key, Deadline deadline) override {
    MemoryStore::remove(key, deadline);
    std::this_thread::sleep_for(milliseconds(50));
    if (has_ended_) {
      throw TransportError("connection reset by peer");
    }
  }

 private:
  const std::atomic<bool>& has_ended_;
};

TEST(StoreBootstrap, RankZeroEndsWhenTheOthersNeedItsStoreNoMore) {
  const auto contents = make_contents();
  std::atomic<bool> has_ended = false;
  testing_store::expect_none(testing_store::on_ranks(3, [&](int rank) {
    auto bootstrap = make_store_bootstrap(std::make_shared<StoreThatEnds>(contents, has_ended),
                                          {.rank = rank, .size = 3}, quiet(), soon());
    for (int round = 0; round < 4; ++round) {
      bootstrap->barrier(soon());
    }
    bootstrap.reset();
    has_ended = has_ended || rank == 0;
  }));
}

TEST(StoreBootstrap, ARefusalIsHeardBeforeTheStoreEnds) {
  const auto contents = make_contents();
  std::atomic<bool> has_ended = false;
  const auto errors = testing_store::on_ranks(3, [&](int rank) {
    try {
      (void)make_store_bootstrap(std::make_shared<StoreThatEnds>(contents, has_ended),
                                 {.rank = rank, .size = 3, .version = rank == 1 ? "9.9" : "0.1"},
                                 quiet(), soon());
    } catch (const Error&) {
      has_ended = has_ended || rank == 0;
      throw;
    }
  });
  for (const std::string& error : errors) {
    EXPECT_THAT(error, HasSubstr("rank 0 has 0.1, rank 1 has 9.9"));
  }
}

std::string error_over(std::function<std::optional<Store::Bytes>()> on_get,
                       Deadline deadline = soon()) {
  try {
    (void)make_store_bootstrap(std::make_shared<HostileStore>(make_contents(), std::move(on_get)),
                               {.rank = 1, .size = 2}, quiet(), deadline);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(StoreBootstrap, AStoreThatGoesAwayIsAnError) {
  EXPECT_EQ(error_over([]() -> std::optional<Store::Bytes> {
              throw TransportError("connection reset by peer");
            }),
            "bootstrap start on rank 1, over a store of the test: connection reset by peer");
}

TEST(StoreBootstrap, AStoreThatNeverAnswersIsAnError) {
  // Kept for the stuck thread, which outlives the test.
  static std::atomic<bool> never = false;
  EXPECT_THAT(error_over(
                  []() -> std::optional<Store::Bytes> {
                    never.wait(false);
                    return std::nullopt;
                  },
                  Deadline::after(milliseconds(50))),
              HasSubstr("a call of the store did not come back within 0.05 s"));
  never = true;
  never.notify_all();
}

TEST(StoreBootstrap, AStoreThatDoesNotWaitIsAskedAgainUntilTheDeadline) {
  std::atomic<int> asked = 0;
  EXPECT_THAT(error_over(
                  [&]() -> std::optional<Store::Bytes> {
                    ++asked;
                    return std::nullopt;
                  },
                  Deadline::after(milliseconds(100))),
              HasSubstr("rank 0 has not come"));
  EXPECT_LT(asked, 1000) << "the store was asked without pauses";
}

TEST(StoreBootstrap, ValuesOfStrangersAreAnError) {
  const auto bytes_of = [](std::string_view text) {
    const auto view = std::as_bytes(std::span(text));
    return Store::Bytes(view.begin(), view.end());
  };
  for (const std::string_view text :
       {"", "short", "a value that some other program has put there"}) {
    EXPECT_THAT(error_over([&] { return bytes_of(text); }),
                HasSubstr("expected what a rank of this version has written"))
        << text;
  }
  // A head that promises more than is there, and records that are cut off.
  for (const std::uint64_t promised : {std::uint64_t{8}, std::uint64_t{24}, ~std::uint64_t{0}}) {
    std::uint64_t words[3] = {0x31534642, promised, 7};
    const auto view = std::as_bytes(std::span(words));
    EXPECT_NE(error_over([&] { return Store::Bytes(view.begin(), view.end()); },
                         Deadline::after(milliseconds(500))),
              "no error");
  }
}

}  // namespace
}  // namespace bluefog
