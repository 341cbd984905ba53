// Ranks of choco, and what they know of each other, link by link.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <string>
#include <vector>

#include "bluefog_cpp/error.hpp"
#include "ops/compression.hpp"
#include "optimizers/algorithms/choco.hpp"
#include "tests/bodies/optimizers/support.hpp"
#include "tests/support/error_of.hpp"
#include "topology/static_graphs.hpp"

namespace bluefog::testing {
namespace {

using ops::compression_named;
using ::testing::HasSubstr;

std::vector<optimizers::Bucket> buckets_of(const Point& point) {
  return optimizers::make_buckets({{"first", point.first}, {"second", point.second}}, 64, 64,
                                  [](std::int64_t count, const at::TensorOptions& options) {
                                    return at::zeros({count}, options);
                                  });
}

/// With a code of one value for each bucket.
TEST(ChocoLinks, ACommonModelIsNotTold) {
  on_ranks(some_ranks(2), [](Context& context) {
    for (const bool has_local_steps : {false, true}) {
      const Point point(7);
      std::vector<optimizers::Bucket> buckets = buckets_of(point);
      const Schedule pairs = topology::one_peer_exponential(context.size());
      optimizers::Choco choco(context, buckets, pairs, compression_named("topk:1"), 0.5);
      const auto own_copy = [&](std::int64_t matrix) {
        std::vector<at::Tensor> copies;
        for (const auto& [name, tensor] : choco.state()) {
          if (name.starts_with(fmt::format("matrix {}, own copy", matrix))) {
            copies.push_back(tensor.flatten());
          }
        }
        return at::cat(copies).clone();
      };
      const at::NoGradGuard no_grad;
      std::vector<at::Tensor> all;
      for (const optimizers::Bucket& bucket : buckets) {
        all.push_back(bucket.flat().flatten());
      }
      const at::Tensor common = at::cat(all).clone();
      const auto move = [&](const optimizers::Bucket& bucket) {
        bucket.flat().add_(at::sign(bucket.flat()), 1.0 + context.rank());
      };
      if (has_local_steps) {
        choco.step_alone(move);
      }
      for (std::int64_t index = 0; index < pairs.period_steps(); ++index) {
        choco.step({.plan = pairs.plan_for(context.rank(), index), .index = index}, move);
        EXPECT_EQ(own_copy(index).ne(common).sum().item<std::int64_t>(), std::ssize(buckets));
      }
      choco.restart();  // from models that differ by now
      choco.step({.plan = pairs.plan_for(context.rank(), 0), .index = 0}, move);
      EXPECT_GT(own_copy(0).ne(common).sum().item<std::int64_t>(), std::ssize(buckets));
    }
  });
}

TEST(ChocoLinks, ACopyThatLacksACodeIsAnError) {
  on_ranks(some_ranks(2), [](Context& context) {
    const Point point(static_cast<std::uint64_t>(context.rank()));
    std::vector<optimizers::Bucket> buckets = buckets_of(point);
    const Schedule ring =
        topology::static_schedule(topology::ring(context.size(), topology::RingStyle::Right));
    optimizers::Choco choco(context, buckets, ring, compression_named("int4"), 1.0);
    const optimizers::Round round{.plan = ring.plan_for(context.rank(), 0)};
    const auto step = [&] { choco.step(round, [](const optimizers::Bucket& /*bucket*/) {}); };
    step();
    step();
    for (const auto& [name, tensor] : choco.state()) {
      if (name == "matrix 0, source 0, identity" && context.rank() == 0) {
        tensor.add_(1);
      }
    }
    for (int i = 0; i < 3; ++i) {  // again and again
      if (context.rank() == 0) {
        EXPECT_THAT(error_of<StateError>(step),
                    HasSubstr(fmt::format("rank 0, choco, round 0: expected a code that follows on "
                                          "what is known of rank {}",
                                          round.plan->sources[0].rank)));
      } else {
        step();
      }
    }
    choco.restart();
    step();
    step();
  });
}

/// Ranks stay in the same calls.
TEST(ChocoLinks, ARankThatRestartsAloneIsAnErrorUntilAllDo) {
  on_ranks(some_ranks(2), [](Context& context) {
    const Point point(7);  // the same on all ranks
    std::vector<optimizers::Bucket> buckets = buckets_of(point);
    const Schedule ring =
        topology::static_schedule(topology::ring(context.size(), topology::RingStyle::Right));
    optimizers::Choco choco(context, buckets, ring, compression_named("int4"), 1.0);
    const optimizers::Round round{.plan = ring.plan_for(context.rank(), 0)};
    const auto step = [&] { choco.step(round, [](const optimizers::Bucket& /*bucket*/) {}); };
    step();
    if (context.rank() == 0) {
      choco.restart();
      EXPECT_THROW(step(), StateError);  // of codes that follow on what it has forgotten
    } else {
      step();
    }
    choco.restart();
    step();
    step();
  });
}

}  // namespace
}  // namespace bluefog::testing
