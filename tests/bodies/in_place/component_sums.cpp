// Neighbour averages in place, formed by all ranks that a step ties together: the bits of messages.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "bluefog_cpp/context/context_core.hpp"
#include "bluefog_cpp/error.hpp"
#include "bluefog_cpp/transport/host_memory.hpp"
#include "ops/calls/exchanges/component_sum.hpp"
#include "ops/collectives.hpp"
#include "ops/neighbor_allreduce.hpp"
#include "ops/pair_gossip.hpp"
#include "tests/bodies/in_place/component_plans.hpp"
#include "tests/bodies/in_place/shared_values.hpp"
#include "tests/support/ranks.hpp"
#include "topology/mixing/sender_weights.hpp"
#include "topology/mixing/step_graph.hpp"
#include "topology/schedule.hpp"
#include "topology/static_graphs.hpp"

namespace bluefog::testing {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

/// A step in which each rank hears and sends as `seed` says, with weights of both ends.
Plan random_plan(const Context& context, unsigned seed) {
  const int size = context.size();
  std::mt19937 random(seed);
  NeighborPlan own = NeighborPlan::alone(context.rank(), size);
  own.self_weight = 0.25 + 0.125 * context.rank();
  for (int sender = 0; sender < size; ++sender) {
    for (int reader = 0; reader < size; ++reader) {
      const bool is_edge = random() % 3 == 0;
      const double received = 0.1 * static_cast<double>(random() % 9) - 0.2;
      const double sent = 0.5 + static_cast<double>(random() % 5);
      if (sender == reader || !is_edge) {
        continue;
      }
      if (reader == context.rank()) {
        own.sources.push_back({.rank = sender, .weight = received});
      }
      if (sender == context.rank()) {
        own.destinations.push_back({.rank = reader, .weight = sent});
      }
    }
  }
  return std::make_shared<const NeighborPlan>(std::move(own));
}

/// The steps of several graphs.
std::vector<Plan> plans_of_graphs(const Context& context) {
  const int size = context.size();
  const int rank = context.rank();
  std::vector<Plan> plans;
  for (const MixingMatrix& graph : {topology::exponential(size), topology::ring(size),
                                    topology::star(size), topology::fully_connected(size)}) {
    plans.push_back(kept(graph.plan_for(rank)));
  }
  for (const Schedule& schedule :
       {topology::one_peer_exponential(size), topology::one_peer(topology::exponential(size)),
        topology::weighed_by_senders(topology::one_peer_exponential(size))}) {
    for (std::int64_t step = 0; step < std::min<std::int64_t>(schedule.period_steps(), 3); ++step) {
      plans.push_back(schedule.plan_for(rank, step));
    }
  }
  return plans;
}

/// What the call makes of these values by messages.
Values by_messages(Context& context, Values values, const Plan& plan,
                   ops::PlanCheck check = ops::PlanCheck::Trusted) {
  ops::neighbor_allreduce(context, values.view(), plan,
                          {.check = check, .synchronisation = kNeighbors});
  return values;
}

/// The call in shared memory gives the bits of the one by messages, and was in place or not.
void expect_the_bits_of_messages(Context& context, const Values& before, const Plan& plan,
                                 ops::PlanCheck check, bool is_in_place) {
  const Values apart = by_messages(context, before, plan, check);
  SharedValues shared(context, before);
  const std::uint64_t sums_before = sums(context);
  ops::neighbor_allreduce(context, shared.view(), plan, {.check = check});
  ASSERT_EQ(shared.values(), apart) << name_of(before.dtype()) << "[" << before.count() << "]";
  ASSERT_TRUE(shared.has_its_marks()) << name_of(before.dtype()) << "[" << before.count() << "]";
  ASSERT_EQ(sums(context) - sums_before, is_in_place ? 1U : 0U);
}

TEST(ComponentSums, GiveTheBitsOfMessages) {
  on_ranks(everywhere(2), [](Context& context) {
    for (const Plan& plan : plans_of_graphs(context)) {
      const bool is_in_place = may_be_in_place(context, *plan);
      for (const Dtype dtype : looked_at(kFloatingDtypes)) {
        for (const std::size_t count : counts(dtype)) {
          if (dtype != Dtype::Float32 && count != counts(dtype).back()) {
            continue;
          }
          const std::size_t ranks = plan->step->component_of(plan->rank, 1000)->size();
          const bool is_long = count * size_of(dtype) >= ops::ComponentSum::least_bytes(ranks);
          expect_the_bits_of_messages(context, thirds(dtype, count, context.rank()), plan,
                                      ops::PlanCheck::Trusted, is_long && is_in_place);
        }
      }
    }
  });
}

TEST(ComponentSums, GiveTheBitsOfMessagesInComparedSteps) {
  on_ranks(everywhere(2), [](Context& context) {
    const std::size_t count = counts(Dtype::Float32).back();
    for (unsigned seed = 0; seed < 12; ++seed) {
      const Plan plan = random_plan(context, seed);
      const Values before = thirds(Dtype::Float32, count, context.rank());
      const Values apart = by_messages(context, before, plan);
      SharedValues compared(context, before);
      const std::uint64_t sums_before = sums(context);
      ops::neighbor_allreduce(context, compared.view(), plan, {.check = ops::PlanCheck::Checked});
      ASSERT_EQ(compared.values(), apart) << "seed " << seed;
      const bool has_neighbors = !plan->sources.empty() || !plan->destinations.empty();
      const bool is_one_host =
          context.core().shared_memory() && context.hosts().machine_count() == 1;
      if (is_one_host) {
        ASSERT_EQ(sums(context) - sums_before, has_neighbors ? 1U : 0U) << "seed " << seed;
      }
      // Nobody knows the graph: by messages.
      SharedValues trusted(context, before);
      const std::uint64_t sums_after = sums(context);
      ops::neighbor_allreduce(context, trusted.view(), plan);
      ASSERT_EQ(trusted.values(), apart) << "seed " << seed;
      if (context.size() > 2) {
        ASSERT_EQ(sums(context), sums_after) << "seed " << seed;
      }
    }
  });
}

TEST(ComponentSums, GiveTheBitsOfMessagesWhereValuesAreNotFinite) {
  on_ranks(everywhere(2), [](Context& context) {
    const double large = 3e38;
    const double infinite = std::numeric_limits<double>::infinity();
    const double odd[]{large, -large, infinite, -infinite, std::nan(""), -0.0, 1e-42, 1.0};
    constexpr Dtype kDtypes[]{Dtype::Float32, Dtype::BFloat16, Dtype::Float16};
    for (const Plan& plan : plans_of_graphs(context)) {
      for (const Dtype dtype : looked_at(kDtypes)) {
        Values before = thirds(dtype, counts(dtype).back(), context.rank());
        for (std::size_t k = 0; k < before.count(); k += 5) {
          before.set(k,
                     odd[(k / 5 * 7 + static_cast<std::size_t>(context.rank()) * 3 + k / 64) % 8]);
        }
        expect_the_bits_of_messages(context, before, plan, ops::PlanCheck::Trusted,
                                    may_be_in_place(context, *plan));
      }
    }
  });
}

TEST(ComponentSums, TakeWeightsOfTheCallOnTheEdgesOfAGraph) {
  on_ranks(everywhere(2), [](Context& context) {
    NeighborPlan own = topology::ring(context.size()).plan_for(context.rank());
    own.self_weight = 0.1 * (1 + context.rank());
    for (WeightedRank& source : own.sources) {
      source.weight = 1.5 - 0.25 * source.rank;
    }
    for (WeightedRank& destination : own.destinations) {
      destination.weight = 0.75 + destination.rank;
    }
    expect_the_bits_of_messages(
        context, thirds(Dtype::Float64, counts(Dtype::Float64).back(), context.rank()), kept(own),
        ops::PlanCheck::Trusted, may_be_in_place(context, own));
  });
}

// Ranks 0 and 1 have left out an edge that the graph they name has.
TEST(ComponentSums, GoByMessagesWherePlansAreNotOfTheGraph) {
  on_ranks(everywhere(3), [](Context& context) {
    NeighborPlan own =
        topology::ring(context.size(), topology::RingStyle::Right).plan_for(context.rank());
    if (context.rank() == 0) {
      std::erase_if(own.destinations, [](const WeightedRank& to) { return to.rank == 1; });
      std::erase_if(own.sources, [](const WeightedRank& from) { return from.rank == 1; });
    } else if (context.rank() == 1) {
      std::erase_if(own.sources, [](const WeightedRank& from) { return from.rank == 0; });
      std::erase_if(own.destinations, [](const WeightedRank& to) { return to.rank == 0; });
    }
    expect_the_bits_of_messages(
        context, thirds(Dtype::Float32, counts(Dtype::Float32).back(), context.rank()), kept(own),
        ops::PlanCheck::Trusted, false);
  });
}

TEST(ComponentSums, MeetBuffersThatAreNotShared) {
  on_ranks(everywhere(2), [](Context& context) {
    const Plan plan = kept(topology::exponential(context.size()).plan_for(context.rank()));
    const Values before = thirds(Dtype::Float32, counts(Dtype::Float32).back(), context.rank());
    const Values expected = by_messages(context, before, plan);
    for (int alone = 0; alone < context.size(); ++alone) {
      for (const bool is_checked : {false, true}) {
        Values apart = before;
        SharedValues shared(context, before);
        const bool is_apart = context.rank() == alone;
        ops::neighbor_allreduce(
            context, is_apart ? apart.view() : shared.view(), plan,
            {.check = is_checked ? ops::PlanCheck::Checked : ops::PlanCheck::Trusted});
        ASSERT_EQ(is_apart ? apart : shared.values(), expected) << "rank " << alone << " apart";
      }
    }
  });
}

TEST(ComponentSums, MeetCallsThatAreNotInPlaceAndRanksThatChooseMessages) {
  on_ranks(everywhere(2), [](Context& context) {
    const Plan plan = kept(topology::ring(context.size()).plan_for(context.rank()));
    const Values before = thirds(Dtype::Float32, counts(Dtype::Float32).back(), context.rank());
    const Values expected = by_messages(context, before, plan);
    SharedValues input(context, before);
    SharedValues output(context, Values(before.dtype(), before.count()));
    if (context.rank() == 0) {
      ops::neighbor_allreduce(context, input.view(), output.view(), plan);
      EXPECT_EQ(input.values(), before);
      EXPECT_EQ(output.values(), expected);
    } else {
      ops::neighbor_allreduce(context, input.view(), plan);
      EXPECT_EQ(input.values(), expected);
    }
    SharedValues again(context, before);
    const std::uint64_t sums_before = sums(context);
    ops::neighbor_allreduce(
        context, again.view(), plan,
        {.synchronisation = context.rank() == 1 ? kNeighbors : SynchronisationChoice::Auto});
    EXPECT_EQ(again.values(), expected);
    EXPECT_EQ(sums(context), sums_before);
  });
}

// Each call leaves an offer in streams that no later message may ever be read from.
TEST(ComponentSums, DoNotFillStreamsWithOffersThatNobodyNeeds) {
  on_ranks({.at_least = 3, .at_most = few(8, 4), .layouts = {Layout::OneHost}},
           [](Context& context) {
             const Plan plan = kept(topology::ring(context.size()).plan_for(context.rank()));
             Values apart = small_integers(Dtype::UInt8, kLeastBytes, context.rank());
             Values values = small_integers(Dtype::Float16, kLeastBytes / 2, context.rank());
             constexpr int kCalls = 600;  // streams have 256 entries
             for (int call = 0; call < kCalls; ++call) {
               ops::neighbor_allreduce(context, values.view(), plan);
             }
             ops::allreduce(context, apart.view(), {.reduction = ops::Reduction::Max});
           });
}

TEST(ComponentSums, MayBeManyCallsAtOnce) {
  on_ranks(everywhere(2), [](Context& context) {
    constexpr int kCalls = 6;
    const Plan plan = kept(topology::exponential(context.size()).plan_for(context.rank()));
    const std::size_t count = counts(Dtype::Float32)[1];
    std::vector<SharedValues> buffers;
    std::vector<Values> apart;
    std::vector<Work> works;
    for (int i = 0; i < kCalls; ++i) {
      apart.push_back(thirds(Dtype::Float32, count, context.rank() + i));
      buffers.emplace_back(context, apart.back());
    }
    for (int i = 0; i < kCalls; ++i) {
      // Every second call is one by messages on one rank.
      works.push_back(ops::neighbor_allreduce_nonblocking(
          context, buffers[static_cast<std::size_t>(i)].view(), plan,
          {.synchronisation = i % 2 == 1 && context.rank() == 0 ? kNeighbors : kComponent}));
    }
    for (int i = kCalls - 1; i >= 0; --i) {
      works[static_cast<std::size_t>(i)].wait();
    }
    for (int i = 0; i < kCalls; ++i) {
      Values& expected = apart[static_cast<std::size_t>(i)];
      ops::neighbor_allreduce(context, expected.view(), plan, {.synchronisation = kNeighbors});
      ASSERT_EQ(buffers[static_cast<std::size_t>(i)].values(), expected) << "call " << i;
    }
  });
}

TEST(ComponentSums, AreNotForResultsThatWaitForSomebody) {
  on_ranks(everywhere(2), [](Context& context) {
    const Plan plan = kept(topology::ring(context.size()).plan_for(context.rank()));
    const Values before = thirds(Dtype::Float32, counts(Dtype::Float32).back(), context.rank());
    const Values expected = by_messages(context, before, plan);
    SharedValues shared(context, before);
    const std::uint64_t sums_before = sums(context);
    ops::neighbor_allreduce_nonblocking(context, shared.view(), plan,
                                        {.completion = ops::Completion::OnWait})
        .wait();
    EXPECT_EQ(shared.values(), expected);
    EXPECT_EQ(sums(context), sums_before);
  });
}

// Rank 0 takes a larger log for something else while its call waits for rank 1's offer; what had
// been the log is somebody's buffer then.
TEST(ComponentSums, WriteIntoTheLogThatThereIsWhenTheyAreFormed) {
  on_ranks({.at_least = 2,
            .at_most = 2,
            .layouts = {Layout::OneHost},
            .settings = [](Settings& settings, int) { settings.synchronisation = kComponent; }},
           [](Context& context) {
             const Plan plan = kept(topology::ring(2).plan_for(context.rank()));
             const Values before =
                 thirds(Dtype::Float32, counts(Dtype::Float32).back(), context.rank());
             const Values expected = by_messages(context, before, plan);
             SharedValues shared(context, before);
             float token = 0;
             const BufferView met{.data = &token, .count = 1};
             if (context.rank() == 1) {
               ops::pair_gossip(context, met, 0);
               ops::neighbor_allreduce(context, shared.view(), plan);
             } else {
               const Work work = ops::neighbor_allreduce_nonblocking(context, shared.view(), plan);
               std::byte* log = nullptr;
               std::byte* larger = nullptr;
               context.core().engine().run_exclusively([&] {
                 log = context.core().shared_memory()->log(1);
                 larger = context.core().shared_memory()->log(std::size_t{1} << 20U);
               });
               EXPECT_NE(larger, log);
               SharedValues mine(context, small_integers(Dtype::UInt8, 30'000, 0));
               const Values kept_values = mine.values();
               ops::pair_gossip(context, met, 1);
               work.wait();
               EXPECT_EQ(mine.values(), kept_values);
             }
             EXPECT_EQ(shared.values(), expected);
           });
}

// A rank that waits in vain rests, and the others hear of it in their next call.
TEST(ComponentSums, RestTogether) {
  on_ranks({.at_least = 3, .at_most = few(8, 4), .layouts = {Layout::OneHost}},
           [](Context& context) {
             const Plan plan = kept(topology::ring(context.size()).plan_for(context.rank()));
             SharedValues shared(
                 context, thirds(Dtype::Float32, counts(Dtype::Float32).back(), context.rank()));
             const auto call = [&] { ops::neighbor_allreduce(context, shared.view(), plan); };
             call();
             EXPECT_EQ(sums(context), 1U);
             if (context.rank() == 2) {
               context.core().component_waits().note_refusal(3);
             }
             ops::barrier(context);
             call();  // rank 2 rests, with two calls more to rest, and the others hear of it
             EXPECT_EQ(sums(context), 1U);
             EXPECT_EQ(context.core().component_waits().resting(), 2U);
             call();
             call();
             EXPECT_EQ(sums(context), 1U);
             call();
             EXPECT_EQ(sums(context), 2U);
           });
}

}  // namespace
}  // namespace bluefog::testing
