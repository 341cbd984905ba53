#include "tests/bodies/optimizers/support.hpp"

#include <fmt/format.h>

#include <random>

#include "ops/collectives.hpp"

namespace bluefog::testing {

at::Tensor random(at::IntArrayRef sizes, std::uint64_t seed) {
  std::mt19937_64 engine(seed);
  std::uniform_real_distribution<double> distribution(-1.0, 1.0);
  at::Tensor tensor = at::empty(sizes, at::kDouble);
  for (std::int64_t i = 0; i < tensor.numel(); ++i) {
    tensor.data_ptr<double>()[i] = distribution(engine);
  }
  return tensor;
}

LeastSquares LeastSquares::of_rank(int rank) {
  const auto seed = static_cast<std::uint64_t>(rank);
  return {.a = random({9, kDimension}, 100 + seed), .b = random({9}, 200 + seed)};
}

at::Tensor LeastSquares::loss(const at::Tensor& x) const {
  return (a.mv(x) - b).square().sum() / 2;
}

at::Tensor LeastSquares::gradient(const at::Tensor& x) const { return a.t().mv(a.mv(x) - b); }

Point::Point(std::uint64_t seed) {
  const at::Tensor all = random({LeastSquares::kDimension}, 300 + seed);
  first = register_parameter("first", all.slice(0, 0, 2).clone());
  second = register_parameter("second", all.slice(0, 2, 6).clone().view({2, 2}));
  third = register_parameter("third", all.slice(0, 6, 7).clone());
}

at::Tensor Point::x() const {
  return at::cat({first.flatten(), second.flatten(), third.flatten()});
}

at::Tensor starting_points(int size, Start start) {
  std::vector<at::Tensor> rows;
  for (int rank = 0; rank < size; ++rank) {
    const int seed = start == Start::Equal ? 0 : rank;
    rows.push_back(Point(static_cast<std::uint64_t>(seed)).x().detach());
  }
  return at::stack(rows);
}

at::Tensor gradients(const at::Tensor& points) {
  std::vector<at::Tensor> rows;
  for (std::int64_t rank = 0; rank < points.size(0); ++rank) {
    rows.push_back(LeastSquares::of_rank(static_cast<int>(rank)).gradient(points[rank]));
  }
  return at::stack(rows);
}

at::Tensor minimiser(int size) {
  return minimiser(std::vector<double>(static_cast<std::size_t>(size), 1.0));
}

at::Tensor minimiser(const std::vector<double>& weights) {
  at::Tensor a = at::zeros({LeastSquares::kDimension, LeastSquares::kDimension}, at::kDouble);
  at::Tensor b = at::zeros({LeastSquares::kDimension}, at::kDouble);
  for (std::size_t rank = 0; rank < weights.size(); ++rank) {
    const LeastSquares problem = LeastSquares::of_rank(static_cast<int>(rank));
    a = a + weights[rank] * problem.a.t().mm(problem.a);
    b = b + weights[rank] * problem.a.t().mv(problem.b);
  }
  return at::linalg_solve(a, b);
}

double squared_distance(Context& context, const at::Tensor& x, const at::Tensor& point) {
  at::Tensor sum = (x.detach() - point).square().sum();
  ops::AllreduceOptions options;
  options.reduction = ops::Reduction::Sum;
  ops::allreduce(context, optimizers::view_of(sum), options);
  return sum.item<double>();
}

MixingMatrix unbalanced_graph(int size) {
  std::vector<double> values(static_cast<std::size_t>(size) * size, 0.0);
  const auto at_row = [&](int i, int j) -> double& {
    return values[static_cast<std::size_t>(i) * size + j];
  };
  for (int sender = 0; sender < size; ++sender) {
    at_row(sender, sender) += 0.5;
    at_row((sender + 1) % size, sender) += 0.25;
    at_row(0, sender) += 0.25;
  }
  return MixingMatrix::from_dense(size, values);
}

at::Tensor dense(const MixingMatrix& matrix) {
  const std::vector<double> values = matrix.to_dense();
  return torch::tensor(values, at::kDouble).view({matrix.size(), matrix.size()});
}

void train(optimizers::DistributedOptimizer& optimizer, const Point& point,
           const LeastSquares& problem) {
  optimizer.zero_grad();
  problem.loss(point.x()).backward();
  optimizer.step();
}

std::vector<at::Tensor> points_of_run(Context& context,
                                      const optimizers::DistributedOptimizerOptions& options,
                                      Start start, int steps, double rate) {
  const LeastSquares problem = LeastSquares::of_rank(context.rank());
  const Point point(start == Start::Equal ? 0 : static_cast<std::uint64_t>(context.rank()));
  torch::optim::SGD sgd(point.parameters(), rate);
  optimizers::DistributedOptimizer optimizer(context.shared_from_this(), sgd, point, options);
  std::vector<at::Tensor> points;
  for (int step = 0; step < steps; ++step) {
    train(optimizer, point, problem);
    points.push_back(point.x().detach().clone());
  }
  return points;
}

std::string difference(const at::Tensor& found, const at::Tensor& expected, double tolerance) {
  if (found.sizes() != expected.sizes()) {
    return fmt::format("expected {}, found {}", optimizers::describe(expected),
                       optimizers::describe(found));
  }
  const at::Tensor a = found.detach().to(at::kDouble).flatten();
  const at::Tensor b = expected.detach().to(at::kDouble).flatten();
  for (std::int64_t i = 0; i < a.numel(); ++i) {
    const auto x = a[i].item<double>();
    const auto y = b[i].item<double>();
    if (!(std::abs(x - y) <= tolerance * std::max(1.0, std::abs(y)))) {
      return fmt::format("element {}: expected {}, found {}", i, y, x);
    }
  }
  return {};
}

}  // namespace bluefog::testing
