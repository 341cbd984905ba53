#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "optimizers/algorithm_row.hpp"
#include "optimizers/algorithms/outer/coded_averages.hpp"
#include "optimizers/algorithms/outer/outer_momentum.hpp"
#include "optimizers/algorithms/outer/outer_steps.hpp"

namespace bluefog::optimizers {

/// Outer steps over all ranks whose differences travel in codes, with error feedback:
///
///     e ← β_e e + α (θ − x);   q = C(e);   e ← e − q;   G = J q;   v ← β v + G
///
/// and θ⁺ from G and v by the rule. The first outer step, also after `restart`, is θ = J x, sent as it
/// is, from where all ranks have the same θ.
/// Source: SparseLoCo, arXiv 2508.15706 (without momentum).
class CodedOuterSteps final : public OuterSteps {
 public:
  /// @param averages makes J. @param same is what `averages` holds.
  CodedOuterSteps(std::vector<Bucket>& buckets, std::unique_ptr<Algorithm> averages,
                  CodedAverages& same, const OuterMomentum& rule);

 protected:
  void prepare(std::size_t b) override;
  void update(std::size_t b) override;
  [[nodiscard]] NamedTensors own_state() const override;

 private:
  CodedAverages& averages_;
  OuterMomentum rule_;
  std::vector<at::Tensor> moments_;
  /// Whether the round under way sends codes.
  bool codes_ = false;
};

/// `CodedOuterSteps` with the code of the options and their `error_decay`.
[[nodiscard]] std::unique_ptr<Algorithm> make_coded_outer_steps(const AlgorithmParts& parts,
                                                                const OuterMomentum& rule);
/// The option `error_decay` of rows, β_e.
[[nodiscard]] AlgorithmOption error_decay(double default_value);

}  // namespace bluefog::optimizers
