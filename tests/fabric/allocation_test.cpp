// Calls that come again and again take no memory anew.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <vector>

#include "ops/collectives.hpp"
#include "ops/neighbor_allreduce.hpp"
#include "tests/support/allocation_count.hpp"
#include "tests/support/ranks.hpp"
#include "topology/static_graphs.hpp"

namespace bluefog::testing {
namespace {

using Plan = std::shared_ptr<const NeighborPlan>;

/// After some calls, as many again of all ranks allocate nothing, but for lists that grow once.
void expect_no_allocations(
    const std::function<void(Context&, const Plan&, std::vector<float>&)>& call) {
  constexpr int kCalls = 50;
  // More calls may be in flight at once than ever before, and make a list or the pool grow.
  constexpr std::size_t kGrowth = 5;
  // Inside a host: what MPI and the thread bootstrap's network do is not this library's.
  const Ranks ranks{.at_least = 2, .at_most = 8, .layouts = {Layout::OneHost}};
  for (const std::size_t count : {1, 50'000}) {
    on_ranks(ranks, [&](Context& context) {
      const Plan plan = std::make_shared<const NeighborPlan>(
          topology::exponential(context.size()).plan_for(context.rank()));
      std::vector<float> values(count, 1.0F);
      for (int i = 0; i < kCalls; ++i) {
        call(context, plan, values);
      }
      ops::barrier(context);
      const std::size_t before = allocations_of_all_threads();
      ops::barrier(context);
      for (int i = 0; i < kCalls; ++i) {
        call(context, plan, values);
      }
      ops::barrier(context);
      const std::size_t after = allocations_of_all_threads();
      ops::barrier(context);
      EXPECT_LE(after - before, kGrowth) << count << " elements";
    });
  }
}

BufferView view_of(std::vector<float>& values) {
  return {.data = values.data(), .count = static_cast<std::int64_t>(values.size())};
}

void expect_no_allocations_nonblocking(const ops::NeighborAllreduceOptions& options) {
  expect_no_allocations([&](Context& context, const Plan& plan, std::vector<float>& values) {
    ops::neighbor_allreduce_nonblocking(context, view_of(values), plan, options).wait();
  });
}

TEST(Allocations, NoneInBlockingCalls) {
  expect_no_allocations([](Context& context, const Plan& plan, std::vector<float>& values) {
    ops::neighbor_allreduce(context, view_of(values), plan);
  });
}

TEST(Allocations, NoneInNonblockingCallsWithALongName) {
  expect_no_allocations_nonblocking(
      {.name = "a name that is longer than what a string holds by itself"});
}

TEST(Allocations, NoneInHeldCalls) {
  expect_no_allocations_nonblocking({.name = "held", .completion = ops::Completion::OnWait});
}

TEST(Allocations, NoneInBarriers) {
  expect_no_allocations([](Context& context, const Plan& /*plan*/, std::vector<float>&
                           /*values*/) { ops::barrier(context); });
}

}  // namespace
}  // namespace bluefog::testing
