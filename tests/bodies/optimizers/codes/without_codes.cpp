// The cost of codes for those who have none: no operation of torch's, and no allocation (allocation_test.cpp).
#include <ATen/record_function.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "tests/bodies/optimizers/codes/coded_runs.hpp"
#include "topology/static_graphs.hpp"

namespace bluefog::testing {
namespace {

using optimizers::DistributedOptimizer;
using optimizers::DistributedOptimizerOptions;

thread_local std::size_t operations_of_this_thread = 0;

std::unique_ptr<at::ObserverContext> count_operation(const at::RecordFunction& /*function*/) {
  ++operations_of_this_thread;
  return nullptr;
}

/// Counts torch's operations in this thread, of which each is a pass over its operands.
class OperationCount {
 public:
  OperationCount()
      : handle_(at::addThreadLocalCallback(
            at::RecordFunctionCallback(&count_operation).scopes({at::RecordScope::FUNCTION}))) {
    operations_of_this_thread = 0;
  }
  OperationCount(const OperationCount&) = delete;
  OperationCount& operator=(const OperationCount&) = delete;
  ~OperationCount() { at::removeCallback(handle_); }

  [[nodiscard]] static std::size_t so_far() { return operations_of_this_thread; }

 private:
  at::CallbackHandle handle_;
};

/// Gradient all-reduce, for a bucket of one parameter: a copy of its gradient, and what clears it.
constexpr std::size_t kOperationsOfABucket = 5;

struct Counts {
  std::size_t backward = 0;
  std::size_t step = 0;
};

/// In one of several equal steps, when lists and gradients are there.
Counts operations_of_a_step(Context& context, const DistributedOptimizerOptions& options) {
  const LeastSquares problem = LeastSquares::of_rank(context.rank());
  const Point point(0);
  torch::optim::SGD sgd(point.parameters(), 0.01);
  DistributedOptimizer optimizer(context.shared_from_this(), sgd, point, options);
  Counts counts;
  for (int step = 0; step < 4; ++step) {
    optimizer.zero_grad();
    const at::Tensor loss = problem.loss(point.x());
    const OperationCount count;
    loss.backward();
    counts.backward = OperationCount::so_far();
    optimizer.step();
    counts.step = OperationCount::so_far() - counts.backward;
  }
  optimizer.finish();
  return counts;
}

TEST(WithoutCodes, StepsMakeNoOperationsOfTorchsButTheWrappedOptimizers) {
  on_ranks(some_ranks(2), [](Context& context) {
    const auto options_of = [&](const char* name, const char* code) {
      auto options = coded_options(name, code);
      options.schedule = topology::static_schedule(topology::ring(context.size()));
      options.bucket_bytes = 32;
      return options;
    };
    const Counts alone = operations_of_a_step(context, options_of("none", ""));
    EXPECT_GT(alone.step, 0U) << "the count is alive";
    for (const char* const name : {"atc", "awc", "local_sgd", "gossip_pga"}) {
      const Counts found = operations_of_a_step(context, options_of(name, ""));
      EXPECT_EQ(found.backward, alone.backward) << name;
      EXPECT_EQ(found.step, alone.step) << name;
    }
    for (const char* const name : {"gradient_allreduce", "diloco", "gossip_diloco"}) {
      const Counts plain = operations_of_a_step(context, options_of(name, ""));
      const Counts coded = operations_of_a_step(context, options_of(name, "int8"));
      EXPECT_LT(plain.backward + plain.step, coded.backward + coded.step) << name;
    }
    // A gradient that autograd makes anew comes into its bucket, and flags beside them.
    const Counts gradients = operations_of_a_step(context, options_of("gradient_allreduce", ""));
    EXPECT_EQ(gradients.step, alone.step);
    EXPECT_LE(gradients.backward, alone.backward + kOperationsOfABucket * 3);
  });
}

}  // namespace
}  // namespace bluefog::testing
