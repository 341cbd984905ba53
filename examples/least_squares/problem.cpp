#include "examples/least_squares/problem.hpp"

#include <random>

#include "ops/collectives.hpp"

namespace bluefog::examples {
namespace {

/// Draws depend on the seed and the stream alone, not on who draws.
class Normal {
 public:
  Normal(std::uint64_t seed, std::uint32_t stream) {
    std::seed_seq mixed{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32),
                        stream};
    random_.seed(mixed);
  }

  template <typename Matrix>
  void fill(Matrix& matrix) {
    for (auto& value : matrix.reshaped()) {
      value = normal_(random_);
    }
  }

 private:
  std::mt19937_64 random_;
  std::normal_distribution<double> normal_{0.0, 1.0};
};

template <typename Matrix>
void average(Context& context, Matrix& matrix) {
  BufferView view;
  view.data = matrix.data();
  view.count = matrix.size();
  view.dtype = Dtype::Float64;
  ops::allreduce(context, view);
}

Eigen::MatrixXd mean_hessian(Context& context, const LeastSquaresPart& part) {
  Eigen::MatrixXd hessian = part.a.transpose() * part.a / static_cast<double>(part.a.rows());
  average(context, hessian);
  return hessian;
}

}  // namespace

Eigen::VectorXd LeastSquaresPart::gradient(const Eigen::VectorXd& x) const {
  return a.transpose() * (a * x - b) / static_cast<double>(a.rows());
}

LeastSquaresPart make_part(const LeastSquaresShape& shape, int rank, std::uint64_t seed) {
  constexpr double kNoise = 0.1;
  Normal shared(seed, 0);
  Eigen::VectorXd common(shape.unknowns);
  shared.fill(common);

  Normal own(seed, static_cast<std::uint32_t>(rank) + 1);
  LeastSquaresPart part{Eigen::MatrixXd(shape.rows, shape.unknowns), Eigen::VectorXd(shape.rows)};
  Eigen::VectorXd offset(shape.unknowns);
  Eigen::VectorXd noise(shape.rows);
  own.fill(part.a);
  own.fill(offset);
  own.fill(noise);
  part.b = part.a * (common + shape.spread * offset) + kNoise * noise;
  return part;
}

Eigen::VectorXd minimiser(Context& context, const LeastSquaresPart& part) {
  Eigen::VectorXd right = part.a.transpose() * part.b / static_cast<double>(part.a.rows());
  average(context, right);
  return mean_hessian(context, part).ldlt().solve(right);
}

double smoothness(Context& context, const LeastSquaresPart& part) {
  const Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd> solver(mean_hessian(context, part),
                                                              Eigen::EigenvaluesOnly);
  return solver.eigenvalues().maxCoeff();
}

}  // namespace bluefog::examples
