#include "examples/least_squares/methods.hpp"

#include <torch/torch.h>

#include <cmath>

#include "examples/common/collect.hpp"
#include "optimizers/distributed_optimizer.hpp"

namespace bluefog::examples {
namespace {

at::Tensor copy_of(const Eigen::MatrixXd& matrix) {
  using RowMajor = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  at::Tensor tensor = at::empty({matrix.rows(), matrix.cols()}, at::kDouble);
  Eigen::Map<RowMajor>(tensor.data_ptr<double>(), matrix.rows(), matrix.cols()) = matrix;
  return tensor;
}

/// x, and this rank's f_i(x).
struct Unknowns : torch::nn::Module {
  explicit Unknowns(const LeastSquaresPart& part)
      : a(copy_of(part.a)), b(copy_of(part.b).flatten()) {
    x = register_parameter("x", at::zeros({a.size(1)}, at::kDouble));
  }
  [[nodiscard]] at::Tensor loss() const {
    return (a.mv(x) - b).square().sum() / (2.0 * static_cast<double>(b.numel()));
  }

  at::Tensor a;
  at::Tensor b;
  at::Tensor x;
};

}  // namespace

std::vector<double> run_method(Context& context, const CommunicationOptions& communication,
                               const LeastSquaresPart& part, const Eigen::VectorXd& solution,
                               double step_size, std::int64_t steps) {
  const Unknowns unknowns(part);
  torch::optim::SGD sgd(unknowns.parameters(), step_size);
  optimizers::DistributedOptimizer optimizer(context.shared_from_this(), sgd, unknowns,
                                             options_of(communication, context.size()));
  std::vector<double> errors;
  for (std::int64_t step = 0; step < steps; ++step) {
    optimizer.zero_grad();
    unknowns.loss().backward();
    optimizer.step();
    const Eigen::Map<const Eigen::VectorXd> x(unknowns.x.const_data_ptr<double>(), solution.size());
    const double sum = sum_over_ranks(context, (x - solution).squaredNorm());
    errors.push_back(std::sqrt(sum / context.size()) / solution.norm());
  }
  return errors;
}

}  // namespace bluefog::examples
