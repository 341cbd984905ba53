// The algorithm choco against its equations over all ranks, in float64.
#include "optimizers/algorithms/choco.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "bluefog_cpp/error.hpp"
#include "ops/compression.hpp"
#include "tests/bodies/optimizers/support.hpp"
#include "tests/support/error_of.hpp"
#include "topology/static_graphs.hpp"

namespace bluefog::testing {
namespace {

using ops::Compression;
using ops::compression_named;
using optimizers::DistributedOptimizer;
using optimizers::DistributedOptimizerOptions;
using ::testing::HasSubstr;

constexpr double kChocoRate = 0.05;

DistributedOptimizerOptions choco_options(const std::string& compression,
                                          std::optional<Schedule> schedule = std::nullopt,
                                          double consensus_step_size = 1.0) {
  DistributedOptimizerOptions options;
  options.algorithm = "choco";
  options.schedule = std::move(schedule);
  options.compression = compression_named(compression);
  options.numbers["consensus_step_size"] = consensus_step_size;
  return options;
}

/// A code that loses nothing of float32.
class Whole final : public Compression {
 public:
  [[nodiscard]] std::string name() const override { return "whole"; }
  [[nodiscard]] std::size_t bytes_of(std::size_t count) const override { return 4 * count; }
  [[nodiscard]] double contraction(std::size_t /*count*/) const override { return 1; }
  void encode(std::span<const float> values, std::span<std::byte> code) const override {
    std::memcpy(code.data(), values.data(), code.size());
  }
  void decode(std::span<const std::byte> code, std::span<float> values) const override {
    std::memcpy(values.data(), code.data(), code.size());
  }
};

/// Rounds are many here.
Ranks few_ranks() {
  Ranks ranks = some_ranks(2);
  ranks.at_most = 4;
  ranks.thread_counts = {4};
  return ranks;
}

std::vector<Schedule> choco_schedules(int size) {
  return {topology::static_schedule(topology::exponential(size)),
          topology::static_schedule(topology::ring(size)), topology::one_peer_exponential(size)};
}

/// Rounds without local steps: ranks come to agree.
struct Gossip {
  Gossip(Context& context, const DistributedOptimizerOptions& options)
      : mean(starting_points(context.size(), Start::Different).mean(0)),
        problem(LeastSquares::of_rank(context.rank())),
        point(static_cast<std::uint64_t>(context.rank())),
        sgd(point.parameters(), 0.0),
        optimizer(context.shared_from_this(), sgd, point, options) {}

  void rounds(int count) {
    for (int round = 0; round < count; ++round) {
      train(optimizer, point, problem);
    }
  }
  void fill(double value) {
    const at::NoGradGuard no_grad;
    for (at::Tensor& parameter : point.parameters()) {
      parameter.fill_(value);
    }
  }
  [[nodiscard]] double distance(const at::Tensor& from) const {
    return (point.x() - from).abs().max().item<double>();
  }

  /// Of what ranks begin with.
  at::Tensor mean;
  LeastSquares problem;
  Point point;
  torch::optim::SGD sgd;
  DistributedOptimizer optimizer;
};

at::Tensor coded(const Compression& compression, const at::Tensor& difference) {
  const at::Tensor values = difference.to(at::kFloat).contiguous();
  const std::span elements(values.data_ptr<float>(), static_cast<std::size_t>(values.numel()));
  std::vector<std::byte> code(compression.bytes_of(elements.size()));
  compression.encode(elements, code);
  compression.decode(code, elements);
  return values.to(at::kDouble);
}

/// x and the copies of all ranks, one row each.
struct StackedChoco {
  void step(const Compression& compression, double kappa) {
    x = x - kChocoRate * gradients(x);
    const auto m = static_cast<std::size_t>(round++ % schedule.period_steps());
    if (round <= schedule.period_steps()) {
      copies[m] = x.clone();
    }
    for (std::int64_t i = 0; i < x.size(0); ++i) {
      copies[m][i] += coded(compression, x[i] - copies[m][i]);
    }
    const at::Tensor w = dense(schedule.mixing_matrix(static_cast<std::int64_t>(m)));
    x = x + kappa * (w.mm(copies[m]) - copies[m]);
  }

  Schedule schedule;
  at::Tensor x;
  std::vector<at::Tensor> copies;
  std::int64_t round = 0;
};

TEST(ChocoAveraging, FollowsItsEquation) {
  on_ranks(some_ranks(1), [](Context& context) {
    for (const Schedule& schedule : choco_schedules(context.size())) {
      for (const auto& [name, kappa] : std::vector<std::pair<std::string, double>>{
               {"int4", 1.0}, {"int8", 0.5}, {"bfloat16", 1.0}, {"topk:4096", 0.7}}) {
        const LeastSquares problem = LeastSquares::of_rank(context.rank());
        const Point point(static_cast<std::uint64_t>(context.rank()));
        const at::Tensor start = starting_points(context.size(), Start::Different);
        StackedChoco expected{.schedule = schedule, .x = start, .copies = {}};
        for (std::int64_t m = 0; m < schedule.period_steps(); ++m) {
          expected.copies.push_back(at::zeros_like(start));
        }
        torch::optim::SGD sgd(point.parameters(), kChocoRate);
        DistributedOptimizer optimizer(context.shared_from_this(), sgd, point,
                                       choco_options(name, schedule, kappa));
        for (int step = 0; step < 9; ++step) {
          train(optimizer, point, problem);
          expected.step(*compression_named(name), kappa);
          EXPECT_CLOSE(point.x(), expected.x[context.rank()]);
        }
      }
    }
  });
}

TEST(ChocoAveraging, ACodeThatLosesNothingIsAdaptThenCombine) {
  on_ranks(some_ranks(1), [](Context& context) {
    const LeastSquares problem = LeastSquares::of_rank(context.rank());
    const Point with_codes(static_cast<std::uint64_t>(context.rank()));
    const Point plain(static_cast<std::uint64_t>(context.rank()));
    torch::optim::SGD sgd(with_codes.parameters(), kChocoRate);
    torch::optim::SGD plain_sgd(plain.parameters(), kChocoRate);
    DistributedOptimizerOptions options = choco_options("int4");
    options.compression = std::make_shared<const Whole>();
    DistributedOptimizer optimizer(context.shared_from_this(), sgd, with_codes, options);
    DistributedOptimizer plain_optimizer(context.shared_from_this(), plain_sgd, plain, {});
    for (int step = 0; step < 20; ++step) {
      train(optimizer, with_codes, problem);
      train(plain_optimizer, plain, problem);
    }
    EXPECT_LT((with_codes.x() - plain.x()).abs().max().item<double>(), 1e-6);
  });
}

/// Whatever the code: where models differ, its first message on each link is the values.
TEST(ChocoAveraging, BeginsWithTheValuesThemselves) {
  on_ranks(some_ranks(2), [](Context& context) {
    for (const Schedule& schedule : choco_schedules(context.size())) {
      for (const auto& [name, kappa] :
           std::vector<std::pair<std::string, double>>{{"topk:1024", 0.25}, {"int4", 1.0}}) {
        at::Tensor expected = starting_points(context.size(), Start::Different);
        Gossip gossip(context, choco_options(name, schedule, kappa));
        const auto expect_averages = [&, kappa = kappa] {
          for (std::int64_t m = 0; m < schedule.period_steps(); ++m) {
            gossip.rounds(1);
            expected += kappa * (dense(schedule.mixing_matrix(m)).mm(expected) - expected);
            EXPECT_CLOSE(gossip.point.x(), expected[context.rank()]) << name;
          }
        };
        expect_averages();
        gossip.rounds(static_cast<int>(schedule.period_steps()));  // codes
        gossip.fill(context.rank());
        expected = at::arange(context.size(), at::kDouble)
                       .unsqueeze(1)
                       .expand({context.size(), LeastSquares::kDimension})
                       .clone();
        gossip.optimizer.restart();
        expect_averages();
      }
    }
  });
}

TEST(ChocoAveraging, EveryCodeReachesTheMean) {
  on_ranks(few_ranks(), [](Context& context) {
    for (const Schedule& schedule :
         {topology::static_schedule(topology::exponential(context.size())),
          topology::one_peer_exponential(context.size())}) {
      for (const auto& [name, kappa, distance] :
           std::vector<std::tuple<std::string, double, double>>{{"bfloat16", 1.0, 1e-6},
                                                                {"float16", 1.0, 1e-6},
                                                                {"int8", 1.0, 1e-6},
                                                                {"int4", 1.0, 1e-6},
                                                                {"sign", 0.1, 0.1},
                                                                {"topk:1024", 0.2, 1e-3}}) {
        Gossip gossip(context, choco_options(name, schedule, kappa));
        gossip.rounds(150);
        EXPECT_LT(gossip.distance(gossip.mean), distance) << name;
      }
    }
  });
}

/// Far more rounds than ranks need to agree: the mean does not wander.
TEST(ChocoAveraging, TheMeanStays) {
  on_ranks(few_ranks(), [](Context& context) {
    Gossip gossip(context, choco_options("int4", topology::one_peer_exponential(context.size())));
    gossip.rounds(1'000);
    EXPECT_LT(gossip.distance(gossip.mean), 1e-13);
  });
}

TEST(ChocoAveraging, ARoundThatFailsIsForgottenOnAllRanks) {
  on_ranks(some_ranks(2), [](Context& context) {
    Gossip gossip(context, choco_options("int4", topology::static_schedule(
                                                     topology::fully_connected(context.size()))));
    gossip.rounds(3);
    if (context.rank() == 0) {
      gossip.optimizer.refuse_step("as the test has it");
    } else {
      EXPECT_ANY_THROW(gossip.rounds(1));
    }
    gossip.rounds(100);
    EXPECT_LT(gossip.distance(gossip.mean), 1e-6);
  });
}

/// Padding between parameters is nobody's.
TEST(ChocoAveraging, ValuesThatWereNotFiniteLeaveNoTrace) {
  on_ranks(some_ranks(2), [](Context& context) {
    for (const std::string name : {"int4", "float16", "bfloat16", "topk:4096"}) {
      Gossip gossip(context, choco_options(name));
      gossip.rounds(1);
      {
        const at::NoGradGuard no_grad;
        gossip.point.first.fill_(std::nan(""));
      }
      gossip.rounds(2);
      gossip.fill(context.rank());
      gossip.rounds(100);
      EXPECT_LT(gossip.distance(at::full({}, mean_rank(context), at::kDouble)), 1e-6) << name;
    }
  });
}

/// Beyond float32 differences come in several codes.
TEST(ChocoAveraging, LargeValuesOfFloat64ComeToo) {
  on_ranks(few_ranks(), [](Context& context) {
    constexpr double kLarge = 1e39;
    Gossip gossip(context, choco_options("int4"));
    gossip.rounds(1);  // values themselves
    gossip.fill(kLarge * (1 + context.rank()));
    gossip.rounds(200);
    EXPECT_LT(gossip.distance(at::full({}, kLarge * (1 + mean_rank(context)), at::kDouble)),
              1e-6 * kLarge);
  });
}

TEST(ChocoAveraging, WhatItCannotTakeIsRefused) {
  on_ranks(some_ranks(2), [](Context& context) {
    const Point point(0);
    torch::optim::SGD sgd(point.parameters(), kChocoRate);
    const auto error_with = [&](const DistributedOptimizerOptions& options) {
      return error_of<Error>(
          [&] { DistributedOptimizer(context.shared_from_this(), sgd, point, options); });
    };
    DistributedOptimizerOptions atc = choco_options("int8");
    atc.algorithm = "atc";
    atc.numbers.clear();
    EXPECT_THAT(
        error_with(atc),
        HasSubstr("compression: expected gradient_allreduce, choco, diloco, gossip_diloco or "
                  "sparse_loco, found adapt_then_combine, which sends values as they are"));
    EXPECT_THAT(error_with(choco_options(context.rank() == 0 ? "int4" : "int8")),
                HasSubstr("compression int"));
    std::vector<MixingMatrix> many(65, topology::ring(context.size()));
    EXPECT_THAT(error_with(choco_options("int4", topology::cycle(many))),
                HasSubstr("at most 64 matrices"));
    DistributedOptimizerOptions dynamic = choco_options("int4");
    dynamic.plans = [&](std::int64_t /*round*/) {
      return topology::ring(context.size()).plan_for(context.rank());
    };
    DistributedOptimizer optimizer(context.shared_from_this(), sgd, point, dynamic);
    EXPECT_THAT(
        error_of<Error>([&] { train(optimizer, point, LeastSquares::of_rank(context.rank())); }),
        HasSubstr("choco expects a schedule"));
  });
}

}  // namespace
}  // namespace bluefog::testing
