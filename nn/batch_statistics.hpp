#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "bluefog_cpp/context.hpp"

/// Layers that communicate.
namespace bluefog::nn {

/// Mean and variance per channel of the batches of all ranks together, as one batch.
struct BatchStatistics {
  at::Tensor mean;         ///< Σ x / count, of shape [C]
  at::Tensor variance;     ///< Σ (x − mean)² / count, of shape [C]
  std::int64_t count = 0;  ///< elements of a channel, over all ranks
};

/// Collective. Statistics of inputs of shape [N, C, …], where N and the dimensions after C may
/// differ between ranks; N may be 0 on some. They are merged in float64 by rising rank: the same
/// bits on every rank. The results have shape [C], and dtype float64 for a float64 input, else
/// float32. They lie where the input does: on the CPU, or on the device of the context, whose
/// stream goes on without the host.
/// Cost: one all-gather of 8 (2C + 1) bytes; on a device one of 16 C bytes there, and one of 8 by
/// the hosts.
/// @throws InvalidArgument unless the input is dense, floating, on the CPU or the context's device,
///   and of 2 dimensions or more; the other ranks then get a PeerFailure. On all ranks:
///   InvalidArgument if there are fewer than 2 elements per channel in all, MismatchError if ranks
///   have different numbers of channels.
/// Source: the parallel variance of Chan, Golub and LeVeque (1979).
[[nodiscard]] BatchStatistics batch_statistics(Context& context, const at::Tensor& input);

/// γ (x − μ) / √(σ² + ε) + β, of the input's dtype. Local.
/// @param weight γ of shape [C], @param bias β: undefined ones are 1 and 0.
[[nodiscard]] at::Tensor normalize(const at::Tensor& input, const BatchStatistics& statistics,
                                   const at::Tensor& weight, const at::Tensor& bias, double eps);

/// The step of running statistics towards a batch's, whose variance counts as Σ (x − μ)² / (count −
/// 1):
///
///     r ← (1 − momentum) r + momentum x
void update_running(at::Tensor& mean, at::Tensor& variance, const BatchStatistics& statistics,
                    double momentum);

/// The derivatives of a loss by what `normalize` was given.
struct BatchNormGradients {
  at::Tensor input;  ///< of the input's shape and dtype; undefined unless it was wanted
  /// γ's, of shape [C] and of this rank's batch alone, as the gradients of all parameters are.
  at::Tensor weight;
  at::Tensor bias;  ///< likewise β's
};

/// The gradients that are wanted: the input's needs the other ranks.
enum class GradientsWanted : std::uint8_t {
  Parameters,          ///< γ and β: local
  InputAndParameters,  ///< the input too: collective
};

/// Collective for `InputAndParameters`, which all ranks then want. The gradients of `normalize`
/// after `batch_statistics`, the dependence of the statistics on every rank's input included. Cost:
/// one all-reduce of 16 C bytes.
/// @throws InvalidArgument if `grad_output` has another shape or dtype than the input.
[[nodiscard]] BatchNormGradients batch_norm_gradients(Context& context,
                                                      const at::Tensor& grad_output,
                                                      const at::Tensor& input,
                                                      const BatchStatistics& statistics,
                                                      const at::Tensor& weight, double eps,
                                                      GradientsWanted wanted);

}  // namespace bluefog::nn
