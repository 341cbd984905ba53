#include "nn/batch_statistics.hpp"

#include <fmt/format.h>
#include <torch/torch.h>

#include <numeric>
#include <string>
#include <vector>

#include "bluefog_cpp/base/error.hpp"
#include "nn/channel_sums.hpp"
#include "ops/collectives.hpp"
#include "ops/validation.hpp"
#include "optimizers/parameter.hpp"

namespace bluefog::nn {
namespace {

constexpr const char* kName = "sync_batch_norm";

void check_input(const Context& context, const at::Tensor& input) {
  std::string problem = optimizers::why_unsupported(input);
  if (problem.empty() && (input.dim() < 2 || input.size(1) == 0)) {
    problem = fmt::format("expected an input of shape [N, C, …] with channels, found {}",
                          optimizers::describe(input));
  }
  if (!problem.empty()) {
    throw InvalidArgument(fmt::format("rank {}, {}: {}", context.rank(), kName, problem));
  }
}

/// What the ranks say of their batches: means, variances, count.
struct Gathered {
  at::Tensor values;
  std::int64_t channels = 0;

  [[nodiscard]] const double* of(std::int64_t rank) const {
    return values.const_data_ptr<double>() + rank * (2 * channels + 1);
  }
};

Gathered gather(Context& context, const at::Tensor& input) {
  const Moments moments = moments_of(input);
  const at::Tensor count =
      at::full({1}, static_cast<double>(elements_per_channel(input)), at::kDouble);
  const at::Tensor mine =
      at::cat({moments.mean.to(at::kDouble), moments.variance.to(at::kDouble), count});
  Gathered gathered{.values = {}, .channels = input.size(1)};
  std::vector<std::int64_t> sizes;
  const auto room = [&](const std::vector<std::int64_t>& counts) {
    sizes = counts;
    const auto total = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
    gathered.values = at::empty({total}, at::kDouble);
    return optimizers::view_of(gathered.values);
  };
  ops::allgather(context, {mine.const_data_ptr<double>(), mine.numel(), Dtype::Float64}, room,
                 {.name = kName});
  for (std::size_t rank = 0; rank < sizes.size(); ++rank) {
    if (sizes[rank] != sizes[0]) {
      throw MismatchError(fmt::format(
          "rank {}, {}: expected as many channels on all ranks; rank 0 has {}, rank {} has {}",
          context.rank(), kName, (sizes[0] - 1) / 2, rank, (sizes[rank] - 1) / 2));
    }
  }
  return gathered;
}

/// μ ← μ + δ n_j / n and M ← M + M_j + δ² n n_j / (n + n_j), rank by rank.
void merge(const Gathered& gathered, std::int64_t ranks, double* mean, double* variance,
           double& count) {
  const std::int64_t channels = gathered.channels;
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    const double* theirs = gathered.of(rank);
    const double added = theirs[2 * channels];
    if (added == 0) {
      continue;
    }
    const double total = count + added;
    for (std::int64_t c = 0; c < channels; ++c) {
      const double delta = theirs[c] - mean[c];
      mean[c] += delta * (added / total);
      // `variance` holds the sum of squares until the end.
      variance[c] += theirs[channels + c] * added + delta * delta * (count * added / total);
    }
    count = total;
  }
  for (std::int64_t c = 0; c < channels; ++c) {
    variance[c] /= count;
  }
}

Moments moments_of(const BatchStatistics& statistics) {
  return {.mean = statistics.mean, .variance = statistics.variance};
}

/// The sums of all ranks over the number of elements of them all.
GradientSums global_means(Context& context, const GradientSums& sums, std::int64_t count) {
  const at::Tensor both = at::cat({sums.dy, sums.dy_normalized}).to(at::kDouble);
  ops::AllreduceOptions options;
  options.name = kName;
  options.reduction = ops::Reduction::Sum;
  ops::allreduce(context, optimizers::view_of(both), options);
  const at::Tensor means =
      (both / static_cast<double>(count)).to(sums.dy.scalar_type()).view({2, -1});
  return {.dy = means[0], .dy_normalized = means[1]};
}

}  // namespace

BatchStatistics batch_statistics(Context& context, const at::Tensor& input) {
  const torch::NoGradGuard no_grad;
  ops::validate(context, [&] { check_input(context, input); });
  const Gathered gathered = gather(context, input);
  at::Tensor mean = at::zeros({gathered.channels}, at::kDouble);
  at::Tensor variance = at::zeros({gathered.channels}, at::kDouble);
  double count = 0;
  merge(gathered, context.size(), mean.mutable_data_ptr<double>(),
        variance.mutable_data_ptr<double>(), count);
  if (count < 2) {
    throw InvalidArgument(fmt::format(
        "rank {}, {}: expected at least 2 elements per channel over all ranks, found {}",
        context.rank(), kName, count));
  }
  const at::ScalarType dtype = statistics_dtype(input);
  return {.mean = mean.to(dtype),
          .variance = variance.to(dtype),
          .count = static_cast<std::int64_t>(count)};
}

at::Tensor normalize(const at::Tensor& input, const BatchStatistics& statistics,
                     const at::Tensor& weight, const at::Tensor& bias, double eps) {
  const torch::NoGradGuard no_grad;
  return normalize(input, moments_of(statistics), weight, bias, eps);
}

void update_running(at::Tensor& mean, at::Tensor& variance, const BatchStatistics& statistics,
                    double momentum) {
  const torch::NoGradGuard no_grad;
  const auto count = static_cast<double>(statistics.count);
  const auto move = [&](at::Tensor& running, const at::Tensor& value) {
    running.mul_(1 - momentum).add_(value.to(running.scalar_type()), momentum);
  };
  move(mean, statistics.mean);
  move(variance, statistics.variance * (count / (count - 1)));
}

BatchNormGradients batch_norm_gradients(Context& context, const at::Tensor& grad_output,
                                        const at::Tensor& input, const BatchStatistics& statistics,
                                        const at::Tensor& weight, double eps,
                                        GradientsWanted wanted) {
  const torch::NoGradGuard no_grad;
  ops::validate(context, [&] {
    if (grad_output.sizes() != input.sizes() || grad_output.scalar_type() != input.scalar_type()) {
      throw InvalidArgument(fmt::format(
          "rank {}, {}: expected a gradient like the input {}, "
          "found {}",
          context.rank(), kName, optimizers::describe(input), optimizers::describe(grad_output)));
    }
  });
  const Moments moments = moments_of(statistics);
  const GradientSums sums = gradient_sums(grad_output, input, moments, eps);
  BatchNormGradients gradients{.input = {}, .weight = sums.dy_normalized, .bias = sums.dy};
  if (wanted == GradientsWanted::InputAndParameters) {
    const GradientSums means = global_means(context, sums, statistics.count);
    gradients.input = input_gradient(grad_output, input, moments, means, weight, eps);
  }
  return gradients;
}

}  // namespace bluefog::nn
