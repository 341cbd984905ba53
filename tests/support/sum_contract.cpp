#include "tests/support/sum_contract.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <utility>
#include <vector>

namespace bluefog::testing {
namespace {

/// x_0 − whole(Σ term(s, x_0 − x_s)), or Σ part(s, x_s) where that is not finite.
template <typename Sum, typename Term, typename Whole, typename Part>
double average(const std::vector<Sum>& x, const Term& term, const Whole& whole, const Part& part) {
  Sum total = 0;
  for (std::size_t s = 1; s < x.size(); ++s) {
    const Sum difference = x[0] - x[s];
    const Sum each = term(s, difference);
    total = s == 1 ? each : total + each;
  }
  const Sum result = x[0] - whole(total);
  if (std::isfinite(result)) {
    return static_cast<double>(result);
  }
  Sum sum = part(std::size_t{0}, x[0]);
  for (std::size_t s = 1; s < x.size(); ++s) {
    const Sum each = part(s, x[s]);
    sum = sum + each;
  }
  return static_cast<double>(sum);
}

template <typename Sum>
double weighted_sum(std::vector<Sum> x, std::vector<double> weights) {
  const double row_sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  const bool is_average = std::abs(row_sum - 1.0) <= 1e-9;
  const auto product = [&](std::size_t s, Sum value) {
    return static_cast<Sum>(weights[s]) * value;
  };
  if (is_average) {
    // The base comes first: the largest weight, of several the lowest rank's.
    std::size_t base = 0;
    for (std::size_t s = 1; s < x.size(); ++s) {
      base = weights[s] > weights[base] ? s : base;
    }
    const auto middle = static_cast<std::ptrdiff_t>(base);
    std::rotate(x.begin(), x.begin() + middle, x.begin() + middle + 1);
    std::rotate(weights.begin(), weights.begin() + middle, weights.begin() + middle + 1);
    return average<Sum>(
        x, product, [](Sum total) { return total; }, product);
  }
  Sum sum = product(0, x[0]);
  for (std::size_t s = 1; s < x.size(); ++s) {
    const Sum each = product(s, x[s]);
    sum = sum + each;
  }
  return static_cast<double>(sum);
}

template <typename Sum>
double mean(const std::vector<Sum>& x) {
  const auto n = static_cast<Sum>(x.size());
  return average<Sum>(
      x, [](std::size_t, Sum difference) { return difference; },
      [n](Sum total) { return total / n; }, [n](std::size_t, Sum value) { return value / n; });
}

/// `function` of the operands' elements, in the type in which that dtype's sums are formed.
template <typename Function>
Values element_by_element(std::span<const Values> operands, const Function& function) {
  const auto elements = [&]<typename Sum>(Sum, std::size_t k) {
    std::vector<Sum> x;
    for (const Values& operand : operands) {
      x.push_back(static_cast<Sum>(operand[k]));
    }
    return x;
  };
  Values result(operands[0].dtype(), operands[0].count());
  for (std::size_t k = 0; k < result.count(); ++k) {
    result.set(k, result.dtype() == Dtype::Float64 ? function(elements(double{}, k))
                                                   : function(elements(float{}, k)));
  }
  return result;
}

}  // namespace

Values expected_weighted_sum(std::span<const Values> operands, std::span<const double> weights) {
  const std::vector<double> row(weights.begin(), weights.end());
  return element_by_element(operands, [&](auto x) { return weighted_sum(std::move(x), row); });
}

Values expected_mean(std::span<const Values> operands) {
  return element_by_element(operands, [](const auto& x) { return mean(x); });
}

}  // namespace bluefog::testing
