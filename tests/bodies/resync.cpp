// Ranks that are calls apart, as after a cell of a notebook that failed on one of them.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "bluefog_cpp/error.hpp"
#include "ops/collectives.hpp"
#include "ops/neighbor_allreduce.hpp"
#include "ops/pair_gossip.hpp"
#include "tests/bodies/failure_of.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/other_ranks.hpp"
#include "tests/support/ranks.hpp"

namespace bluefog::testing {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

Ranks with_short_waits() {
  return {.at_least = 2,
          .settings = [](Settings& settings, int) { settings.timeout = std::chrono::seconds(1); }};
}

TEST(Resync, RanksThatLeftCallsOutGoOnWithTheOthers) {
  on_ranks(with_short_waits(), [](Context& context) {
    float value = 1;
    const BufferView buffer{.data = &value, .count = 1};
    const auto average = [&] { ops::allreduce(context, buffer, {.buffer = ops::BufferUse::Copy}); };
    // Rank 1 does not come to these calls, and later to one that the others do not make.
    for (int call = 0; call < 2 && context.rank() != 1; ++call) {
      EXPECT_NE(failure_of(average).second, "no error");
    }
    meet(context);
    if (context.rank() == 1) {
      EXPECT_THAT(failure_of(average).second, HasSubstr("resync() on all of them"));
    }
    context.resync();
    float own = static_cast<float>(context.rank());
    std::vector<float> all(static_cast<std::size_t>(context.size()));
    ops::allgather(context, BufferView{.data = &own, .count = 1},
                   [&](const std::vector<std::int64_t>&) -> BufferView {
                     return {.data = all.data(), .count = context.size()};
                   });
    for (int rank = 0; rank < context.size(); ++rank) {
      EXPECT_EQ(all[static_cast<std::size_t>(rank)], static_cast<float>(rank));
    }
  });
}

TEST(Resync, EndsCallsInFlightAndCountsThoseOfPairs) {
  on_ranks(with_short_waits(), [](Context& context) {
    float value = static_cast<float>(context.rank());
    const BufferView buffer{.data = &value, .count = 1};
    Work left;
    if (context.rank() == 0) {
      left = ops::pair_gossip_nonblocking(context, buffer, 1);
    }
    context.resync();
    if (context.rank() == 0) {
      EXPECT_THAT(error_of<StateError>([&] { left.wait(); }), HasSubstr("ended by a resync"));
    }
    if (context.rank() < 2) {
      value = static_cast<float>(2 * context.rank());
      ops::pair_gossip(context, buffer, 1 - context.rank());
      EXPECT_EQ(value, 1.0F);
    }
  });
}

TEST(Resync, EndsWhereARankHasLeft) {
  Ranks ranks{.at_least = 2};
  ranks.expect_usable = false;
  on_ranks(ranks, [](Context& context) {
    if (!context.core().bootstrap().in_process()) {
      GTEST_SKIP() << other_ranks("ranks that are threads");  // MPI's collectives cannot be left
    }
    const int last = context.size() - 1;
    if (context.rank() == last) {
      context.close();
      return;
    }
    EXPECT_THAT(error_of<PeerFailure>([&] { context.resync(); }),
                AnyOf(HasSubstr(fmt::format(
                          "rank {}, resync: expected all {} ranks to call it, but rank {} "
                          "does not come: that rank has closed its context",
                          context.rank(), context.size(), last)),
                      HasSubstr("has left")));
  });
}

TEST(Resync, IsRefusedAcrossACallInPlace) {
  Ranks ranks = with_short_waits();
  ranks.expect_usable = false;
  on_ranks(ranks, [](Context& context) {
    float value = 1;
    const BufferView buffer{.data = &value, .count = 1};
    ops::barrier(context);
    if (context.rank() == 0) {  // which hears nobody, and is done
      auto plan = std::make_shared<NeighborPlan>(NeighborPlan::alone(0, context.size()));
      plan->self_weight = 0.5;
      ops::neighbor_allreduce(context, buffer, plan, {.name = "weight"});
    }
    const std::string error = error_of<StateError>([&] { context.resync(); });
    EXPECT_THAT(error,
                AllOf(HasSubstr("rank 0 has changed its own, in whole or in part, in call 2, "
                                "neighbor_allreduce("),
                      HasSubstr("which rank 1 has not made")));
    meet(context);
  });
}

// Rank 1 hears rank 0 and is done, rank 0 waits for rank 2, which has refused the call: all of them
// have counted it.
TEST(Resync, IsRefusedWhereACallInPlaceFailedOnSomeRanksAlone) {
  Ranks ranks = with_short_waits();
  ranks.at_least = 3;
  ranks.expect_usable = false;
  on_ranks(ranks, [](Context& context) {
    const int rank = context.rank();
    const int size = context.size();
    float value = static_cast<float>(rank);
    const BufferView buffer{.data = &value, .count = 1};
    ops::barrier(context);
    auto plan = std::make_shared<NeighborPlan>(NeighborPlan::alone(rank, size));
    if (rank < 3) {
      const int before = (rank + 2) % 3;
      const int after = (rank + 1) % 3;
      plan->self_weight = 0.5;
      plan->sources = {{.rank = before, .weight = 0.5}};
      plan->destinations = {{.rank = after, .weight = 1.0}};
    }
    float token = 0;
    const BufferView met{.data = &token, .count = 1};
    if (rank == 2) {
      ops::pair_gossip(context, met, 1);  // rank 1 has made the call by now
      const BufferView wrong{.data = nullptr, .count = 1};
      EXPECT_NE(failure_of([&] { ops::neighbor_allreduce(context, wrong, plan); }).second,
                "no error");
    } else if (rank == 1) {
      ops::neighbor_allreduce(context, buffer, plan);
      EXPECT_EQ(value, 0.5F);
      ops::pair_gossip(context, met, 2);
    } else if (rank == 0) {
      EXPECT_NE(failure_of([&] { ops::neighbor_allreduce(context, buffer, plan); }).second,
                "no error");
      EXPECT_EQ(value, 0.0F);
    } else {
      ops::neighbor_allreduce(context, buffer, plan);
    }
    const std::string error = error_of<StateError>([&] { context.resync(); });
    EXPECT_THAT(error,
                AllOf(HasSubstr("rank 1 has changed its own, in whole or in part, in call 2"),
                      HasSubstr("has not made to its end")));
    meet(context);
  });
}

// A call that has failed on all ranks before it changed anything is no hindrance.
TEST(Resync, BearsCallsInPlaceThatHaveChangedNothing) {
  on_ranks(with_short_waits(), [](Context& context) {
    float value = 1;
    const BufferView buffer{.data = &value, .count = 1};
    if (context.rank() == 1) {
      const BufferView wrong{.data = nullptr, .count = 1};
      EXPECT_NE(failure_of([&] { ops::allreduce(context, wrong); }).second, "no error");
    } else {
      EXPECT_NE(failure_of([&] { ops::allreduce(context, buffer); }).second, "no error");
    }
    context.resync();
    ops::allreduce(context, buffer);
    EXPECT_EQ(value, 1.0F);
  });
}

}  // namespace
}  // namespace bluefog::testing
