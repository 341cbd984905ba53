#include "pipeline/freeze_schedule.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "bluefog_cpp/error.hpp"

namespace bluefog::pipeline {
namespace {

/// The roundings of pow and of products stay far below it, and a layer far above.
constexpr double kBoundRounding = 1e-9;

void check(int layers, double alpha) {
  if (layers < 1) {
    throw InvalidArgument(
        fmt::format("freeze schedule: expected at least 1 layer, found {}", layers));
  }
  if (!(alpha > 0 && alpha < 1)) {
    throw InvalidArgument(
        fmt::format("freeze schedule: expected an alpha between 0 and 1, found {}", alpha));
  }
}

}  // namespace

int freeze_bound(int layers, double alpha, int times) {
  check(layers, alpha);
  if (times < 0) {
    throw InvalidArgument(
        fmt::format("freeze schedule: expected 0 decisions or more, found {}", times));
  }
  const double frozen = layers * (1 - std::pow(1 - alpha, times));
  return static_cast<int>(std::ceil(frozen - kBoundRounding));
}

FreezeSchedule::FreezeSchedule(const FreezeOptions& options) : options_(options) {
  check(options.layers, options.alpha);
}

int FreezeSchedule::advance() { return freeze_up_to(options_.layers); }

int FreezeSchedule::advance(std::span<const double> norms) {
  const int unfrozen = options_.layers - depth_;
  if (norms.size() != static_cast<std::size_t>(unfrozen)) {
    throw InvalidArgument(
        fmt::format("freeze schedule: expected {} gradient norms, one of each layer from {} to {}, "
                    "found {}",
                    unfrozen, depth_ + 1, options_.layers, norms.size()));
  }
  for (std::size_t i = 0; i < norms.size(); ++i) {
    if (!(norms[i] >= 0)) {
      throw InvalidArgument(fmt::format(
          "freeze schedule: expected a gradient norm of 0 or more, found {} of layer {}", norms[i],
          depth_ + 1 + static_cast<int>(i)));
    }
  }
  const auto least = std::ranges::min_element(norms) - norms.begin();
  return freeze_up_to(unfrozen == 0 ? depth_ : depth_ + 1 + static_cast<int>(least));
}

int FreezeSchedule::freeze_up_to(int limit) {
  ++times_;
  const int most = options_.last == LastLayer::MayFreeze ? options_.layers : options_.layers - 1;
  const int bound = freeze_bound(options_.layers, options_.alpha, times_);
  // Bounds rise, and a layer that limits is one that is not frozen yet: the depth never falls.
  depth_ = std::min({bound, limit, most});
  return depth_;
}

}  // namespace bluefog::pipeline
