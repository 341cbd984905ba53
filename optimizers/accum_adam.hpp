#pragma once

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace bluefog::optimizers {

/// The choices of `AccumAdam`, for all parameters or for those of a group.
struct AccumAdamOptions : torch::optim::OptimizerCloneableOptions<AccumAdamOptions> {
  /// The defaults, but for the learning rate.
  explicit AccumAdamOptions(double learning_rate = 1e-3) : lr(learning_rate) {}

  double lr;  ///< γ, at least 0
  /// β₁ and β₂, from 0 to below 1; the authors take 0.9 and 0.98 for language models.
  std::pair<double, double> betas{0.9, 0.999};
  double eps = 1e-8;              ///< ε, at least 0
  double weight_decay = 0.0;      ///< λ, at least 0
  std::int64_t accumulation = 4;  ///< s, the steps between two changes of the moments, at least 1

  /// From an archive of an optimizer's.
  void serialize(torch::serialize::InputArchive& archive) override;
  /// Into one.
  void serialize(torch::serialize::OutputArchive& archive) const override;
  /// γ
  [[nodiscard]] double get_lr() const override { return lr; }
  /// Sets γ, as rates that change do.
  void set_lr(double value) override { lr = value; }
};

/// The choices of `AccumAdamW`, whose decay is another one by default.
struct AccumAdamWOptions : AccumAdamOptions {
  /// The defaults, but for the learning rate.
  explicit AccumAdamWOptions(double learning_rate = 1e-3) : AccumAdamOptions(learning_rate) {
    weight_decay = 1e-2;
  }
};

/// The state of one parameter of `AccumAdam`.
struct AccumAdamParamState : torch::optim::OptimizerCloneableParamState<AccumAdamParamState> {
  std::int64_t step = 0;    ///< steps made
  at::Tensor exp_avg;       ///< m
  at::Tensor exp_avg_sq;    ///< v
  at::Tensor gradient_sum;  ///< of the gradients since m and v have changed

  /// From an archive of an optimizer's.
  void serialize(torch::serialize::InputArchive& archive) override;
  /// Into one.
  void serialize(torch::serialize::OutputArchive& archive) const override;
};

/// Adam with moments m and v that change once in s steps (`accumulation`), by the mean ḡ of the
/// gradients g of these:
///
///     m' = β₁ m + (1 − β₁) g;  v' = β₂ v + (1 − β₂) g²;  x ← x − γ m̂' / (√v̂' + ε)
///     after s steps:  m ← β₁ m + (1 − β₁) ḡ;  v ← β₂ v + (1 − β₂) ḡ²
///
/// with m̂' and v̂' corrected for their bias by 1 − β^k, k the number of changes with the next one;
/// g has λ x added to it. Gradients of several steps make a larger batch for the moments, as those
/// of several ranks do in parallel SGD, while parameters move and are averaged in each. s = 1 is
/// Adam.
///
/// Wrap it as any optimizer of torch's. Parameters without gradients stay. Serialised as torch's
/// own. One thread at a time. Memory: three copies of the parameters, one more than Adam's.
/// Source: arXiv 2410.11998; `bf.AccumAdam` in Python, with the same arithmetic.
class AccumAdam : public torch::optim::Optimizer {
 public:
  /// @param groups may have `AccumAdamOptions` of their own.
  /// @throws InvalidArgument for options out of range.
  explicit AccumAdam(const std::vector<torch::optim::OptimizerParamGroup>& groups,
                     const AccumAdamOptions& defaults = AccumAdamOptions());
  /// The same for one group.
  explicit AccumAdam(std::vector<at::Tensor> parameters,
                     const AccumAdamOptions& defaults = AccumAdamOptions())
      : AccumAdam({torch::optim::OptimizerParamGroup(std::move(parameters))}, defaults) {}

  /// A step; returns the closure's loss. @throws UnsupportedError for sparse gradients, before
  /// their parameter changes.
  at::Tensor step(LossClosure closure = nullptr) override;
  /// Writes state and options of all parameters.
  void save(torch::serialize::OutputArchive& archive) const override;
  /// Reads what `save` wrote of as many parameters.
  void load(torch::serialize::InputArchive& archive) override;

 protected:
  /// Decay as a part of g, or of x before the step.
  enum class Decay : std::uint8_t { OfGradient, Decoupled };
  /// @param name of the class, for messages.
  AccumAdam(const std::vector<torch::optim::OptimizerParamGroup>& groups,
            const AccumAdamOptions& defaults, const char* name, Decay decay);

 private:
  void move(const at::Tensor& x, const AccumAdamOptions& options);
  AccumAdamParamState& state_of(const at::Tensor& x);

  const char* name_;
  Decay decay_;
};

/// `AccumAdam` with decoupled decay of weights, x ← (1 − γ λ) x before the step, as AdamW has it;
/// where parameters are averaged after the step, before they are. s = 1 is AdamW.
/// Source: as `AccumAdam`; `bf.AccumAdamW` in Python.
class AccumAdamW : public AccumAdam {
 public:
  /// @param groups may have `AccumAdamOptions` of their own.
  /// @throws InvalidArgument for options out of range.
  explicit AccumAdamW(const std::vector<torch::optim::OptimizerParamGroup>& groups,
                      const AccumAdamOptions& defaults = AccumAdamWOptions())
      : AccumAdam(groups, defaults, "AccumAdamW", Decay::Decoupled) {}
  /// The same for one group.
  explicit AccumAdamW(std::vector<at::Tensor> parameters,
                      const AccumAdamOptions& defaults = AccumAdamWOptions())
      : AccumAdamW({torch::optim::OptimizerParamGroup(std::move(parameters))}, defaults) {}
};

}  // namespace bluefog::optimizers
