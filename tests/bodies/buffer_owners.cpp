// Owners of buffers: calls keep them until they are done, whoever holds their `Work` then.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bluefog_cpp/error.hpp"
#include "ops/collectives.hpp"
#include "ops/hierarchical_neighbor_allreduce.hpp"
#include "ops/neighbor_allgather.hpp"
#include "ops/neighbor_allreduce.hpp"
#include "ops/pair_gossip.hpp"
#include "ops/window.hpp"
#include "tests/bodies/window_plans.hpp"
#include "tests/support/ranks.hpp"
#include "topology/static_graphs.hpp"

namespace bluefog::testing {
namespace {

/// Buffers of one call, and whether their memory is still kept.
class OwnedBuffers {
 public:
  [[nodiscard]] BufferView make() {
    constexpr std::int64_t kCount = 3000;
    auto memory = std::make_shared<std::vector<float>>(kCount, 1.0F);
    float* const data = memory->data();
    kept_.push_back(memory);
    return {.data = data, .count = kCount, .owner = std::move(memory)};
  }
  [[nodiscard]] bool are_kept() const {
    return std::ranges::any_of(kept_, [](const auto& memory) { return !memory.expired(); });
  }

 private:
  std::vector<std::weak_ptr<const void>> kept_;
};

void wait_until_done(const Work& work) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!work.done() && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

/// Starts the call, which nobody waits for, and looks when it is done.
void expect_released(const std::string& name, const std::function<Work(OwnedBuffers&)>& start) {
  OwnedBuffers buffers;
  const Work work = start(buffers);
  wait_until_done(work);
  EXPECT_TRUE(work.done()) << name;
  EXPECT_FALSE(buffers.are_kept()) << name;
  work.wait();
}

ops::AllocateGathered allocate_in(OwnedBuffers& buffers, std::int64_t count) {
  return [view = buffers.make(), count](const std::vector<std::int64_t>&) mutable {
    view.count = count;
    return std::exchange(view, {});
  };
}

TEST(BufferOwners, CallsThatAreDoneLetGoOfThem) {
  on_ranks([](Context& context) {
    const auto ring = std::make_shared<const NeighborPlan>(ring_plan(context));
    const MachineLayout& layout = context.machines();
    const auto machines = std::make_shared<const NeighborPlan>(
        topology::ring(layout.machine_count()).plan_for(layout.machine_of(context.rank())));
    expect_released("allreduce", [&](OwnedBuffers& buffers) {
      return ops::allreduce_nonblocking(context, buffers.make());
    });
    expect_released("neighbor_allreduce", [&](OwnedBuffers& buffers) {
      return ops::neighbor_allreduce_nonblocking(context, buffers.make(), buffers.make(), ring);
    });
    expect_released("neighbor_allreduce in place", [&](OwnedBuffers& buffers) {
      return ops::neighbor_allreduce_nonblocking(context, buffers.make(), ring);
    });
    expect_released("hierarchical_neighbor_allreduce", [&](OwnedBuffers& buffers) {
      return ops::hierarchical_neighbor_allreduce_nonblocking(context, buffers.make(), machines);
    });
    expect_released("broadcast", [&](OwnedBuffers& buffers) {
      return ops::broadcast_nonblocking(context, buffers.make(), 0);
    });
    expect_released("allgather", [&](OwnedBuffers& buffers) {
      BufferView input = buffers.make();
      input.count = 3;
      return ops::allgather_nonblocking(context, input, allocate_in(buffers, 3 * context.size()));
    });
    expect_released("neighbor_allgather", [&](OwnedBuffers& buffers) {
      BufferView input = buffers.make();
      input.count = 3;
      const auto sources = static_cast<std::int64_t>(ring->sources.size());
      return ops::neighbor_allgather_nonblocking(context, input, allocate_in(buffers, 3 * sources),
                                                 ring);
    });
    if (const int partner = context.rank() ^ 1; partner < context.size()) {
      expect_released("pair_gossip", [&](OwnedBuffers& buffers) {
        return ops::pair_gossip_nonblocking(context, buffers.make(), buffers.make(), partner);
      });
    }
  });
}

TEST(BufferOwners, CallsThatFailedLetGoOfThem) {
  on_ranks({.at_least = 2, .expect_usable = false}, [](Context& context) {
    OwnedBuffers buffers;
    BufferView view = buffers.make();
    view.count -= context.rank() == 0 ? 1 : 0;
    const Work work = ops::allreduce_nonblocking(context, std::exchange(view, {}));
    EXPECT_THROW(work.wait(), Error);
    EXPECT_FALSE(buffers.are_kept());
    meet(context);  // some ranks may hear of it only now
  });
}

TEST(BufferOwners, CallsOfWindowsThatAreDoneLetGoOfThem) {
  on_ranks([](Context& context) {
    std::vector<float> value(3000, 1.0F);
    const BufferView view{.data = value.data(), .count = 3000};
    const auto window = ops::Window::create(context, view, full_plan(context));
    expect_released("win_put",
                    [&](OwnedBuffers& buffers) { return window->put_nonblocking(buffers.make()); });
    expect_released("win_accumulate", [&](OwnedBuffers& buffers) {
      return window->accumulate_nonblocking(buffers.make());
    });
    ops::barrier(context);
    window->free();
  });
}

}  // namespace
}  // namespace bluefog::testing
