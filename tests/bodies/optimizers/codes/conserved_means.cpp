// The mean over ranks after 10,000 rounds of codes: it stays where the local steps put it, whatever a
// code leaves out.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <tuple>
#include <vector>

#include "ops/collectives.hpp"
#include "optimizers/algorithms/choco.hpp"
#include "optimizers/algorithms/codes/coded_mean.hpp"
#include "optimizers/algorithms/power_gossip.hpp"
#include "tests/bodies/optimizers/codes/coded_runs.hpp"
#include "tests/bodies/optimizers/outer/outer_runs.hpp"
#include "topology/static_graphs.hpp"

namespace bluefog::testing {
namespace {

constexpr int kManyRounds = 10'000;

/// A matrix and a vector of each rank, in one bucket, and local steps by which they never agree: ranks
/// 2k and 2k + 1 go the same way back and forth, one against the other, so that the mean stays.
struct Restless {
  Restless(Context& context, at::ScalarType type)
      : group(context),
        matrix(of_rank({6, 5}, context.rank(), type)),
        vector(of_rank({7}, context.rank(), type)),
        way(of_rank({6, 5}, 100 + context.rank() / 2, type)),
        buckets(optimizers::make_buckets({{"matrix", matrix}, {"vector", vector}}, 1 << 20, 1 << 20,
                                         [](std::int64_t count, const at::TensorOptions& options) {
                                           return at::zeros({count}, options);
                                         })) {}

  static at::Tensor of_rank(at::IntArrayRef sizes, int seed, at::ScalarType type) {
    return random(sizes, static_cast<std::uint64_t>(seed)).to(type);
  }

  void run(optimizers::Algorithm& algorithm, const Schedule& schedule) {
    const at::NoGradGuard no_grad;
    for (std::int64_t round = 0; round < kManyRounds; ++round) {
      const double there = std::exp2(-static_cast<double>(round / 2 % 8));
      const double factor = (round % 2 == group.rank() % 2 ? there : -there);
      algorithm.step({.plan = schedule.plan_for(group.rank(), round), .index = round},
                     [&](const optimizers::Bucket& /*bucket*/) { matrix.add_(way, factor); });
      largest = std::max(largest, at::abs(matrix).max().item<double>());
    }
  }

  /// Over all ranks.
  [[nodiscard]] at::Tensor mean() const {
    at::Tensor all = at::cat({matrix.flatten(), vector.flatten()}).to(at::kDouble);
    ops::allreduce(group, optimizers::view_of(all));
    return all;
  }
  /// The ranks' largest values together, which have been rounded.
  [[nodiscard]] double magnitude() const {
    at::Tensor all = at::full({1}, largest, at::kDouble);
    ops::allreduce(group, optimizers::view_of(all), {.reduction = ops::Reduction::Sum});
    return all.item<double>();
  }
  [[nodiscard]] double spread() const {
    return (at::cat({matrix.flatten(), vector.flatten()}).to(at::kDouble) - mean())
        .abs()
        .max()
        .item<double>();
  }

  Context& group;
  at::Tensor matrix;
  at::Tensor vector;
  at::Tensor way;
  std::vector<optimizers::Bucket> buckets;
  double largest = 1.0;  ///< of this rank's values, after any round
};

/// The sum that a rounding error of each of so many rounds may come to.
double wander(at::ScalarType type) {
  return (type == at::kFloat ? 6e-8 : 1.1e-16) * 10.0 * std::sqrt(kManyRounds);
}

TEST(ConservedMeans, OfEveryCodeOfDifferences) {
  on_ranks(exactly(4), [](Context& context) {
    const Schedule pairs = topology::one_peer_exponential(context.size());
    for (const auto& [code, kappa, type] :
         std::vector<std::tuple<std::string, double, at::ScalarType>>{
             {"int8", 1.0, at::kDouble},
             {"int4", 1.0, at::kDouble},
             {"int4", 1.0, at::kFloat},
             {"bfloat16", 1.0, at::kDouble},
             {"float16", 1.0, at::kDouble},
             {"topk", 0x1p-6, at::kDouble},
             {"topk8", 0x1p-6, at::kDouble},
             {"sign", 0x1p-4, at::kDouble}}) {
      Restless ranks(context, type);
      const at::Tensor before = ranks.mean();
      optimizers::Choco choco(context, ranks.buckets, pairs, ops::compression_named(code), kappa);
      ranks.run(choco, pairs);
      EXPECT_EQ(difference(ranks.mean(), before, wander(type) * ranks.magnitude()), "") << code;
      EXPECT_GT(ranks.spread(), 1e-9) << code << ": codes have had something to tell to the end";
      EXPECT_LT(ranks.spread(), 1e3) << code;
    }
  });
}

TEST(ConservedMeans, OfLowRank) {
  on_ranks(exactly(4), [](Context& context) {
    const Schedule ring = topology::static_schedule(topology::ring(context.size()));
    for (const at::ScalarType type : {at::kDouble, at::kFloat}) {
      Restless ranks(context, type);
      const at::Tensor before = ranks.mean();
      optimizers::PowerGossip gossip(context, ranks.buckets, ring, 1);
      ranks.run(gossip, ring);
      EXPECT_EQ(difference(ranks.mean(), before, wander(type)), "");
      EXPECT_GT(ranks.spread(), 1e-9);
    }
  });
}

/// With error feedback all that was given is in the means, or left for the next one.
TEST(ConservedMeans, OfErrorFeedback) {
  on_ranks(exactly(4), [](Context& context) {
    constexpr std::int64_t kCount = 9;
    for (const std::string code :
         {"topk:1", "topk8:1", "sign", "int4", "int8", "bfloat16", "float16"}) {
      const at::Tensor v = at::zeros({kCount}, at::kDouble);
      const std::vector<optimizers::Bucket> buckets = one_bucket(v);
      optimizers::CodedMean mean(context, buckets[0], buckets[0].flat(), "v",
                                 ops::compression_named(code), 1.0, 0);
      optimizers::CodedMean::Scratch scratch;
      const at::Tensor own =
          random({kCount}, static_cast<std::uint64_t>(context.rank())).to(at::kDouble);
      at::Tensor given = at::zeros({kCount}, at::kDouble);
      at::Tensor come = at::zeros({kCount}, at::kDouble);
      for (int round = 0; round < kManyRounds; ++round) {
        v.copy_(own * (1.0 + round % 3));
        given.add_(v);
        mean.encode({}, scratch);
        mean.send().wait();
        mean.finish(scratch);
        come.add_(v);
      }
      at::Tensor due = given - mean.left().narrow(0, 0, kCount);
      ops::allreduce(context, optimizers::view_of(due));
      // Sums of so many numbers round more than a code's errors are.
      EXPECT_LT((come - due).abs().max().item<double>(), 1e-10 * kManyRounds) << code;
      EXPECT_LT(mean.left().abs().max().item<double>(), 100.0) << code;
    }
  });
}

}  // namespace
}  // namespace bluefog::testing
