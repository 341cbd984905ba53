#include "optimizers/wrapper/states/moments.hpp"

#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>

#include "optimizers/accum_adam.hpp"
#include "optimizers/algorithm_row.hpp"

namespace bluefog::optimizers {
namespace {

template <typename ParameterState>
ParameterMoments moments_in(const ParameterState& state) {
  return {.first = state.exp_avg(), .second = state.exp_avg_sq()};
}

template <>
ParameterMoments moments_in(const AccumAdamParamState& state) {
  return {.first = state.exp_avg, .second = state.exp_avg_sq};
}

/// Moments of an optimizer whose state of a parameter is a `ParameterState`.
template <typename ParameterState>
MomentsOf moments_by(const torch::optim::Optimizer& optimizer) {
  return [&optimizer](const at::Tensor& parameter) {
    const auto found = optimizer.state().find(parameter.unsafeGetTensorImpl());
    return found == optimizer.state().end()
               ? ParameterMoments{}
               : moments_in(static_cast<const ParameterState&>(*found->second));
  };
}

/// Whether one of its groups divides by the largest second moment so far, which would stay the ranks'
/// own.
template <typename Options>
bool keeps_maximum(const torch::optim::Optimizer& optimizer) {
  return std::ranges::any_of(optimizer.param_groups(),
                             [](const torch::optim::OptimizerParamGroup& group) {
                               return static_cast<const Options&>(group.options()).amsgrad();
                             });
}

}  // namespace

MomentsOf moments_of(const DistributedOptimizerOptions& options,
                     const torch::optim::Optimizer& optimizer) {
  if (options.moments) {
    return options.moments;
  }
  if (dynamic_cast<const torch::optim::Adam*>(&optimizer) != nullptr &&
      !keeps_maximum<torch::optim::AdamOptions>(optimizer)) {
    return moments_by<torch::optim::AdamParamState>(optimizer);
  }
  if (dynamic_cast<const torch::optim::AdamW*>(&optimizer) != nullptr &&
      !keeps_maximum<torch::optim::AdamWOptions>(optimizer)) {
    return moments_by<torch::optim::AdamWParamState>(optimizer);
  }
  if (dynamic_cast<const AccumAdam*>(&optimizer) != nullptr) {
    return moments_by<AccumAdamParamState>(optimizer);
  }
  return {};
}

std::string why_no_moments(const DistributedOptimizerOptions& options,
                           const torch::optim::Optimizer& optimizer) {
  constexpr const char* kMoments = "average_moments";
  if (!row_of(options.algorithm).reads(kMoments) || number_of(options, kMoments) == 0.0 ||
      moments_of(options, optimizer)) {
    return {};
  }
  return fmt::format(
      "{} {}: expected an optimizer with moments, Adam, AdamW, AccumAdam or AccumAdamW, in Python "
      "NAdam or RAdam too, without amsgrad, found another one",
      kMoments, number_of(options, kMoments));
}

}  // namespace bluefog::optimizers
