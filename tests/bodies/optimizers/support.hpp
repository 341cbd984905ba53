#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bluefog_cpp/context.hpp"
#include "optimizers/distributed_optimizer.hpp"
#include "tests/support/ranks.hpp"
#include "topology/mixing_matrix.hpp"
#include "topology/schedule.hpp"
#include "topology/static_graphs.hpp"

namespace bluefog::testing {

/// One layout and few ranks: these tests do not depend on how bytes travel.
inline Ranks some_ranks(int at_least = 1) {
  return {.at_least = at_least, .at_most = 8, .layouts = {Layout::OneHost}};
}

/// Float64 values that depend on the seed alone: the threads of a process share torch's generator,
/// so that its values would depend on their order.
at::Tensor random(at::IntArrayRef sizes, std::uint64_t seed);

/// Heterogeneous least squares: rank r minimises f_r(x) = ½ ‖A_r x − b_r‖².
struct LeastSquares {
  static constexpr std::int64_t kDimension = 7;
  at::Tensor a;
  at::Tensor b;

  static LeastSquares of_rank(int rank);
  [[nodiscard]] at::Tensor loss(const at::Tensor& x) const;
  [[nodiscard]] at::Tensor gradient(const at::Tensor& x) const;
};

/// x as three parameters, of which no two fit into the smallest buckets.
struct Point : torch::nn::Module {
  explicit Point(std::uint64_t seed);
  [[nodiscard]] at::Tensor x() const;

  at::Tensor first;
  at::Tensor second;
  at::Tensor third;
};

/// Whether every rank starts at `Point(0)` or rank r at `Point(r)`.
enum class Start { Equal, Different };
/// One row per rank.
at::Tensor starting_points(int size, Start start);

/// Row r is the gradient of rank r's problem at row r.
at::Tensor gradients(const at::Tensor& points);

/// The minimiser of Σ_r f_r of `size` ranks.
at::Tensor minimiser(int size);
/// The minimiser of Σ_r weights[r] f_r.
at::Tensor minimiser(const std::vector<double>& weights);

/// ‖x_0 − point‖² + ‖x_1 − point‖² + … over all ranks; collective.
double squared_distance(Context& context, const at::Tensor& x, const at::Tensor& point);

/// Each rank keeps half and sends the rest to the next rank and to rank 0: column-stochastic, and
/// far from row-stochastic.
MixingMatrix unbalanced_graph(int size);

/// W as a float64 matrix.
at::Tensor dense(const MixingMatrix& matrix);

/// Clears gradients, computes this rank's, takes a step.
void train(optimizers::DistributedOptimizer& optimizer, const Point& point,
           const LeastSquares& problem);

/// This rank's point after each of `steps` steps of SGD at `rate`.
std::vector<at::Tensor> points_of_run(Context& context,
                                      const optimizers::DistributedOptimizerOptions& options,
                                      Start start, int steps, double rate);

/// The tolerance for products of at most 8 ranks' values that are rounded in another order.
inline constexpr double kRounding = 1e-12;

/// "" or the elements that differ by more than `tolerance`, relative to 1.
std::string difference(const at::Tensor& found, const at::Tensor& expected, double tolerance);

#define EXPECT_CLOSE(found, expected) \
  EXPECT_EQ(::bluefog::testing::difference(found, expected, ::bluefog::testing::kRounding), "")
#define EXPECT_SAME(found, expected) \
  EXPECT_EQ(::bluefog::testing::difference(found, expected, 0.0), "")

/// W = J in one step, whatever the number of ranks.
inline optimizers::DistributedOptimizerOptions full_averaging(const Context& context,
                                                              optimizers::AlgorithmName algorithm) {
  optimizers::DistributedOptimizerOptions options;
  options.algorithm = algorithm;
  options.schedule = topology::static_schedule(topology::fully_connected(context.size()));
  options.bucket_bytes = 64;
  return options;
}

/// A model that holds whatever parameters a test wants.
struct Bag : torch::nn::Module {
  at::Tensor add(const std::string& name, const at::Tensor& value, bool requires_grad = true) {
    return register_parameter(name, value, requires_grad);
  }
};

inline at::Tensor filled(at::IntArrayRef sizes, double value) {
  return at::full(sizes, value, at::kFloat);
}

/// Mean of 0 … n − 1.
inline double mean_rank(const Context& context) { return (context.size() - 1) / 2.0; }

}  // namespace bluefog::testing
