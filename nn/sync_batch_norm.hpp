#pragma once

#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/pimpl.h>

#include <memory>
#include <ostream>

#include "bluefog_cpp/context.hpp"

namespace bluefog::nn {

/// Batch normalisation over the batches of all ranks together, as if they were one:
///
///     y = γ (x − μ) / √(σ² + ε) + β
///
/// with μ and σ² per channel over every rank's batch, forward and backward. Inputs have shape
/// [N, C, …] and are float16, bfloat16, float32 or float64; batches may differ in size, and be
/// empty on some ranks. Statistics of half precision are float32. Gradients of γ and β are those of
/// this rank's batch, for whoever averages the model's gradients or parameters. The running
/// statistics are the same on all ranks.
///
/// In training mode (and without running statistics always) `forward` and its backward are
/// collective, in the order of the ranks' other calls on the context: all ranks run the same
/// layers. In evaluation mode nothing communicates. Differentiable once. Cost: `batch_statistics`
/// forward, `batch_norm_gradients` backward.
/// @throws what `batch_statistics` and `batch_norm_gradients` throw; UnsupportedError from a
///   backward with create_graph.
/// Source: torch.nn.SyncBatchNorm, which is for GPUs.
class SyncBatchNormImpl
    : public torch::nn::NormImplBase<1, SyncBatchNormImpl, torch::nn::BatchNormOptions> {
 public:
  /// A layer of `wanted.num_features()` channels.
  /// @param context of the ranks whose batches count as one; kept.
  /// @param wanted as for `torch::nn::BatchNorm2d`.
  SyncBatchNormImpl(std::shared_ptr<Context> context, const torch::nn::BatchNormOptions& wanted);

  /// y, of the shape and dtype of `input`.
  [[nodiscard]] at::Tensor forward(const at::Tensor& input);

  /// Writes the layer's name and options, as torch's layers do.
  void pretty_print(std::ostream& stream) const override;

 protected:
  /// @throws InvalidArgument unless `input` has shape [N, num_features, …].
  void _check_input_dim(const at::Tensor& input) override;

 private:
  [[nodiscard]] at::Tensor synchronized(const at::Tensor& input);

  std::shared_ptr<Context> context_;
};

/// The class `SyncBatchNorm`, by which programs hold a `SyncBatchNormImpl`, as torch's modules.
TORCH_MODULE(SyncBatchNorm);

}  // namespace bluefog::nn
