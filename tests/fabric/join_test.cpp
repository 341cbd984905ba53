// Threads that join ranks which run; tests/python has processes do so.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "bluefog_cpp/context.hpp"
#include "bluefog_cpp/error.hpp"
#include "bluefog_cpp/thread_bootstrap.hpp"
#include "ops/collectives.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/ranks.hpp"
#include "tools/bftrace/merge.hpp"
#include "tools/bftrace/stall.hpp"

namespace bluefog::testing {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

double total_over(Context& context, double value) {
  ops::allreduce(context, BufferView{.data = &value, .count = 1, .dtype = Dtype::Float64},
                 {.reduction = ops::Reduction::Sum});
  return value;
}

void wait_for_applicants(Context& context) {
  while (!context.has_applicants()) {
    std::this_thread::sleep_for(milliseconds(1));
  }
  context.resync();  // nobody else looks before
}

/// Rank 1 ends, and gets null; the others go on without it, and with a process that waits.
std::shared_ptr<Context> without_rank_one(Context& context) {
  if (context.rank() == 1) {
    context.close();
    return nullptr;
  }
  (void)error_of<RankLostError>([&] {
    while (true) {
      (void)total_over(context, 1.0);
    }
  });
  const auto smaller = context.shrink();
  wait_for_applicants(*smaller);
  return smaller->regroup();
}

TEST(Join, RanksTakeInThoseThatWait) {
  for (const int ranks : thread_counts_of({.at_most = 4})) {
    const auto check = [ranks](const Context& group) {
      const Membership& members = group.membership();
      EXPECT_EQ(group.size(), ranks + 2);
      std::vector<int> all(static_cast<std::size_t>(ranks) + 2);
      std::iota(all.begin(), all.end(), 0);
      EXPECT_EQ(members.ranks, all);
      EXPECT_TRUE(members.lost.empty());
      ASSERT_EQ(members.joined.size(), 2U);
      EXPECT_EQ(members.joined[1].rank, ranks + 1);
      EXPECT_EQ(members.joined[1].epoch, members.epoch);
      EXPECT_FALSE(group.is_applicant());
      EXPECT_FALSE(group.settings().joins);
    };
    // The second may come too late for the first meeting.
    const auto with_both = [ranks](Context& context) {
      auto group = context.regroup();
      while (group->size() < ranks + 2) {
        group = group->regroup();
      }
      return group;
    };
    with_applicants(
        ranks,
        [&](Context& context) {
          wait_for_applicants(context);
          const auto group = with_both(context);
          check(*group);
          EXPECT_EQ(group->rank(), context.rank());
          expect_usable(*group);
          EXPECT_FALSE(group->has_applicants());
          // Once more, with nobody new.
          const auto again = group->regroup();
          EXPECT_EQ(again->size(), ranks + 2);
          expect_usable(*again);
        },
        2,
        [&](Context& context) {
          EXPECT_TRUE(context.is_applicant());
          EXPECT_FALSE(context.has_applicants());
          EXPECT_EQ(context.size(), 1);
          EXPECT_EQ(total_over(context, 3.0), 3.0);
          const auto copy = context.duplicate();
          EXPECT_TRUE(copy->is_applicant());
          const auto group = with_both(context);
          check(*group);
          EXPECT_GE(group->rank(), ranks);
          expect_usable(*group);
          const auto again = group->regroup();
          EXPECT_EQ(again->size(), ranks + 2);
          expect_usable(*again);
        });
  }
}

TEST(Join, ShrinkTakesNobodyIn) {
  with_applicants(
      2,
      [](Context& context) {
        wait_for_applicants(context);
        const auto smaller = context.shrink();
        EXPECT_EQ(smaller->size(), 2);
        EXPECT_TRUE(smaller->has_applicants());
        // One that does not admit suffices.
        const auto still = smaller->rank() == 0 ? smaller->shrink() : smaller->regroup();
        EXPECT_EQ(still->size(), 2);
        const auto larger = still->regroup();
        EXPECT_EQ(larger->size(), 3);
        EXPECT_EQ(larger->membership().joined[0].epoch, 3U);
        expect_usable(*larger);
      },
      1,
      [](Context& context) {
        const auto group = context.regroup();
        EXPECT_EQ(group->rank(), 2);
        EXPECT_EQ(group->membership().epoch, 3U);
        expect_usable(*group);
      });
}

TEST(Join, WhoTakesThePlaceOfALostRankHasANumberOfItsOwn) {
  with_applicants(
      3,
      [](Context& context) {
        const auto group = without_rank_one(context);
        if (!group) {
          return;
        }
        EXPECT_THAT(group->membership().ranks, ElementsAre(0, 2, 3));
        EXPECT_EQ(total_over(*group, group->rank()), 3.0);
        expect_usable(*group);
      },
      1,
      [](Context& context) {
        const auto group = context.regroup();
        EXPECT_THAT(group->membership().ranks, ElementsAre(0, 2, 3));
        EXPECT_EQ(group->membership().lost[0].rank, 1);
        EXPECT_EQ(group->rank(), 2);
        EXPECT_EQ(total_over(*group, group->rank()), 3.0);
        expect_usable(*group);
      });
}

TEST(Join, RecordsNameRanksByTheirNumbersInTheLaunch) {
  const auto folder =
      std::filesystem::temp_directory_path() / fmt::format("bluefog_join_{}", ::getpid());
  std::filesystem::create_directories(folder);
  Settings settings = surviving_settings();
  settings.flight_recorder = folder / "record";
  settings.timeline = folder / "timeline";
  settings.timeout = std::chrono::seconds(2);
  // All but the new rank make a call, and wait for it.
  const auto stall = [](Context& group) {
    if (group.rank() != 2) {
      (void)error_of<RankLostError>([&] { (void)total_over(group, 1.0); });
    } else {
      std::this_thread::sleep_for(std::chrono::seconds(3));
    }
  };
  with_applicants(
      3,
      [&](Context& context) {
        if (const auto group = without_rank_one(context)) {
          stall(*group);
        }
      },
      1, [&](Context& context) { stall(*context.regroup()); }, settings);
  const std::string path = folder / "record2.json";
  const auto record = bftrace::parse_record(path, bftrace::read_file(path));
  EXPECT_EQ(record.rank, 2);
  EXPECT_EQ(record.size, 4);
  EXPECT_EQ(record.epoch, 2U);
  EXPECT_THAT(record.ranks, ElementsAre(0, 2, 3));
  EXPECT_EQ(record.calls.front().epoch, 0U) << "before rank 1 was gone";
  EXPECT_EQ(record.calls.back().epoch, 2U);
  const bool is_named = std::ranges::any_of(record.calls, [](const bftrace::RecordedCall& call) {
    return std::ranges::count(call.no_message_from, 3) + std::ranges::count(call.not_taken_by, 3) >
           0;
  });
  EXPECT_TRUE(is_named) << bftrace::read_file(path);
  for (const int rank : {0, 2, 3}) {
    const std::string trace = bftrace::read_file(folder / fmt::format("timeline{}.json", rank));
    EXPECT_THAT(trace, ::testing::HasSubstr("EPOCH 2: RANKS 0, 2, 3")) << rank;
  }
  std::filesystem::remove_all(folder);
}

TEST(Join, AnotherSettingKeepsOutWhoJoinsAlone) {
  auto bootstraps = make_thread_bootstraps(2);
  auto waiting = make_thread_applicant(*bootstraps.front());
  std::vector<std::jthread> threads;
  for (auto& bootstrap : bootstraps) {
    threads.emplace_back([held = std::move(bootstrap)]() mutable {
      const auto context = Context::create(std::move(held), surviving_settings());
      wait_for_applicants(*context);
      const auto group = context->regroup();
      EXPECT_EQ(group->size(), 2);
      expect_usable(*group);
      EXPECT_FALSE(group->has_applicants());
    });
  }
  threads.emplace_back([&waiting] {
    Settings settings = surviving_settings();
    settings.shm_slots += 8;
    const auto context = Context::create(std::move(waiting), settings);
    EXPECT_THAT(error_of<InvalidArgument>([&] { (void)context->regroup(); }),
                HasSubstr("BLUEFOG_SHM_SLOTS"));
  });
}

TEST(Join, AThreadJoinsThreadsAlone) {
  EXPECT_THAT(error_of<InvalidArgument>([&] {
                class Other final : public Bootstrap {
                  [[nodiscard]] int rank() const noexcept override { return 0; }
                  [[nodiscard]] int size() const noexcept override { return 1; }
                  [[nodiscard]] std::string_view name() const noexcept override { return "other"; }
                  [[nodiscard]] bool in_process() const noexcept override { return true; }
                  [[nodiscard]] std::vector<Blob> allgather(std::span<const std::byte> /*blob*/,
                                                            Deadline /*deadline*/) override {
                    return {};
                  }
                  void barrier(Deadline /*deadline*/) override {}
                  [[nodiscard]] std::shared_ptr<Bootstrap> duplicate(Deadline) override {
                    return nullptr;
                  }
                };
                const Other other;
                (void)make_thread_applicant(other);
              }),
              HasSubstr("found a start by 'other'"));
}

}  // namespace
}  // namespace bluefog::testing
