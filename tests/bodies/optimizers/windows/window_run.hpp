#pragma once

#include <cmath>
#include <cstdint>
#include <functional>

#include "ops/collectives.hpp"
#include "tests/bodies/optimizers/support.hpp"
#include "topology/static_graphs.hpp"

/// One rank's training with an algorithm over windows, and the measures of its tests.
namespace bluefog::testing {

inline constexpr double kWindowRate = 0.01;
inline constexpr optimizers::AlgorithmName kWindowKinds[] = {
    optimizers::AlgorithmName::WinPut, optimizers::AlgorithmName::PullGet,
    optimizers::AlgorithmName::AsyncPushSum};

inline Schedule window_schedule(optimizers::AlgorithmName kind, int size) {
  return kind == optimizers::AlgorithmName::AsyncPushSum
             ? topology::cycle({unbalanced_graph(size), topology::exponential(size)})
             : topology::one_peer_exponential(size);
}

/// One rank's training, with buckets of one parameter each unless `bucket_bytes` says otherwise.
struct WindowRun {
  WindowRun(Context& ranks, optimizers::AlgorithmName kind, std::uint64_t seed,
            std::int64_t steps_per_round = 1, std::int64_t bucket_bytes = 32)
      : context(ranks),
        problem(LeastSquares::of_rank(ranks.rank())),
        point(seed),
        sgd(point.parameters(), kWindowRate),
        optimizer(ranks.shared_from_this(), sgd, point,
                  {.algorithm = kind,
                   .schedule = window_schedule(kind, ranks.size()),
                   .num_steps_per_communication = steps_per_round,
                   .bucket_bytes = bucket_bytes}) {}

  void train_once() { train(optimizer, point, problem); }
  void average_once() {
    optimizer.zero_grad();
    optimizer.step();
  }
  void set_rate(double rate) {
    for (auto& group : sgd.param_groups()) {
      static_cast<torch::optim::SGDOptions&>(group.options()).lr(rate);
    }
  }
  /// Every rank `call`s, one after the other.
  void in_turn(const std::function<void()>& call) {
    for (int rank = 0; rank < context.size(); ++rank) {
      if (rank == context.rank()) {
        call();
      }
      ops::barrier(context);
    }
  }
  /// Sets the parameters, behind the optimizer's back.
  void set_point(const at::Tensor& x) const {
    const torch::NoGradGuard no_grad;
    point.first.copy_(x.slice(0, 0, 2));
    point.second.copy_(x.slice(0, 2, 6).view({2, 2}));
    point.third.copy_(x.slice(0, 6, 7));
  }
  [[nodiscard]] double weight() const {
    return optimizer.algorithm_state().front().tensor.item<double>();
  }

  Context& context;
  LeastSquares problem;
  Point point;
  torch::optim::SGD sgd;
  optimizers::DistributedOptimizer optimizer;
};

inline std::uint64_t own_seed(const Context& context) {
  return static_cast<std::uint64_t>(context.rank());
}

inline at::Tensor total(Context& context, const at::Tensor& value) {
  at::Tensor sum = value.detach().clone();
  ops::AllreduceOptions options;
  options.reduction = ops::Reduction::Sum;
  ops::allreduce(context, optimizers::view_of(sum), options);
  return sum;
}

inline double total(Context& context, double value) {
  return total(context, at::full({1}, value, at::kDouble)).item<double>();
}

/// √((1/n) Σ ‖x_i − x̄‖²).
inline double disagreement(Context& context, const at::Tensor& x) {
  const at::Tensor mean = total(context, x) / context.size();
  return std::sqrt(squared_distance(context, x, mean) / context.size());
}

}  // namespace bluefog::testing
