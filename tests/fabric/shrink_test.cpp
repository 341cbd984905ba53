// Ranks that go on without those that are lost. Processes do so in tests/launcher.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "bluefog_cpp/context/context_core.hpp"
#include "bluefog_cpp/error.hpp"
#include "ops/collectives.hpp"
#include "ops/neighbor_allreduce.hpp"
#include "tests/bodies/failure_of.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/ranks.hpp"

namespace bluefog::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Ranks that_shrink(int at_least = 2) {
  Ranks ranks{.at_least = at_least};
  ranks.settings = [](Settings& settings, int) {
    settings.on_failure = OnFailure::Shrink;
    settings.log_level = LogLevel::Error;
  };
  ranks.expect_usable = false;
  return ranks;
}

double sum_over(Context& context, double value) {
  ops::allreduce(context, BufferView{.data = &value, .count = 1, .dtype = Dtype::Float64},
                 {.reduction = ops::Reduction::Sum});
  return value;
}

/// The error of a rank that hears in its calls that others are lost.
RankLostError lost_in(Context& context) {
  try {
    while (true) {
      (void)sum_over(context, 1.0);
    }
  } catch (const RankLostError& error) {
    return error;
  }
}

/// Other ranks have it come about, unless their test has failed.
template <typename HasCome>
void wait_for(HasCome has_come) {
  constexpr int kMost = 3000;
  for (int looks = 0; !has_come() && looks < kMost; ++looks) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}
void wait_for(const std::atomic<bool>& flag) {
  wait_for([&flag] { return flag.load(); });
}

TEST(Shrink, RanksGoOnWithoutOneThatIsGone) {
  on_ranks(that_shrink(), [](Context& context) {
    const int gone = context.size() / 2;
    if (context.rank() == gone) {
      context.close();
      return;
    }
    const RankLostError error = lost_in(context);
    EXPECT_EQ(error.rank(), gone);
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr(fmt::format("rank {},", context.rank())),
                      HasSubstr(fmt::format("rank {} is gone", gone)), HasSubstr("shrink()")));
    const auto smaller = context.shrink();
    EXPECT_EQ(smaller->size(), context.size() - 1);
    EXPECT_EQ(smaller->rank(), context.rank() - (context.rank() > gone ? 1 : 0));
    const Membership& members = smaller->membership();
    EXPECT_EQ(members.epoch, 1U);
    EXPECT_EQ(members.ranks[static_cast<std::size_t>(smaller->rank())], context.rank());
    ASSERT_EQ(members.lost.size(), 1U);
    EXPECT_EQ(members.lost[0].rank, gone);
    EXPECT_EQ(members.lost[0].epoch, 1U);
    EXPECT_THAT(members.lost[0].cause, HasSubstr("has closed its context"));
    EXPECT_EQ(members.lost[0].step, -1) << "there is no optimizer";
    const double now =
        std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
    EXPECT_LE(members.lost[0].time, now);
    EXPECT_GT(members.lost[0].time, now - 600);
    expect_usable(*smaller);
    EXPECT_EQ(sum_over(*smaller, context.rank()), context.size() * (context.size() - 1) / 2 - gone);
  });
}

// On a ring only two ranks wait for the lost one.
TEST(Shrink, RanksHearOfItThatDoNotWaitForTheLostOne) {
  on_ranks(that_shrink(3), [](Context& context) {
    if (context.rank() == 0) {
      context.close();
      return;
    }
    std::vector<float> values(1000, 1.0F);
    const BufferView buffer{.data = values.data(), .count = 1000};
    EXPECT_THROW(
        while (true) { ops::neighbor_allreduce(context, buffer, ring(context)); }, RankLostError);
    const auto smaller = context.shrink();
    EXPECT_EQ(smaller->size(), context.size() - 1);
    ops::neighbor_allreduce(*smaller, buffer, ring(*smaller));
    EXPECT_EQ(values[0], 1.0F);
  });
}

TEST(Shrink, LosesOneAfterAnotherDownToOneRank) {
  on_ranks(that_shrink(), [](Context& context) {
    const std::shared_ptr<Context> first(&context, [](Context*) {});
    std::shared_ptr<Context> now = first;
    while (now->size() > 1) {
      if (now->rank() == 0) {
        now->close();
        return;
      }
      EXPECT_EQ(lost_in(*now).rank(), 0);
      now = now->shrink();
    }
    const Membership& members = now->membership();
    EXPECT_EQ(members.epoch, static_cast<std::uint64_t>(context.size() - 1));
    EXPECT_THAT(members.ranks, ElementsAre(context.size() - 1));
    ASSERT_EQ(members.lost.size(), static_cast<std::size_t>(context.size() - 1));
    for (int rank = 0; rank + 1 < context.size(); ++rank) {
      EXPECT_EQ(members.lost[static_cast<std::size_t>(rank)].rank, rank);
      EXPECT_EQ(members.lost[static_cast<std::size_t>(rank)].epoch,
                static_cast<std::uint64_t>(rank + 1));
    }
    EXPECT_EQ(sum_over(*now, 5.0), 5.0);
  });
}

TEST(Shrink, LeavesOutARankThatGoesInTheMeantime) {
  on_ranks(that_shrink(3), [](Context& context) {
    const int last = context.size() - 1;
    if (context.rank() == 0) {
      context.close();
      return;
    }
    (void)lost_in(context);
    if (context.rank() == last) {  // the others wait for it
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      context.close();
      return;
    }
    const auto smaller = context.shrink();
    EXPECT_EQ(smaller->size(), context.size() - 2);
    EXPECT_EQ(smaller->membership().lost.size(), 2U);
    expect_usable(*smaller);
  });
}

TEST(Shrink, LeavesOutARankThatDoesNotComeWhichHearsOfIt) {
  Ranks ranks = that_shrink(3);
  ranks.settings = [](Settings& settings, int) {
    settings.on_failure = OnFailure::Shrink;
    settings.log_level = LogLevel::Error;
    settings.timeout = std::chrono::seconds(2);
  };
  ranks.thread_counts = {3};
  for (const Layout layout : {Layout::OneHost, Layout::TwoHosts}) {
    ranks.layouts = {layout};
    std::atomic<bool> have_gone_on = false;
    std::atomic<bool> has_heard = false;
    on_ranks(ranks, [&](Context& context) {
      if (context.rank() == 1) {
        context.close();
        return;
      }
      (void)lost_in(context);
      if (context.rank() == 0) {  // the one that the others look to
        wait_for(have_gone_on);
        EXPECT_THAT(error_of<StateError>([&] { (void)context.shrink(); }),
                    HasSubstr("have gone on without this one"));
        has_heard = true;
        return;
      }
      const auto smaller = context.shrink();
      EXPECT_EQ(smaller->size(), context.size() - 2);
      EXPECT_THAT(smaller->membership().lost[0].cause, HasSubstr("has not come to the others"));
      expect_usable(*smaller);
      have_gone_on = true;
      wait_for(has_heard);  // keeps what the late one meets in
    });
  }
}

// Whoever is stopped there holds up the others' start, and does not come to the next meeting.
TEST(Shrink, LeavesOutARankThatIsStoppedOnceItHasMetTheOthers) {
  constexpr int kStopped = 3;
  Ranks ranks = that_shrink(4);
  ranks.settings = [](Settings& settings, int) {
    settings.on_failure = OnFailure::Shrink;
    settings.log_level = LogLevel::Error;
    settings.timeout = std::chrono::seconds(2);
  };
  ranks.thread_counts = {4};
  ranks.layouts = {Layout::OneHost};
  std::atomic<int> have_gone_on = 0;
  on_ranks(ranks, [&](Context& context) {
    if (context.rank() == 0) {
      context.close();
      return;
    }
    (void)lost_in(context);
    if (context.rank() == kStopped) {
      const Bootstrap::Regrouped left = context.core().regroup(false);
      EXPECT_THAT(left.ranks, ElementsAre(1, 2, kStopped));
      wait_for([&] { return have_gone_on == 2; });
      return;
    }
    const auto smaller = context.shrink();
    ASSERT_EQ(smaller->size(), 2);
    EXPECT_THAT(smaller->membership().lost[1].cause, HasSubstr("has not come to the others"));
    expect_usable(*smaller);
    ++have_gone_on;
  });
}

// It has come to the first meeting, and may be the last by a moment to come to the second.
TEST(Shrink, ARankThatWasLateIsWaitedForInTheNextMeeting) {
  constexpr int kLate = 2;
  Ranks ranks = that_shrink(3);
  ranks.settings = [](Settings& settings, int) {
    settings.on_failure = OnFailure::Shrink;
    settings.log_level = LogLevel::Error;
    settings.timeout = std::chrono::seconds(4);  // 1 s for the one that is late
  };
  ranks.thread_counts = {3};
  ranks.layouts = {Layout::OneHost};
  on_ranks(ranks, [&](Context& context) {
    context.core().bootstrap().expect_late(kLate, context.settings().timeout);
    const Bootstrap::Regrouped first = context.core().regroup(false);
    ASSERT_THAT(first.ranks, ElementsAre(0, 1, kLate));
    EXPECT_FALSE(first.settle(false, Deadline::after(std::chrono::seconds(4))));
    std::this_thread::sleep_for(std::chrono::milliseconds(context.rank() == kLate ? 1400 : 1100));
    EXPECT_THAT(context.core().regroup(false).ranks, ElementsAre(0, 1, kLate));
  });
}

// Without a loss, and where a lost rank is an error.
TEST(Shrink, AllRanksMayMeetAgain) {
  Ranks ranks;
  ranks.expect_usable = false;
  on_ranks(ranks, [](Context& context) {
    const auto same = context.shrink();
    EXPECT_EQ(same->size(), context.size());
    EXPECT_EQ(same->rank(), context.rank());
    EXPECT_EQ(same->membership().epoch, 1U);
    EXPECT_TRUE(same->membership().lost.empty());
    expect_usable(*same);
    EXPECT_THAT(error_of<StateError>([&] { (void)context.shrink(); }),
                HasSubstr("the context is closed"));
  });
}

TEST(Shrink, EndsCopiesToo) {
  on_ranks(that_shrink(), [](Context& context) {
    const auto copy = context.duplicate();
    const auto second = context.duplicate();
    if (context.rank() == 0) {
      context.close();
      copy->close();
      second->close();
      return;
    }
    if (context.rank() == 1) {
      (void)lost_in(context);
    } else {
      (void)lost_in(*copy);  // waits there for rank 1, which does not come any more
    }
    const auto smaller = context.shrink();
    EXPECT_THROW((void)sum_over(*second, 1.0), RankLostError);
    EXPECT_THROW((void)sum_over(*copy, 1.0), RankLostError);
    expect_usable(*smaller->duplicate());
  });
}

TEST(Shrink, KeepsMemoryAndFormerMachines) {
  Ranks ranks = that_shrink(4);
  ranks.layouts = {Layout::OneHost};
  ranks.settings = [](Settings& settings, int) {
    settings.on_failure = OnFailure::Shrink;
    settings.log_level = LogLevel::Error;
    settings.nodes_per_machine = 2;
  };
  on_ranks(ranks, [](Context& context) {
    if (context.rank() == 0) {
      context.close();
      return;
    }
    const auto memory = context.allocate_shared(1 << 20);
    std::memset(memory.get(), context.rank(), 1 << 20);
    (void)lost_in(context);
    const auto smaller = context.shrink();
    EXPECT_EQ(memory.get()[(1 << 20) - 1], static_cast<std::byte>(context.rank()));
    EXPECT_EQ(smaller->machines().machine_count(), context.machines().machine_count());
    EXPECT_EQ(smaller->local_size(), context.rank() == 1 ? 1 : 2);
    expect_usable(*smaller);
  });
}

}  // namespace
}  // namespace bluefog::testing
