#include "examples/common/collect.hpp"

#include <cmath>

#include "ops/collectives.hpp"

namespace bluefog::examples {
namespace {

void sum_in_place(Context& context, std::vector<double>& values) {
  ops::AllreduceOptions options;
  options.reduction = ops::Reduction::Sum;
  ops::allreduce(context, view_of(values), options);
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

double consensus_distance(Context& context, std::span<const double> values) {
  std::vector<double> mean(values.begin(), values.end());
  ops::allreduce(context, view_of(mean));
  double sum = 0.0;
  for (std::size_t k = 0; k < values.size(); ++k) {
    sum += (values[k] - mean[k]) * (values[k] - mean[k]);
  }
  return std::sqrt(sum_over_ranks(context, sum));
}

}  // namespace bluefog::examples
