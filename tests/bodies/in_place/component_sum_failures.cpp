// Neighbour averages in place that do not come to their end: errors that say why, and no rank that
// waits for ever.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "bluefog_cpp/error.hpp"
#include "ops/collectives.hpp"
#include "ops/neighbor_allreduce.hpp"
#include "tests/bodies/failure_of.hpp"
#include "tests/bodies/in_place/component_plans.hpp"
#include "tests/bodies/in_place/shared_values.hpp"
#include "tests/support/ranks.hpp"
#include "topology/schedule.hpp"
#include "topology/static_graphs.hpp"

namespace bluefog::testing {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

TEST(ComponentSumFailures, StayAsTheyWereInCallsThatDiffer) {
  on_ranks(everywhere(2), [](Context& context) {
    const Plan plan = kept(topology::fully_connected(context.size()).plan_for(context.rank()));
    const std::size_t count =
        counts(Dtype::Float32).back() + static_cast<std::size_t>(context.rank());
    const Values before = thirds(Dtype::Float32, count, context.rank());
    SharedValues shared(context, before);
    const std::string found =
        failure_of([&] { ops::neighbor_allreduce(context, shared.view(), plan); }).second;
    EXPECT_THAT(found, HasSubstr("neighbor_allreduce(float32[" + std::to_string(count) + "]"));
    EXPECT_THAT(found, HasSubstr("called neighbor_allreduce(float32["));
    EXPECT_EQ(shared.values(), before);
  });
}

// Rank 0 is a step ahead: its component is another one, whose ranks it tells.
TEST(ComponentSumFailures, OfRanksAtOtherStepsEndAtOnce) {
  on_ranks({.at_least = 4,
            .at_most = 4,
            .layouts = {Layout::OneHost},
            .settings = [](Settings& settings, int) { settings.synchronisation = kComponent; }},
           [](Context& context) {
             const Schedule schedule = topology::one_peer_exponential(context.size());
             const Plan plan = schedule.plan_for(context.rank(), context.rank() == 0 ? 1 : 0);
             SharedValues shared(
                 context, thirds(Dtype::Float32, counts(Dtype::Float32).back(), context.rank()));
             const auto found =
                 failure_of([&] { ops::neighbor_allreduce(context, shared.view(), plan); });
             EXPECT_THAT(found.second, AnyOf(HasSubstr("are all ranks at the same step"),
                                             HasSubstr("mismatched calls")));
             meet(context);
           });
}

// Rank 0 sends to another rank than the graph of its plan says.
TEST(ComponentSumFailures, OfOtherReadersThanTheGraphsAreErrors) {
  on_ranks(
      {.at_least = 4,
       .at_most = 4,
       .layouts = {Layout::OneHost},
       .settings =
           [](Settings& settings, int) {
             settings.synchronisation = kComponent;
             settings.timeout = std::chrono::seconds(3);  // in short chunks nothing else tells
           }},
      [](Context& context) {
        NeighborPlan own =
            topology::ring(context.size(), topology::RingStyle::Right).plan_for(context.rank());
        if (context.rank() == 0) {
          own.destinations.front().rank = 2;
        }
        SharedValues shared(context,
                            thirds(Dtype::Float32, counts(Dtype::Float32).back(), context.rank()));
        const auto found =
            failure_of([&] { ops::neighbor_allreduce(context, shared.view(), kept(own)); });
        if (context.rank() == 1) {
          EXPECT_NE(found.second, "no error");
        }
        (void)failure_of([&] { ops::barrier(context); });  // others may hear of it only now
        (void)failure_of([&] { ops::barrier(context); });
        meet(context);
      });
}

// One rank knows nobody; those that know it hear that it does not come.
TEST(ComponentSumFailures, OfPlansThatDoNotMatchAreErrors) {
  on_ranks(everywhere(3), [](Context& context) {
    const int last = context.size() - 1;
    const Plan plan = context.rank() == last
                          ? kept(NeighborPlan::alone(last, context.size()))
                          : kept(topology::ring(context.size()).plan_for(context.rank()));
    const Values before = thirds(Dtype::Float32, counts(Dtype::Float32).back(), context.rank());
    SharedValues shared(context, before);
    const auto found = failure_of([&] { ops::neighbor_allreduce(context, shared.view(), plan); });
    const bool hears_it = context.rank() == 0 || context.rank() == last - 1;
    if (context.rank() != last && (hears_it || may_be_in_place(context, *plan))) {
      EXPECT_NE(found.second, "no error");
    }
    (void)failure_of([&] { ops::barrier(context); });  // the last one may hear of it only now
    (void)failure_of([&] { ops::barrier(context); });
    meet(context);
  });
}

// The same edges: but who knows all of them counts on the others' knowing them.
TEST(ComponentSumFailures, OfPlansSomeOfWhichNameNoGraphAreErrorsThatSaySo) {
  on_ranks({.at_least = 3,
            .at_most = few(8, 4),
            .layouts = {Layout::OneHost},
            .settings = [](Settings& settings, int) { settings.synchronisation = kComponent; }},
           [](Context& context) {
             NeighborPlan own = topology::fully_connected(context.size()).plan_for(context.rank());
             if (context.rank() == 0) {
               own.step = nullptr;
             }
             const Values values =
                 thirds(Dtype::Float32, counts(Dtype::Float32).back(), context.rank());
             SharedValues shared(context, values);
             Values apart = values;
             for (const BufferView& buffer : {shared.view(), apart.view()}) {
               const auto found =
                   failure_of([&] { ops::neighbor_allreduce(context, buffer, kept(own)); });
               EXPECT_THAT(found.second, HasSubstr("knows the whole step's graph"));
               (void)failure_of([&] { ops::barrier(context); });
             }
             meet(context);
           });
}

TEST(ComponentSumFailures, AreNotGivenOutAgainAfterAFailedCall) {
  on_ranks(
      {.at_least = 2,
       .layouts = {Layout::OneHost},
       .settings = [](Settings& settings, int) { settings.synchronisation = kComponent; }},
      [](Context& context) {
        const Plan plan = kept(topology::fully_connected(context.size()).plan_for(context.rank()));
        const std::size_t count = counts(Dtype::Float32).back();
        const auto allocate = [&] { return context.allocate_shared(count * sizeof(float)); };
        auto memory = allocate();
        const void* const first = memory.get();
        const BufferView buffer{.data = memory.get(), .count = static_cast<std::int64_t>(count)};
        if (context.rank() == 0) {
          EXPECT_THROW(
              ops::neighbor_allreduce(context, {.data = nullptr, .count = buffer.count}, plan),
              InvalidArgument);
        } else {
          EXPECT_EQ(failure_of([&] { ops::neighbor_allreduce(context, buffer, plan); }).first, 0);
        }
        memory.reset();
        EXPECT_EQ(allocate().get() == first, context.rank() == 0);
        ops::barrier(context);
      });
}

TEST(ComponentSumFailures, NameARankThatLeaves) {
  on_ranks({.at_least = 2,
            .at_most = few(8, 4),
            .settings = [](Settings& settings, int) { settings.synchronisation = kComponent; },
            .expect_usable = false},
           [](Context& context) {
             const Plan plan = kept(topology::ring(context.size()).plan_for(context.rank()));
             SharedValues shared(
                 context, thirds(Dtype::Float32, counts(Dtype::Float32).back(), context.rank()));
             ops::neighbor_allreduce(context, shared.view(), plan);
             if (context.rank() == 1) {
               return;  // its context goes
             }
             const auto [rank, text] =
                 failure_of([&] { ops::neighbor_allreduce(context, shared.view(), plan); });
             if (may_be_in_place(context, *plan) || context.rank() == 0 || context.rank() == 2) {
               EXPECT_NE(rank, -1) << text;
             }
           });
}

}  // namespace
}  // namespace bluefog::testing
