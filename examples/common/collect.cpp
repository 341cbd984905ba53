#include "examples/common/collect.hpp"

#include <algorithm>
#include <cmath>

#include "ops/collectives.hpp"

namespace bluefog::examples {
namespace {

constexpr std::size_t kPiece = 1 << 16;

void sum_in_place(Context& context, std::vector<double>& values) {
  ops::AllreduceOptions options;
  options.reduction = ops::Reduction::Sum;
  ops::allreduce(context, view_of(values), options);
}

/// Σ_k (x_k − x̄_k)² of this rank.
template <typename T>
double squared_distance_to_mean(Context& context, std::span<const T> values) {
  double sum = 0.0;
  std::vector<double> mean;
  for (std::size_t begin = 0; begin < values.size(); begin += kPiece) {
    const auto piece = values.subspan(begin, std::min(kPiece, values.size() - begin));
    mean.assign(piece.begin(), piece.end());
    ops::allreduce(context, view_of(mean));
    for (std::size_t k = 0; k < piece.size(); ++k) {
      const double difference = static_cast<double>(piece[k]) - mean[k];
      sum += difference * difference;
    }
  }
  return sum;
}

}  // namespace

BufferView view_of(std::vector<double>& values) {
  BufferView view;
  view.data = values.data();
  view.count = std::ssize(values);
  view.dtype = Dtype::Float64;
  return view;
}

std::vector<double> collect(Context& context, double value) {
  std::vector<double> values(static_cast<std::size_t>(context.size()), 0.0);
  values[static_cast<std::size_t>(context.rank())] = value;
  sum_in_place(context, values);
  return values;
}

double sum_over_ranks(Context& context, double value) {
  std::vector<double> values{value};
  sum_in_place(context, values);
  return values[0];
}

double consensus_distance(Context& context, const std::vector<std::span<const float>>& parts) {
  double sum = 0.0;
  for (const auto& part : parts) {
    sum += squared_distance_to_mean(context, part);
  }
  return std::sqrt(sum_over_ranks(context, sum));
}

double consensus_distance(Context& context, std::span<const double> values) {
  return std::sqrt(sum_over_ranks(context, squared_distance_to_mean(context, values)));
}

}  // namespace bluefog::examples
