// How ranks that are left find each other in a store. Ranks are threads.
#include "bluefog_cpp/bootstrap/store/regrouping.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "bluefog_cpp/base/version.hpp"
#include "bluefog_cpp/bootstrap/store/applicant.hpp"
#include "bluefog_cpp/error.hpp"
#include "bluefog_cpp/store/memory_store.hpp"
#include "tests/support/error_of.hpp"

namespace bluefog::testing {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::chrono::seconds kPatience(20);

/// The ranks of a group, each with its own view of the store.
class Group {
 public:
  explicit Group(int size) {
    for (int rank = 0; rank < size; ++rank) {
      ranks_.push_back(std::make_unique<Regrouping>(
          Regrouping::Place{.store = std::make_shared<MemoryStore>(contents_),
                            .rank = rank,
                            .size = size,
                            .prefix = "p",
                            .root = "r"}));
    }
  }

  [[nodiscard]] Regrouping& rank(int rank) { return *ranks_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] MemoryStore store() const { return MemoryStore(contents_); }

  /// A process that asks to be taken in.
  [[nodiscard]] Applicant applicant() const {
    return Applicant({.store = std::make_shared<MemoryStore>(contents_),
                      .rank = 0,
                      .size = 1,
                      .prefix = "w",
                      .root = "r"});
  }
  Regrouping::Verdict meet_and_admit(int own, const std::vector<int>& gone = {}) {
    const std::atomic<bool> is_over{false};
    return rank(own).meet(
        {.why_gone = why_gone(gone), .admits = true, .deadline = Deadline::after(kPatience)},
        is_over);
  }
  Regrouping::Verdict meet(int own, const std::vector<int>& gone,
                           Deadline deadline = Deadline::after(kPatience)) {
    const std::atomic<bool> is_over{false};
    return rank(own).meet({.why_gone = why_gone(gone), .deadline = deadline}, is_over);
  }
  /// For ever, but for a rank that was waited for before.
  Regrouping::Verdict meet_without(int own, int late) {
    const std::atomic<bool> is_over{false};
    return rank(own).meet({.why_gone = why_gone({}),
                           .deadline = Deadline::never(),
                           .late = late,
                           .late_deadline = Deadline::after(milliseconds(1))},
                          is_over);
  }
  bool settle(int own, const Regrouping::Verdict& verdict, bool is_ready,
              const std::vector<int>& gone = {}, Deadline deadline = Deadline::after(kPatience)) {
    const std::atomic<bool> is_over{false};
    return rank(own).settle(verdict, is_ready, {.why_gone = why_gone(gone), .deadline = deadline},
                            is_over);
  }

 private:
  static Bootstrap::WhyGone why_gone(std::vector<int> gone) {
    return [gone = std::move(gone)](int rank) {
      return std::ranges::find(gone, rank) == gone.end()
                 ? std::nullopt
                 : std::optional(fmt::format("rank {} has\nended", rank));
    };
  }

  std::shared_ptr<MemoryStore::Contents> contents_ = std::make_shared<MemoryStore::Contents>();
  std::vector<std::unique_ptr<Regrouping>> ranks_;
};

/// `body(rank)` for each of these ranks, at once.
void on(const std::vector<int>& ranks, const std::function<void(int)>& body) {
  std::vector<std::jthread> threads;
  for (const int rank : ranks) {
    threads.emplace_back([&body, rank] { body(rank); });
  }
}

TEST(Regrouping, AllThatLiveFindTheSameRanks) {
  Group group(5);
  on({0, 2, 4}, [&](int rank) {
    const auto verdict = group.meet(rank, {1, 3});
    EXPECT_THAT(verdict.ranks, ElementsAre(0, 2, 4));
    EXPECT_EQ(verdict.group, 1);
    ASSERT_EQ(verdict.lost.size(), 2U);
    EXPECT_EQ(verdict.lost[0].rank, 1);
    EXPECT_EQ(verdict.lost[0].cause, "rank 1 has ended");  // on one line
    EXPECT_TRUE(group.settle(rank, verdict, true));
    EXPECT_FALSE(group.rank(rank).is_given_up());
  });
}

TEST(Regrouping, OneRankThatKnowsOfAnEndSuffices) {
  Group group(4);
  on({0, 1, 3}, [&](int rank) {
    const auto verdict = group.meet(rank, rank == 3 ? std::vector{2} : std::vector<int>{});
    EXPECT_THAT(verdict.ranks, ElementsAre(0, 1, 3));
    EXPECT_EQ(verdict.lost[0].rank, 2);
  });
}

TEST(Regrouping, ARankThatCameIsNotLeftOutByHearsay) {
  Group group(3);
  on({0, 1, 2}, [&](int rank) {
    std::this_thread::sleep_for(milliseconds(rank == 2 ? 200 : 0));
    EXPECT_THAT(group.meet(rank, rank == 2 ? std::vector{1} : std::vector<int>{}).ranks,
                ElementsAre(0, 1, 2));
  });
}

TEST(Regrouping, TriesAgainWhereOneIsNotReady) {
  Group group(3);
  std::atomic<int> rounds{0};
  on({0, 1, 2}, [&](int rank) {
    const auto first = group.meet(rank, {});
    EXPECT_FALSE(group.settle(rank, first, rank != 1));
    if (rank == 1) {
      return;
    }
    const auto second = group.meet(rank, {1});
    EXPECT_THAT(second.ranks, ElementsAre(0, 2));
    EXPECT_NE(second.group, first.group);
    EXPECT_TRUE(group.settle(rank, second, true));
    ++rounds;
  });
  EXPECT_EQ(rounds, 2);
}

TEST(Regrouping, TriesAgainWhereOneEndsBeforeItIsReady) {
  Group group(3);
  on({0, 1, 2}, [&](int rank) {
    const auto first = group.meet(rank, {});
    EXPECT_THAT(first.ranks, ElementsAre(0, 1, 2));
    if (rank == 2) {
      return;
    }
    EXPECT_FALSE(group.settle(rank, first, true, {2}));
    EXPECT_THAT(group.meet(rank, {2}).ranks, ElementsAre(0, 1));
  });
}

// One that was stopped says that it is ready when the others have given it up.
TEST(Regrouping, NobodyGoesOnInAGroupThatTheOthersHaveGivenUp) {
  Group group(3);
  on({0, 1, 2}, [&](int rank) {
    const auto verdict = group.meet(rank, {});
    if (rank == 1) {
      std::this_thread::sleep_for(milliseconds(500));
    }
    EXPECT_FALSE(group.settle(rank, verdict, true, {}, Deadline::after(milliseconds(100))));
  });
}

TEST(Regrouping, WhoGivesAnAttemptUpIsFollowed) {
  Group group(3);
  on({0, 1}, [&](int rank) {
    const std::atomic<bool> is_over{false};
    if (rank == 1) {
      std::this_thread::sleep_for(milliseconds(100));
      const auto begun = std::as_bytes(std::span(std::string_view("1")));
      group.store().set("p/r2/begun", begun, Deadline::never());
    }
    // Rank 0 has waited for rank 2 in the first attempt.
    const auto verdict = group.meet(rank, rank == 1 ? std::vector{2} : std::vector<int>{});
    EXPECT_THAT(verdict.ranks, ElementsAre(0, 1));
  });
  const std::atomic<bool> is_over{false};
  EXPECT_TRUE(group.store().get("p/r2/record", Deadline::after(milliseconds(1))).has_value());
}

TEST(Regrouping, ALateRankHearsThatTheOthersHaveGoneOn) {
  Group group(3);
  on({0, 1, 2}, [&](int rank) {
    if (rank == 0) {
      std::this_thread::sleep_for(milliseconds(600));
      EXPECT_THAT(error_of<StateError>([&] { (void)group.meet(0, {}); }),
                  HasSubstr("ranks 1, 2 have gone on without this one: that rank has not come"));
      return;
    }
    EXPECT_THAT(group.meet(rank, {}, Deadline::after(milliseconds(200))).ranks, ElementsAre(1, 2));
  });
}

TEST(Regrouping, ARankThatWasWaitedForIsNotWaitedForAgain) {
  for (const int late : {0, 1}) {
    Group group(4);
    on({1 - late, 2, 3}, [&](int rank) {
      std::this_thread::sleep_for(
          milliseconds(rank == 3 ? 200 : 0));  // the others wait for this one
      const auto verdict = group.meet_without(rank, late);
      EXPECT_THAT(verdict.ranks, ElementsAre(1 - late, 2, 3));
      EXPECT_THAT(verdict.lost[0].cause, HasSubstr("has not come to the others in time"));
    });
  }
}

// Each takes the other for gone: one of the two writes.
TEST(Regrouping, TwoThatWouldLeaveEachOtherOutDoNotBothGoOn) {
  Group group(2);
  std::atomic<int> going_on{0};
  on({0, 1}, [&](int rank) {
    try {
      (void)group.meet(rank, {1 - rank});
      ++going_on;
    } catch (const StateError&) {
    }
  });
  EXPECT_EQ(going_on, 1);
}

TEST(Regrouping, AWriterThatEndsBeforeItHasWrittenIsNotWaitedForForEver) {
  Group group(3);
  EXPECT_EQ(group.store().add("p/r1/writers", 1, Deadline::never()), 1);  // rank 0's, which is gone
  on({1, 2}, [&](int rank) { EXPECT_THAT(group.meet(rank, {0}).ranks, ElementsAre(1, 2)); });
}

/// Waits until one asks.
void wait_for_applicants(Regrouping& rank) {
  while (!rank.has_applicants()) {
    std::this_thread::sleep_for(milliseconds(1));
  }
}

TEST(Regrouping, AnApplicantHasThePlaceBehindTheRanks) {
  Group group(2);
  Applicant applicant = group.applicant();
  EXPECT_FALSE(group.rank(0).has_applicants());
  on({0, 1, 2}, [&](int rank) {
    const std::atomic<bool> is_over{false};
    const Deadline deadline = Deadline::after(kPatience);
    if (rank == 2) {
      const auto admission = applicant.wait(is_over);
      EXPECT_EQ(admission.rank, 2);
      EXPECT_EQ(admission.verdict.size(), 3);
      EXPECT_TRUE(admission.meeting->settle(
          admission.verdict, true,
          {.why_gone = [](int) { return std::nullopt; }, .deadline = deadline}, is_over));
      applicant.end();
      return;
    }
    wait_for_applicants(group.rank(rank));
    const auto verdict = group.meet_and_admit(rank);
    EXPECT_THAT(verdict.ranks, ElementsAre(0, 1));
    EXPECT_THAT(verdict.joined, ElementsAre(1));
    EXPECT_TRUE(group.settle(rank, verdict, true));
  });
  EXPECT_FALSE(group.rank(0).has_applicants());
  EXPECT_FALSE(group.rank(1).has_applicants());
}

TEST(Regrouping, OneThatDoesNotAdmitKeepsApplicantsOut) {
  Group group(2);
  Applicant applicant = group.applicant();
  std::atomic<bool> is_over{false};
  std::jthread waiting([&] { EXPECT_THROW((void)applicant.wait(is_over), TimeoutError); });
  wait_for_applicants(group.rank(0));
  on({0, 1}, [&](int rank) {
    const auto verdict = rank == 0 ? group.meet_and_admit(rank) : group.meet(rank, {});
    EXPECT_TRUE(verdict.joined.empty());
    EXPECT_TRUE(group.settle(rank, verdict, true));
  });
  EXPECT_TRUE(group.rank(0).has_applicants());
  is_over = true;
}

TEST(Regrouping, AnApplicantWithoutAnAnswerIsTurnedAway) {
  Group group(1);
  MemoryStore store = group.store();
  const std::string version = own_version();
  EXPECT_EQ(store.add("r/applicants", 2, Deadline::never()), 2);
  store.set("r/a1/ready", std::as_bytes(std::span(version)), Deadline::never());  // and ended
  const std::string other = "0.0.0";
  store.set("r/a2/ready", std::as_bytes(std::span(other)), Deadline::never());
  EXPECT_TRUE(group.rank(0).has_applicants());
  EXPECT_TRUE(group.meet_and_admit(0).joined.empty());
  EXPECT_FALSE(group.rank(0).has_applicants());
  const auto why = [&store](const std::string& key) {
    const auto bytes = store.get(key, Deadline::after(milliseconds(1)));
    return bytes ? std::string(reinterpret_cast<const char*>(bytes->data()), bytes->size())
                 : std::string();
  };
  EXPECT_THAT(why("r/a1/over"), HasSubstr("no answer"));
  EXPECT_THAT(why("r/a2/over"), HasSubstr("it has 0.0.0"));
}

TEST(Regrouping, AnApplicantThatEndsIsGivenUpWithItsGroup) {
  Group group(2);
  on({0, 1, 2}, [&](int rank) {
    if (rank == 2) {
      Applicant applicant = group.applicant();
      const std::atomic<bool> is_over{false};
      (void)applicant.wait(is_over);
      return;  // its pulse ends with it
    }
    wait_for_applicants(group.rank(rank));
    const auto verdict = group.meet_and_admit(rank);
    EXPECT_EQ(verdict.joined.size(), 1U);
    EXPECT_FALSE(group.settle(rank, verdict, true));
    const auto second = group.meet_and_admit(rank);
    EXPECT_TRUE(second.joined.empty());
    EXPECT_TRUE(group.settle(rank, second, true));
  });
}

TEST(Regrouping, AnApplicantHearsThatAllHaveLeft) {
  Group group(1);
  Applicant applicant = group.applicant();
  const std::string yes = "1";
  group.store().set("r/ended", std::as_bytes(std::span(yes)), Deadline::never());
  const std::atomic<bool> is_over{false};
  EXPECT_THAT(error_of<StateError>([&] { (void)applicant.wait(is_over); }),
              HasSubstr("have all left"));
}

}  // namespace
}  // namespace bluefog::testing
