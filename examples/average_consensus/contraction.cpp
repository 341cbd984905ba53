#include "examples/average_consensus/contraction.hpp"

#include <fmt/format.h>

#include <Eigen/Dense>
#include <cmath>
#include <vector>

#include "bluefog_cpp/base/error.hpp"

namespace bluefog::examples {

double contraction_per_period(const Schedule& schedule) {
  constexpr int kMostRanks = 1000;
  constexpr std::int64_t kLongestPeriod = 10'000;
  const int size = schedule.size();
  const std::int64_t period = schedule.period_steps();
  if (size > kMostRanks || period > kLongestPeriod) {
    throw InvalidArgument(fmt::format(
        "contraction_per_period: expected at most {} ranks and a period of {} steps, found {} and "
        "{}",
        kMostRanks, kLongestPeriod, size, period));
  }
  MixingMatrix product = schedule.mixing_matrix(0);
  for (std::int64_t step = 1; step < period; ++step) {
    product = schedule.mixing_matrix(step).after(product);
  }
  const std::vector<double> dense = product.to_dense();
  Eigen::MatrixXd difference = Eigen::Map<const Eigen::MatrixXd>(dense.data(), size, size);
  difference.array() -= 1.0 / size;
  return difference.jacobiSvd().singularValues()(0);
}

double predicted_distance(double contraction, std::int64_t period_steps, std::int64_t steps) {
  return std::pow(contraction, static_cast<double>(steps / period_steps));
}

}  // namespace bluefog::examples
