#include "ops/neighbor_allgather.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "bluefog_cpp/error.hpp"
#include "tests/support/ranks.hpp"
#include "tests/support/values.hpp"
#include "topology/plan_builder.hpp"
#include "topology/schedule.hpp"
#include "topology/static_graphs.hpp"

namespace bluefog::testing {
namespace {

using ::testing::HasSubstr;
using Plan = std::shared_ptr<const NeighborPlan>;

Plan share(NeighborPlan plan) { return std::make_shared<const NeighborPlan>(std::move(plan)); }

/// Gathers along `plan` with `count_of(rank)` elements from each rank, and compares.
template <typename CountOf>
void gather_and_check(Context& context, const Plan& plan, Dtype dtype, CountOf count_of,
                      const ops::NeighborAllgatherOptions& options = {}) {
  std::vector<int> order = options.order;
  if (order.empty()) {
    std::ranges::transform(plan->sources, std::back_inserter(order), &WeightedRank::rank);
  }
  std::vector<std::int64_t> expected_counts;
  std::vector<double> expected;
  for (const int source : order) {
    const std::size_t count = count_of(source);
    expected_counts.push_back(static_cast<std::int64_t>(count));
    const auto part = small_integers(dtype, count, source).to_doubles();
    expected.insert(expected.end(), part.begin(), part.end());
  }
  Values input = small_integers(dtype, count_of(context.rank()), context.rank());
  const Values before = input;
  Values output(dtype, std::size_t{0});
  int allocations = 0;
  ops::neighbor_allgather(
      context, input.view(),
      [&](const std::vector<std::int64_t>& counts) {
        EXPECT_EQ(counts, expected_counts);
        ++allocations;
        output = Values(dtype, expected.size());
        return output.view();
      },
      plan, options);
  EXPECT_EQ(allocations, 1);
  EXPECT_EQ(output, Values(dtype, expected));
  EXPECT_EQ(input, before);
}

TEST(NeighborAllgather, EveryDtypeOnStaticGraphs) {
  on_ranks([](Context& context) {
    for (const MixingMatrix& w :
         {topology::exponential(context.size()), topology::star(context.size()),
          topology::ring(context.size()), MixingMatrix::identity(context.size())}) {
      for (const Dtype dtype : kAllDtypes) {
        gather_and_check(context, share(w.plan_for(context.rank())), dtype,
                         [](int) { return std::size_t{9}; });
      }
    }
  });
}

TEST(NeighborAllgather, CountsMayDifferAndBeZero) {
  on_ranks([](Context& context) {
    const Plan plan = share(topology::exponential(context.size()).plan_for(context.rank()));
    gather_and_check(context, plan, Dtype::Float32, [](int rank) {
      return rank % 2 == 0 ? std::size_t{0} : large(static_cast<std::size_t>(rank) * 100'000);
    });
    gather_and_check(context, plan, Dtype::Int64,
                     [](int rank) { return static_cast<std::size_t>(rank) * 1000 + 1; });
  });
}

TEST(NeighborAllgather, FollowsAnOrder) {
  on_ranks([](Context& context) {
    const int rank = context.rank();
    const Plan plan = share(topology::fully_connected(context.size()).plan_for(rank));
    std::vector<int> falling;
    for (int other = context.size() - 1; other >= 0; --other) {
      if (other != rank) {
        falling.push_back(other);
      }
    }
    std::vector<int> with_own = falling;
    with_own.insert(with_own.begin() + with_own.size() / 2, rank);
    for (const auto& order : {falling, with_own}) {
      for (const ops::PlanCheck check : {ops::PlanCheck::Trusted, ops::PlanCheck::Checked}) {
        gather_and_check(
            context, plan, Dtype::Int32,
            [](int source) { return large(static_cast<std::size_t>(source) * 10'000) + 1; },
            {.check = check, .order = order});
      }
    }
  });
}

TEST(NeighborAllgather, AnOrderNamesEachSourceOnce) {
  on_ranks({.at_least = 3, .at_most = 3}, [](Context& context) {
    const int rank = context.rank();
    const int ahead = (rank + 1) % 3;
    const Plan plan = share(topology::ring(3).plan_for(rank));
    Values input = small_integers(Dtype::Float32, std::size_t{2}, rank);
    for (const auto& order : std::vector<std::vector<int>>{
             {ahead}, {rank}, {ahead, ahead}, {ahead, (rank + 2) % 3, rank, rank}, {ahead, 3}}) {
      try {
        ops::neighbor_allgather(context, input.view(), [&](const auto&) { return input.view(); },
                                plan, {.order = order});
        ADD_FAILURE() << "expected an error";
      } catch (const InvalidArgument& error) {
        EXPECT_THAT(error.what(), HasSubstr("order: expected each source of the plan, ["));
      }
    }
    gather_and_check(context, plan, Dtype::Float32, [](int) { return std::size_t{2}; });
  });
}

TEST(NeighborAllgather, FollowsAPlanOfEachStep) {
  on_ranks([](Context& context) {
    const Schedule schedule = topology::one_peer_exponential(context.size());
    for (int step = 0; step < 6; ++step) {
      gather_and_check(context, schedule.plan_for(context.rank(), step), Dtype::Float64,
                       [&](int rank) { return static_cast<std::size_t>(rank + step); });
    }
  });
}

TEST(NeighborAllgather, SendersAndReceiversThatDoNotMatchAreAnErrorOnEveryRank) {
  on_ranks({.at_least = 2}, [](Context& context) {
    NeighborPlan plan = NeighborPlan::alone(context.rank(), context.size());
    if (context.rank() == 0) {
      plan.destinations = {{.rank = 1}};  // whom rank 1 does not hear
    }
    try {
      gather_and_check(context, share(plan), Dtype::Float32, [](int) { return std::size_t{3}; },
                       {.name = "x", .check = ops::PlanCheck::Checked});
      ADD_FAILURE() << "expected an error";
    } catch (const MismatchError& error) {
      EXPECT_THAT(error.what(), HasSubstr("neighbor_allgather"));
    }
    const Plan ring = share(topology::ring(context.size()).plan_for(context.rank()));
    gather_and_check(context, ring, Dtype::Float32, [](int) { return std::size_t{3}; },
                     {.name = "x", .check = ops::PlanCheck::Checked});
  });
}

TEST(NeighborAllgather, WrongArgumentsAreRefused) {
  on_ranks([](Context& context) {
    const Plan plan = share(topology::ring(context.size()).plan_for(context.rank()));
    float value = 0;
    const ConstBufferView input(&value, 1, Dtype::Float32);
    const auto room = [](const std::vector<std::int64_t>&) { return BufferView{}; };
    EXPECT_THROW(ops::neighbor_allgather(context, input, room, nullptr), InvalidArgument);
    EXPECT_THROW(ops::neighbor_allgather(context, input, {}, plan), InvalidArgument);
    EXPECT_THROW(
        ops::neighbor_allgather(context, input, room,
                                share(NeighborPlan::alone(context.rank(), context.size() + 1))),
        InvalidArgument);
    EXPECT_THROW(ops::neighbor_allgather(context, {nullptr, 1, Dtype::Float32}, room, plan),
                 InvalidArgument);
  });
}

}  // namespace
}  // namespace bluefog::testing
