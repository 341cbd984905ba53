// Ranks that are calls apart, as after a cell of a notebook that failed on one of them.
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
#include "tests/support/ranks.hpp"

namespace bluefog::testing {
namespace {

using ::testing::AllOf;
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
    EXPECT_THAT(error, AllOf(HasSubstr("rank 0 has changed its own in call 2, neighbor_allreduce("),
                             HasSubstr("which rank 1 has not made")));
    meet(context);
  });
}

}  // namespace
}  // namespace bluefog::testing
