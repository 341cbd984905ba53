#include <gtest/gtest.h>

#include <chrono>
#include <thread>
#include <vector>

#include "ops/collectives.hpp"
#include "tests/support/ranks.hpp"

namespace bluefog::testing {
namespace {

std::int64_t now() { return std::chrono::steady_clock::now().time_since_epoch().count(); }

TEST(Barrier, NobodyLeavesBeforeTheLastOneEntered) {
  on_ranks([](Context& context) {
    for (int late = 0; late < context.size(); ++late) {
      if (context.rank() == late) {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
      // One machine, one clock.
      std::int64_t entered = now();
      ops::barrier(context);
      const std::int64_t left = now();
      std::vector<std::int64_t> all(static_cast<std::size_t>(context.size()));
      ops::allgather(context, {&entered, 1, Dtype::Int64}, [&](const auto&) {
        return BufferView{.data = all.data(), .count = context.size(), .dtype = Dtype::Int64};
      });
      for (const std::int64_t theirs : all) {
        EXPECT_GE(left, theirs);
      }
    }
  });
}

TEST(Barrier, NonblockingOnesPassInOrder) {
  on_ranks([](Context& context) {
    std::vector<Work> works;
    for (int i = 0; i < 100; ++i) {
      works.push_back(ops::barrier_nonblocking(context));
    }
    works.back().wait();
    for (const Work& work : works) {
      EXPECT_TRUE(work.done());
    }
  });
}

}  // namespace
}  // namespace bluefog::testing
