#include "pipeline/runtime/stage.hpp"

#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <utility>

#include "bluefog_cpp/error.hpp"

namespace bluefog::pipeline {

Stage::Stage(Layers& layers, const Loss& loss, const StagePart& part, FrozenOutputs* cached)
    : layers_(layers), loss_(loss), part_(part), cached_(cached) {}

at::Tensor Stage::forward(int micro_batch, const at::Tensor& input, bool keeps,
                          std::span<const std::int64_t> samples) {
  at::Tensor values = input;
  const int trained_from = std::clamp(part_.frozen, part_.begin, part_.end);
  int next = part_.begin;
  if (cached_ != nullptr && !samples.empty()) {
    values = cached_->of(values, samples);
    next = cached_->depth();
  }
  {
    const torch::NoGradGuard no_grad;
    for (int layer = next; layer < (keeps ? trained_from : part_.end); ++layer) {
      values = layers_.forward(layer, values);
    }
  }
  if (!keeps) {
    return values;
  }
  Kept kept;
  if (part_.gives_gradient) {
    values.requires_grad_();
    kept.input = values;
  }
  for (int layer = trained_from; layer < part_.end; ++layer) {
    values = layers_.forward(layer, values);
  }
  kept.output = values;
  kept_[micro_batch] = std::move(kept);
  return values;
}

double Stage::take_loss(int micro_batch, const at::Tensor& output, const at::Tensor& targets,
                        double weight, bool keeps) {
  const at::AutoGradMode mode(keeps);
  const at::Tensor loss = loss_(output, targets);
  if (!loss.defined() || loss.numel() != 1 || !loss.is_floating_point()) {
    throw InvalidArgument(fmt::format("Pipeline: expected a loss of one floating element, found {}",
                                      optimizers::describe(loss)));
  }
  if (keeps) {
    if (!loss.requires_grad()) {
      throw InvalidArgument(
          "Pipeline: expected a loss with a gradient, found one that depends on no parameter that "
          "is trained");
    }
    kept_[micro_batch].output = loss * weight;
  }
  return loss.item<double>();
}

at::Tensor Stage::backward(int micro_batch, const at::Tensor& gradient) {
  const auto found = kept_.find(micro_batch);
  const Kept kept = std::move(found->second);
  kept_.erase(found);
  try {
    kept.output.backward(part_.is_last ? at::Tensor() : gradient);
  } catch (const c10::Error& error) {
    throw InvalidArgument(fmt::format("the backward pass of layers {} to {}: {}", part_.begin,
                                      part_.end - 1, error.what_without_backtrace()));
  }
  if (!part_.gives_gradient) {
    return {};
  }
  const at::Tensor& of_input = kept.input.grad();
  return of_input.defined() ? of_input : at::zeros_like(kept.input);
}

}  // namespace bluefog::pipeline
