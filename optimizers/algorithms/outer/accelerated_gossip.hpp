#pragma once

#include <vector>

#include "optimizers/algorithms/outer/outer_steps.hpp"
#include "optimizers/buckets/flat_arithmetic.hpp"

namespace bluefog::optimizers {

/// Local steps, then accelerated gossip: a round's average goes on in the direction in which the
/// values have moved since the round before,
///
///     y = θ − η (θ − x);   θ⁺ = y − α (y − W y) + γ (y − y₋),   first y₋ = θ.
///
/// The mean of θ⁺ is ȳ + γ (ȳ − ȳ₋) for every doubly stochastic W. On a fixed symmetric W with gap g
/// a well-chosen γ shrinks differences by 1 − O(√g) a round, where gossip has 1 − O(g).
/// η = α = 1 and γ = 0 is adapt-then-combine.
///
/// Cost per rank and outer step: one neighbor_allreduce for each bucket; three copies of the model,
/// two of which (θ, y₋) a checkpoint keeps. Source: arXiv 2606.11081.
class AcceleratedGossip final : public OuterSteps {
 public:
  struct Rule {
    double learning_rate = 1.0;    ///< η
    double consensus_share = 1.0;  ///< α
    double acceleration = 0.0;     ///< γ

    /// y of an element.
    template <typename Value>
    [[nodiscard]] Value y(const Value& theta, const Value& x) const {
      return theta - NumberOf<Value>(learning_rate) * (theta - x);
    }
  };

  /// @param context, buckets outlive this object.
  AcceleratedGossip(Context& context, std::vector<Bucket>& buckets, const Rule& rule);

 protected:
  void begin() override;
  void prepare(std::size_t b) override;
  void update(std::size_t b) override;
  [[nodiscard]] NamedTensors own_state() const override;

 private:
  Rule rule_;
  /// y of the round before.
  std::vector<at::Tensor> earlier_;
};

}  // namespace bluefog::optimizers
