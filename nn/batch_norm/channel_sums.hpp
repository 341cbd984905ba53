#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace bluefog::nn {

/// Batch normalisation of one rank's batch alone. Inputs are of shape [N, C, …], per-channel
/// tensors of shape [C] and of `statistics_dtype`, all on one device.

/// The dtype of statistics: float64 for float64 inputs, else float32.
[[nodiscard]] at::ScalarType statistics_dtype(const at::Tensor& input);

/// `tensor` in the memory order of `like`, where that has no gaps: itself, if it is so already.
[[nodiscard]] at::Tensor in_order_of(const at::Tensor& like, const at::Tensor& tensor);

/// The number of elements of a channel.
[[nodiscard]] std::int64_t elements_per_channel(const at::Tensor& input);

struct Moments {
  at::Tensor mean;
  /// Σ (x − mean)² / count; mean and variance of an empty batch are zeros.
  at::Tensor variance;
};
[[nodiscard]] Moments moments_of(const at::Tensor& input);

/// γ (x − μ) / √(σ² + ε) + β, of the input's dtype and memory order.
/// @param weight γ, @param bias β: undefined ones are 1 and 0.
[[nodiscard]] at::Tensor normalize(const at::Tensor& input, const Moments& moments,
                                   const at::Tensor& weight, const at::Tensor& bias, double eps);

struct GradientSums {
  at::Tensor dy;             ///< Σ dy
  at::Tensor dy_normalized;  ///< Σ dy (x − μ) / √(σ² + ε)
};
[[nodiscard]] GradientSums gradient_sums(const at::Tensor& grad_output, const at::Tensor& input,
                                         const Moments& moments, double eps);

/// The gradient of the input, where the means are over the batches of all ranks:
///
///     γ / √(σ² + ε) · (dy − mean(dy) − x̂ mean(dy x̂)),   x̂ = (x − μ) / √(σ² + ε)
///
/// @param means the means of the two sums.
/// Computed in `statistics_dtype` in one pass, rounded to the input's dtype once.
[[nodiscard]] at::Tensor input_gradient(const at::Tensor& grad_output, const at::Tensor& input,
                                        const Moments& moments, const GradientSums& means,
                                        const at::Tensor& weight, double eps);

}  // namespace bluefog::nn
