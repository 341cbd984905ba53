#include "optimizers/checks/momentum_growth.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <random>
#include <vector>

namespace bluefog::optimizers {
namespace {

constexpr std::int64_t kRoundsTried = 2000;
/// A norm that has grown this far never comes back, and stays below the largest double.
constexpr double kGrownForGood = 1e100;

/// One number per rank, as a model without gradients.
class RanksWithoutGradients {
 public:
  RanksWithoutGradients(const MomentumRecursion& recursion, int size)
      : recursion_(recursion),
        values_(static_cast<std::size_t>(size)),
        moments_(values_.size(), 0.0),
        sent_(values_.size()),
        averages_(values_.size()) {
    std::mt19937_64 engine(1);
    for (double& value : values_) {
      value = static_cast<double>(engine() >> 11U) * 0x1p-53 - 0.5;
    }
  }

  void average(const MixingMatrix& w) {
    for (std::size_t i = 0; i < values_.size(); ++i) {
      sent_[i] = values_[i] - recursion_.of_sent * moments_[i];
    }
    w.apply(sent_, averages_);
    for (std::size_t i = 0; i < values_.size(); ++i) {
      const double taken_back = values_[i] - averages_[i];
      moments_[i] = recursion_.momentum * moments_[i] + recursion_.of_taken * taken_back;
      values_[i] -= recursion_.by_taken * taken_back + recursion_.by_momentum * moments_[i];
    }
  }

  /// Of the differences from the mean, and of the momentum.
  [[nodiscard]] double norm() const {
    const double mean =
        std::accumulate(values_.begin(), values_.end(), 0.0) / static_cast<double>(values_.size());
    double sum = 0.0;
    for (std::size_t i = 0; i < values_.size(); ++i) {
      sum += (values_[i] - mean) * (values_[i] - mean) + moments_[i] * moments_[i];
    }
    return std::sqrt(sum);
  }

 private:
  MomentumRecursion recursion_;
  std::vector<double> values_;
  std::vector<double> moments_;
  std::vector<double> sent_;
  std::vector<double> averages_;
};

}  // namespace

double growth_of(const std::vector<double>& norms) {
  // Largest norms, since differences swing on their way.
  const auto middle = norms.begin() + static_cast<std::ptrdiff_t>(norms.size() / 2);
  const double before = *std::max_element(norms.begin(), middle);
  const double after = *std::max_element(middle, norms.end());
  return before == 0.0 ? 0.0
                       : std::pow(after / before, 1.0 / static_cast<double>(norms.end() - middle));
}

double growth_per_round(const MomentumRecursion& recursion, const Schedule& schedule) {
  RanksWithoutGradients ranks(recursion, schedule.size());
  std::vector<double> norms{ranks.norm()};
  for (std::int64_t round = 0; round < kRoundsTried && norms.back() < kGrownForGood; ++round) {
    ranks.average(schedule.mixing_matrix(round));
    norms.push_back(ranks.norm());
  }
  return growth_of(norms);
}

std::string why_differences_stay(const MomentumRecursion& recursion, const Schedule& schedule) {
  const double growth = growth_per_round(recursion, schedule);
  if (growth > kMostGrowth || std::isnan(growth)) {
    return fmt::format("grow by a factor of {:.4g} a round", growth);
  }
  const bool may_stay = growth > kDiesOut;
  return may_stay && growth_per_round({.momentum = 0.0}, schedule) <= kDiesOut
             ? std::string("stay as large as they are")
             : std::string();
}

}  // namespace bluefog::optimizers
