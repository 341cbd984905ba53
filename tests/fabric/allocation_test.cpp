// Repeated calls allocate no memory.
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "ops/collectives.hpp"
#include "ops/neighbor_allreduce.hpp"
#include "tests/support/allocation_count.hpp"
#include "tests/support/ranks.hpp"
#include "topology/static_graphs.hpp"

namespace bluefog::testing {
namespace {

/// The owner of the memory of a call's buffer.
enum class Memory { Own, Shared };

using Plan = std::shared_ptr<const NeighborPlan>;

using Call = std::function<void(Context&, const Plan&, const BufferView&)>;

/// Expects that `calls` calls allocate nothing after as many before them, but for lists that grow
/// once.
void expect_no_allocations(const Call& call, Memory memory = Memory::Own, int calls = 50) {
  // More calls may be in flight at once than ever before, and make lists or the pool grow.
  constexpr std::size_t kGrowthOfARank = 3;
  // One host only: allocations of MPI and of the thread bootstrap's network are not this library's.
  const Ranks ranks{.at_least = 2, .at_most = 8, .layouts = {Layout::OneHost}};
  for (const std::size_t count : {1, 50'000}) {
    on_ranks(ranks, [&](Context& context) {
      const Plan plan = std::make_shared<const NeighborPlan>(
          topology::exponential(context.size()).plan_for(context.rank()));
      std::vector<float> values(memory == Memory::Own ? count : 0);
      const auto shared = context.allocate_shared(count * sizeof(float));
      const BufferView buffer{
          .data = memory == Memory::Own ? values.data() : static_cast<void*>(shared.get()),
          .count = static_cast<std::int64_t>(count)};
      for (int i = 0; i < calls; ++i) {
        call(context, plan, buffer);
      }
      ops::barrier(context);
      const std::size_t before = allocations_of_all_threads();
      ops::barrier(context);
      for (int i = 0; i < calls; ++i) {
        call(context, plan, buffer);
      }
      ops::barrier(context);
      const std::size_t after = allocations_of_all_threads();
      ops::barrier(context);
      EXPECT_LE(after - before, kGrowthOfARank * static_cast<std::size_t>(context.size()))
          << count << " elements";
    });
  }
}

void expect_no_allocations_nonblocking(const ops::NeighborAllreduceOptions& options) {
  expect_no_allocations([&](Context& context, const Plan& plan, const BufferView& buffer) {
    ops::neighbor_allreduce_nonblocking(context, buffer, plan, options).wait();
  });
}

TEST(Allocations, NoneInBlockingCalls) {
  expect_no_allocations([](Context& context, const Plan& plan, const BufferView& buffer) {
    ops::neighbor_allreduce(context, buffer, plan);
  });
}

TEST(Allocations, NoneInNonblockingCallsWithALongName) {
  expect_no_allocations_nonblocking(
      {.name = "a name that is longer than what a string holds by itself"});
}

TEST(Allocations, NoneInHeldCalls) {
  expect_no_allocations_nonblocking({.name = "held", .completion = ops::Completion::OnWait});
}

TEST(Allocations, NoneInAllreduces) {
  expect_no_allocations([](Context& context, const Plan& /*plan*/, const BufferView& buffer) {
    ops::allreduce(context, buffer);
  });
}

TEST(Allocations, NoneInSumsOfSharedBuffers) {
  const auto call = [](Context& context, const Plan& plan, const BufferView& buffer) {
    ops::allreduce(context, buffer);
    ops::neighbor_allreduce_nonblocking(context, buffer, plan).wait();
  };
  expect_no_allocations(call, Memory::Shared);
}

// A rank that waits looks at its calls every 20 ms.
TEST(Allocations, NoneInCallsThatWait) {
  const auto call = [](Context& context, const Plan& plan, const BufferView& buffer) {
    if (context.rank() == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(60));
    }
    ops::neighbor_allreduce(context, buffer, plan);
  };
  expect_no_allocations(call, Memory::Own, 4);
}

TEST(Allocations, NoneInBarriers) {
  expect_no_allocations([](Context& context, const Plan& /*plan*/, const BufferView& /*buffer*/) {
    ops::barrier(context);
  });
}

}  // namespace
}  // namespace bluefog::testing
