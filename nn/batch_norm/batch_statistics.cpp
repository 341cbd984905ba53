#include "nn/batch_statistics.hpp"

#include <fmt/format.h>
#include <torch/torch.h>

#include <numeric>
#include <string>
#include <vector>

#include "bluefog_cpp/context/context_core.hpp"
#include "bluefog_cpp/device/device_channel.hpp"
#include "bluefog_cpp/error.hpp"
#include "nn/batch_norm/channel_sums.hpp"
#include "ops/calls/validation.hpp"
#include "ops/collectives.hpp"
#include "optimizers/buckets/flat_arithmetic.hpp"
#include "optimizers/parameter.hpp"

namespace bluefog::nn {
namespace {

constexpr const char* kName = "sync_batch_norm";

void check_input(const Context& context, const at::Tensor& input) {
  std::string problem = optimizers::why_not_averaged(input);
  const int used = context.core().device() ? context.core().device()->device() : -1;
  if (problem.empty() && input.is_cuda() && input.device().index() != used) {
    problem = fmt::format(
        "expected an input on the CPU or on the device of the context "
        "(Context::use_device), {}, found {}",
        used < 0 ? "which has none" : fmt::format("CUDA device {}", used),
        optimizers::describe(input));
  }
  if (problem.empty() && (input.dim() < 2 || input.size(1) == 0)) {
    problem = fmt::format("expected an input of shape [N, C, ...] with channels, found {}",
                          optimizers::describe(input));
  }
  if (!problem.empty()) {
    throw InvalidArgument(fmt::format("rank {}, {}: {}", context.rank(), kName, problem));
  }
}

/// All ranks' `mine`, one after the other, on the device of `mine`.
at::Tensor gather(Context& context, const at::Tensor& mine, std::vector<std::int64_t>& sizes,
                  const char* name) {
  at::Tensor all;
  const auto room = [&](const std::vector<std::int64_t>& counts) {
    sizes = counts;
    all =
        at::empty({std::accumulate(counts.begin(), counts.end(), std::int64_t{0})}, mine.options());
    return optimizers::view_of(all);
  };
  ops::allgather(context, optimizers::view_of(mine), room, {.name = name});
  return all;
}

/// The moments of the ranks' batches, by rank: means, then variances, on the input's device; and
/// the number of elements of a channel.
struct Gathered {
  at::Tensor rows;
  std::vector<double> counts;
};

Gathered gather(Context& context, const at::Tensor& input) {
  const std::int64_t channels = input.size(1);
  const Moments moments = moments_of(input);
  const at::Tensor count =
      at::full({1}, static_cast<double>(elements_per_channel(input)), at::kDouble);
  std::vector<at::Tensor> mine{moments.mean.to(at::kDouble), moments.variance.to(at::kDouble)};
  std::vector<std::int64_t> sizes;
  at::Tensor counts;
  if (input.is_cpu()) {
    mine.push_back(count);
  } else {  // the host, which needs them, does not wait for the device
    counts = gather(context, count, sizes, "sync_batch_norm, counts");
  }
  const std::int64_t behind = input.is_cpu() ? 1 : 0;
  const at::Tensor all = gather(context, at::cat(mine), sizes, kName);
  for (std::size_t rank = 0; rank < sizes.size(); ++rank) {
    if (sizes[rank] != sizes[0]) {
      throw MismatchError(fmt::format(
          "rank {}, {}: expected as many channels on all ranks; rank 0 has {}, rank {} has {}",
          context.rank(), kName, (sizes[0] - behind) / 2, rank, (sizes[rank] - behind) / 2));
    }
  }
  Gathered gathered{.rows = all.view({context.size(), -1}), .counts = {}};
  if (input.is_cpu()) {
    counts = gathered.rows.select(1, 2 * channels);
  }
  for (int rank = 0; rank < context.size(); ++rank) {
    gathered.counts.push_back(counts.accessor<double, 1>()[rank]);
  }
  return gathered;
}

/// μ ← μ + δ n_j / n and M ← M + M_j + δ² n n_j / (n + n_j), rank by rank; then σ² = M / n.
/// @return n.
double merge(const Gathered& gathered, const at::Tensor& mean, const at::Tensor& variance) {
  const std::int64_t channels = mean.numel();
  double count = 0;
  for (std::size_t rank = 0; rank < gathered.counts.size(); ++rank) {
    const double added = gathered.counts[rank];
    if (added == 0) {
      continue;
    }
    const at::Tensor theirs = gathered.rows[static_cast<std::int64_t>(rank)];
    const double total = count + added;
    optimizers::update_elements(
        [added, share = added / total, spread = count * added / total](
            auto& own_mean, auto& squares, const auto& their_mean, const auto& their_variance) {
          using Number = optimizers::NumberOf<decltype(own_mean)>;
          const auto delta = their_mean - own_mean;
          own_mean += Number(share) * delta;
          squares += Number(added) * their_variance + Number(spread) * (delta * delta);
        },
        mean, variance, optimizers::ReadOnly{theirs.narrow(0, 0, channels)},
        optimizers::ReadOnly{theirs.narrow(0, channels, channels)});
    count = total;
  }
  if (count > 0) {
    optimizers::update_elements(
        [count](auto& squares) {
          squares = squares / optimizers::NumberOf<decltype(squares)>(count);
        },
        variance);
  }
  return count;
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
  // Divided by a tensor: a divisor that is a number would become a factor on a device.
  const at::Tensor means = (both / at::full({1}, static_cast<double>(count), both.options()))
                               .to(sums.dy.scalar_type())
                               .view({2, -1});
  return {.dy = means[0], .dy_normalized = means[1]};
}

}  // namespace

BatchStatistics batch_statistics(Context& context, const at::Tensor& input) {
  const torch::NoGradGuard no_grad;
  ops::validate(context, [&] { check_input(context, input); });
  const Gathered gathered = gather(context, input);
  const auto options = input.options().dtype(at::kDouble).requires_grad(false);
  const at::Tensor mean = at::zeros({input.size(1)}, options);
  const at::Tensor variance = at::zeros({input.size(1)}, options);
  const double count = merge(gathered, mean, variance);
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
    if (grad_output.sizes() != input.sizes() || grad_output.scalar_type() != input.scalar_type() ||
        grad_output.device() != input.device()) {
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
