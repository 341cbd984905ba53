#pragma once

#include <cstdint>

#include "optimizers/algorithm_row.hpp"
#include "optimizers/buckets/flat_arithmetic.hpp"
#include "optimizers/checks/momentum_growth.hpp"

namespace bluefog::optimizers {

/// How the next model follows from the momentum v.
enum class MomentumForm : std::uint8_t {
  HeavyBall,  ///< θ⁺ = θ − v
  Nesterov,   ///< θ⁺ = θ − (G + β v)
};

/// Momentum over what an outer step changes: with ψ = θ − (α / γ) (θ − x), A the average, and
/// G = γ (θ − A ψ),
///
///     v ← β v + G;   θ⁺ = θ − v or θ − (G + β v).
///
/// G holds α times the mean of the local steps, and γ times what is missing to agreement: the mean
/// of θ moves as if all ranks averaged, if columns sum to 1, and differences that a failed round
/// leaves die out.
struct OuterMomentum {
  double learning_rate = 1.0;    ///< α
  double momentum = 0.0;         ///< β
  double consensus_share = 1.0;  ///< γ, above 0; as α it makes ψ = x
  MomentumForm form = MomentumForm::HeavyBall;

  /// α and β of the options `outer_learning_rate` and `outer_momentum`, in Nesterov's form, γ = α.
  [[nodiscard]] static OuterMomentum nesterov(const DistributedOptimizerOptions& options);

  /// The recursion without gradients.
  [[nodiscard]] MomentumRecursion without_gradients() const;

  /// One element's outer step.
  template <typename Value>
  void move(Value& theta, Value& v, const Value& average) const {
    const Value g = NumberOf<Value>(consensus_share) * (theta - average);
    take(theta, v, g);
  }

  /// The same with G itself.
  template <typename Value>
  void take(Value& theta, Value& v, const Value& g) const {
    using Number = NumberOf<Value>;
    v = Number(momentum) * v + g;
    theta = form == MomentumForm::Nesterov ? theta - (g + Number(momentum) * v) : theta - v;
  }
};

/// Options of rows, `outer_learning_rate` and `outer_momentum`.
[[nodiscard]] AlgorithmOption outer_learning_rate(double default_value);
[[nodiscard]] AlgorithmOption outer_momentum(double default_value);

}  // namespace bluefog::optimizers
