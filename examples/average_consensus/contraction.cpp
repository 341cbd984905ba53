#include "examples/average_consensus/contraction.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "bluefog_cpp/error.hpp"
#include "topology/spectral_gap.hpp"

namespace bluefog::examples {

double contraction_per_period(const Schedule& schedule) {
  MixingMatrix product = schedule.mixing_matrix(0);
  for (std::int64_t step = 1; step < schedule.period_steps(); ++step) {
    product = schedule.mixing_matrix(step).after(product);
  }
  const topology::GapEstimate gap = topology::spectral_gap(product).norm;
  if (!gap.converged) {
    throw UnsupportedError(
        fmt::format("contraction_per_period: the spectral gap of {} ranks lies between {} and {}; "
                    "it could not be found more exactly",
                    schedule.size(), gap.lower, gap.upper));
  }
  return std::max(1.0 - gap.value, 0.0);
}

double predicted_distance(double contraction, std::int64_t period_steps, std::int64_t steps) {
  return std::pow(contraction, static_cast<double>(steps / period_steps));
}

}  // namespace bluefog::examples
