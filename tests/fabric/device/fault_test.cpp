// Random calls of which one fails in CUDA or NCCL on one rank: nothing hangs, no memory is used
// without an order or after its end, no payload is taken for another call's, and the CPU's calls go
// on.
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "bluefog_cpp/context/context_core.hpp"
#include "bluefog_cpp/device/device_channel.hpp"
#include "bluefog_cpp/device/rank_problems.hpp"
#include "bluefog_cpp/error.hpp"
#include "ops/collectives.hpp"
#include "ops/neighbor_allreduce.hpp"
#include "tests/fabric/device/bodies.hpp"
#include "tests/support/gpu/device_ranks.hpp"
#include "topology/static_graphs.hpp"

namespace bluefog::testing {
namespace {

constexpr int kSeeds = few(40, 10);
constexpr int kSteps = 14;
constexpr std::size_t kBuffers = 4;
constexpr std::array kDriverCalls{
    "cuMemAlloc",    "cuMemHostAlloc", "cuEventCreate", "cuEventRecord",   "cuStreamWaitEvent",
    "cuMemcpyAsync", "cuLaunchKernel", "cuEventQuery",  "cuMemsetD8Async", "ncclSend",
    "ncclRecv",      "ncclGroupStart", "ncclGroupEnd"};

class DeviceFaults : public OverLinks {};
INSTANTIATE_TEST_SUITE_P(Ways, DeviceFaults,
                         ::testing::Values(Reach::Nccl, Reach::PeerProcesses, Reach::PeerThreads,
                                           Reach::Host),
                         link_name);

/// The same on all ranks.
class RandomCalls {
 public:
  RandomCalls(DeviceRank& rank, int seed) : rank_(rank), random_(static_cast<unsigned>(seed)) {
    for (std::size_t i = 0; i < kBuffers; ++i) {
      buffers_.push_back(rank.upload(thirds(Dtype::Float32, 100 + 1000 * i, rank.context.rank())));
    }
  }

  void run() {
    const auto fault_step = static_cast<int>(below(kSteps));
    const auto fault_rank = static_cast<int>(below(rank_.context.size()));
    const char* const fault = kDriverCalls.at(below(kDriverCalls.size()));
    for (int step = 0; step < kSteps; ++step) {
      const std::size_t buffer = below(kBuffers);
      const unsigned call = below(5);
      const unsigned detail = below(64);
      if (step == fault_step && rank_.context.rank() == fault_rank) {
        rank_.cuda.fail_next(fault, rank_.context.core().device()->device(), 2);
      }
      if (is_busy_[buffer]) {
        wait_for_all();
      }
      tried([&] { start(call, buffer, detail); });
    }
    wait_for_all();
  }

 private:
  unsigned below(std::size_t end) { return static_cast<unsigned>(random_() % end); }

  template <typename Call>
  static void tried(Call&& call) {
    const auto also = problem_of(std::forward<Call>(call));
  }

  void start(unsigned call, std::size_t buffer, unsigned detail) {
    Context& context = rank_.context;
    const auto graph = detail % 2 == 0 ? topology::ring(context.size())
                                       : topology::fully_connected(context.size());
    const auto plan = std::make_shared<const NeighborPlan>(graph.plan_for(context.rank()));
    const BufferView& view = buffers_[buffer];
    switch (call) {
      case 0:
        return ops::allreduce(context, view);
      case 1:
        return ops::broadcast(context, view, static_cast<int>(detail) % context.size());
      case 2:
        return ops::neighbor_allreduce(context, view, plan);
      default:
        is_busy_[buffer] = true;
        under_way_.push_back(ops::neighbor_allreduce_nonblocking(
            context, view, plan,
            {.completion = call == 3 ? ops::Completion::AsItArrives : ops::Completion::OnWait}));
    }
  }

  void wait_for_all() {
    for (const Work& work : std::exchange(under_way_, {})) {
      tried([&] { work.synchronize(); });
    }
    is_busy_ = {};
  }

  DeviceRank& rank_;
  std::mt19937 random_;
  std::vector<BufferView> buffers_;
  std::vector<Work> under_way_;
  std::array<bool, kBuffers> is_busy_{};
};

TEST_P(DeviceFaults, LeaveNothingBehind) {
  for (int seed = 1; seed <= kSeeds && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    on_links({.at_least = 2,
              .at_most = 4,
              .settings =
                  [](Settings& settings) {
                    settings.timeout = std::chrono::seconds(6);
                    settings.log_level = LogLevel::Fatal;
                  }},
             [seed](DeviceRank& rank) { RandomCalls(rank, seed).run(); });
  }
}

}  // namespace
}  // namespace bluefog::testing
