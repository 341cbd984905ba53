// A start in a store whose keeper knows which ranks have ended.
#include "bluefog_cpp/store/ended_ranks.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <span>
#include <string>
#include <thread>
#include <vector>

#include "bluefog_cpp/error.hpp"
#include "bluefog_cpp/store/memory_store.hpp"
#include "bluefog_cpp/store_bootstrap.hpp"

namespace bluefog {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr const char* kKey = "ended";

Settings silent() {
  Settings settings;
  settings.log_level = LogLevel::Fatal;
  return settings;
}

void say(const std::shared_ptr<MemoryStore::Contents>& contents,
         const std::vector<store::EndedRank>& ends) {
  const std::string text = store::text_of(ends);
  MemoryStore(contents).set(kKey, std::as_bytes(std::span(text)), Deadline::never());
}

/// The error of each of these ranks of three in their start; empty: none.
std::vector<std::string> starts(const std::shared_ptr<MemoryStore::Contents>& contents,
                                const std::vector<int>& ranks, const std::string& key = kKey) {
  std::vector<std::string> errors(ranks.size());
  std::vector<std::jthread> threads;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    threads.emplace_back([&, i] {
      try {
        static_cast<void>(make_store_bootstrap(
            std::make_shared<MemoryStore>(contents),
            {.rank = ranks[i], .size = 3, .ended_key = key}, silent(),
            Deadline::after(key.empty() ? std::chrono::seconds(1) : std::chrono::seconds(60))));
      } catch (const PeerFailure& error) {
        EXPECT_EQ(error.rank(), 1);
        errors[i] = error.what();
      } catch (const Error& error) {
        errors[i] = std::string("other: ") + error.what();
      }
    });
  }
  threads.clear();
  return errors;
}

TEST(EndedRanks, AreLinesOfARankAndACause) {
  const std::vector<store::EndedRank> ends{{.rank = 0, .cause = "was killed"},
                                           {.rank = 12, .cause = "exited, with code 3"}};
  EXPECT_EQ(store::ended_ranks_from(store::text_of(ends)), ends);
  EXPECT_THAT(store::ended_ranks_from(""), IsEmpty());
  EXPECT_THAT(store::ended_ranks_from("no rank\n\n7\n"), IsEmpty());
}

TEST(EndedRanks, EndTheStartOfThoseThatWaitForThem) {
  const auto contents = std::make_shared<MemoryStore::Contents>();
  say(contents, {{.rank = 1, .cause = "rank 1 exited with code 3"}});
  for (const std::string& error : starts(contents, {0, 2})) {
    EXPECT_THAT(error,
                HasSubstr("expected all 3 ranks, found that one has ended before it came: rank "
                          "1 exited with code 3"));
  }
}

TEST(EndedRanks, ThatHaveComeBeforeAreNotMissed) {
  const auto contents = std::make_shared<MemoryStore::Contents>();
  say(contents,
      {{.rank = 1, .cause = "rank 1 exited"}, {.rank = 7, .cause = "no rank of this one"}});
  for (const std::string& error : starts(contents, {1, 0, 2})) {  // rank 1 comes first
    EXPECT_EQ(error, "");
  }
}

TEST(EndedRanks, AreNobodysBusinessWhereNoKeeperIsNamed) {
  const auto contents = std::make_shared<MemoryStore::Contents>();
  say(contents, {{.rank = 1, .cause = "rank 1 exited"}});
  EXPECT_THAT(starts(contents, {0}, "").front(), HasSubstr("other: "));
}

}  // namespace
}  // namespace bluefog
