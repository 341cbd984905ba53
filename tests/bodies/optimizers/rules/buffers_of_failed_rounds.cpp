// Buffers that are averaged after each round: a rank whose round fails takes no part in that, and all
// ranks go on with the same calls.
#include <gtest/gtest.h>

#include <cstdint>

#include "bluefog_cpp/error.hpp"
#include "optimizers/distributed_optimizer.hpp"
#include "optimizers/parameter_collectives.hpp"
#include "tests/bodies/optimizers/support.hpp"
#include "topology/static_graphs.hpp"

namespace bluefog::testing {
namespace {

using optimizers::BufferPolicy;
using optimizers::DistributedOptimizer;

struct Buffered : Point {
  explicit Buffered(int rank) : Point(0) {
    for (const char* name : {"mean", "deviation"}) {
      register_buffer(name, at::full({3}, static_cast<double>(rank), at::kDouble));
    }
  }
};

TEST(BuffersOfFailedRounds, LeaveNoRankACallApart) {
  on_ranks(some_ranks(2), [](Context& context) {
    for (const BufferPolicy policy :
         {BufferPolicy::AverageEveryRound, BufferPolicy::BroadcastFromRankZero}) {
      const Buffered model(context.rank());
      const LeastSquares problem = LeastSquares::of_rank(context.rank());
      torch::optim::SGD sgd(model.parameters(), 0.01);
      optimizers::DistributedOptimizerOptions options;
      options.schedule =
          topology::static_schedule(topology::ring(context.size(), topology::RingStyle::Right));
      options.buffers = policy;
      DistributedOptimizer optimizer(context.shared_from_this(), sgd, model, options);
      if (context.rank() == 1) {
        optimizer.refuse_step("no batch");
      } else {
        // Ranks that average with that one hear it in the average, others with the means of buffers.
        bool has_heard = false;
        try {
          train(optimizer, model, problem);
        } catch (const PeerFailure&) {
          has_heard = true;
        }
        EXPECT_TRUE(has_heard || policy == BufferPolicy::BroadcastFromRankZero);
      }
      for (int step = 0; step < 3; ++step) {
        train(optimizer, model, problem);
      }
      for (const at::Tensor& buffer : model.buffers()) {
        Bag bag;
        const at::Tensor mean = bag.add("mean", buffer.clone());
        optimizers::allreduce_parameters(context, bag);
        EXPECT_CLOSE(buffer, mean.detach());
      }
    }
  });
}

}  // namespace
}  // namespace bluefog::testing
