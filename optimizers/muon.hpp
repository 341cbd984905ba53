#pragma once

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include <array>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "optimizers/parameter.hpp"

namespace bluefog::optimizers {

/// The factor of the learning rate by the shape A × B of a parameter.
enum class MuonRate : std::uint8_t {
  Original,      ///< √max(1, A/B)
  MatchRmsAdamW  ///< 0.2 √max(A, B): rates and decay as of AdamW
};

/// The choices of `Muon`, for all parameters or for those of a group, with the defaults of
/// torch.optim.Muon.
struct MuonOptions : torch::optim::OptimizerCloneableOptions<MuonOptions> {
  /// The defaults, but for the learning rate.
  explicit MuonOptions(double learning_rate = 1e-3) : lr(learning_rate) {}

  double lr;                  ///< γ, at least 0
  double weight_decay = 0.1;  ///< λ, at least 0
  double momentum = 0.95;     ///< μ, at least 0
  bool nesterov = true;       ///< whether the momentum looks ahead
  /// a, b and c of the iteration.
  std::array<double, 3> ns_coefficients{3.4445, -4.7750, 2.0315};
  double eps = 1e-7;                   ///< ε, the least norm that is divided by, at least 0
  std::int64_t ns_steps = 5;           ///< k, the iterations, from 0 to below 100
  MuonRate rate = MuonRate::Original;  ///< the factor of γ

  /// From an archive of an optimizer's.
  void serialize(torch::serialize::InputArchive& archive) override;
  /// Into one.
  void serialize(torch::serialize::OutputArchive& archive) const override;
  /// γ
  [[nodiscard]] double get_lr() const override { return lr; }
  /// Sets γ, as rates that change do.
  void set_lr(double value) override { lr = value; }
};

/// The state of one parameter of `Muon`.
struct MuonParamState : torch::optim::OptimizerCloneableParamState<MuonParamState> {
  at::Tensor momentum_buffer;  ///< B

  /// From an archive of an optimizer's.
  void serialize(torch::serialize::InputArchive& archive) override;
  /// Into one.
  void serialize(torch::serialize::OutputArchive& archive) const override;
};

/// Muon, momentum whose matrices are made orthogonal before they move parameters:
///
///     B ← μ B + (1 − μ) g;  U = (1 − μ) g + μ B with nesterov, else B
///     O = NS(U);  x ← (1 − γ λ) x − γ' O
///
/// with γ' as `MuonRate` says. NS is k times X ← a X + (b X Xᵀ + c (X Xᵀ)²) X in bfloat16, from
/// X = U / max(‖U‖, ε), transposed where U is tall: singular values come near 1. Gradients that an
/// algorithm changes before the step (gradient tracking, gradient all-reduce) are changed before
/// the iteration.
///
/// For the matrices of hidden layers; embeddings, biases and the last layer want another optimizer.
/// Wrap it as any optimizer of torch's. Parameters without gradients stay. Serialised as torch's
/// own. One thread at a time. Memory: a copy of the parameters.
/// Source: kellerjordan.github.io/posts/muon; arXiv 2502.16982; torch.optim.Muon, with the same
/// arithmetic.
class Muon : public torch::optim::Optimizer {
 public:
  /// @param groups may have `MuonOptions` of their own.
  /// @throws InvalidArgument for options out of range, and for a parameter that is no real matrix,
  ///   by its group and place.
  explicit Muon(const std::vector<torch::optim::OptimizerParamGroup>& groups,
                const MuonOptions& defaults = MuonOptions());
  /// The same for one group.
  explicit Muon(std::vector<at::Tensor> parameters, const MuonOptions& defaults = MuonOptions())
      : Muon({torch::optim::OptimizerParamGroup(std::move(parameters))}, defaults) {}
  /// The same for parameters with names, which errors say (`named_parameters`).
  explicit Muon(const NamedTensors& parameters, const MuonOptions& defaults = MuonOptions());

  /// A step; returns the closure's loss. @throws UnsupportedError for sparse gradients, before
  /// their parameter changes.
  at::Tensor step(LossClosure closure = nullptr) override;
  /// Writes state and options of all parameters.
  void save(torch::serialize::OutputArchive& archive) const override;
  /// Reads what `save` wrote of as many parameters.
  void load(torch::serialize::InputArchive& archive) override;

 private:
  void move(const at::Tensor& x, const MuonOptions& options);
};

}  // namespace bluefog::optimizers
