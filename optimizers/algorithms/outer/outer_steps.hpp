#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "optimizers/algorithm.hpp"
#include "optimizers/algorithm_row.hpp"
#include "optimizers/algorithms/outer/outer_momentum.hpp"
#include "optimizers/algorithms/outer/outer_start.hpp"

namespace bluefog::optimizers {

/// Local steps, then an outer step that averages how far they have led. With θ the model after the
/// last outer step, x what `num_steps_per_communication` steps of the wrapped optimizer have made
/// of it since, and A the way to average, classes say what is averaged, ψ(θ, x), and the next
/// model, θ⁺(θ, x, A ψ), which is where the next local steps begin.
///
/// A is an algorithm for itself, which averages what its local steps leave: adapt-then-combine
/// (A = W), local SGD (A = J), CHOCO, or Gossip-PGA, of whose rounds every H-th is an outer step.
///
/// The first θ is the model before the first step, or before the first one after `restart`. Values
/// that a caller sets between steps count as made by local steps. A round that fails leaves θ as it
/// was, and the next one goes on from there.
///
/// Cost per rank and outer step: that of A; a copy of the model for θ, and one for x where ψ is
/// another value.
class OuterSteps : public Algorithm {
 public:
  [[nodiscard]] bool averages_with_neighbors() const noexcept final;
  [[nodiscard]] std::size_t calls_due() const final;
  void step(const Round& round, const StepBucket& step_bucket) final;
  void step_alone(const StepBucket& step_bucket) final;
  /// "outer start of bucket 0", …, "outer steps begun", then a class's own and A's.
  [[nodiscard]] NamedTensors state() const final;
  void restart() final;
  void expect(bool communicates) final { averages_->expect(communicates); }
  void forget_round() final { averages_->forget_round(); }

 protected:
  enum class Sent : std::uint8_t {
    Parameters,  ///< ψ = x
    Prepared,    ///< ψ is what `prepare` makes of x
  };

  /// @param buckets outlive this object. @param averages A, over the same ones.
  /// @param period_rounds of A's rounds, every so many are outer steps.
  OuterSteps(std::vector<Bucket>& buckets, std::unique_ptr<Algorithm> averages,
             std::int64_t period_rounds, Sent sent);

  /// Makes ψ of bucket b of the parameters, in their place.
  virtual void prepare(std::size_t /*b*/) {}
  /// The outer step of bucket b, whose parameters hold A ψ: they and θ become θ⁺.
  virtual void update(std::size_t b) = 0;
  /// θ has been set to the parameters, for the first time.
  virtual void begin() {}
  /// The values that a class carries beside θ.
  [[nodiscard]] virtual NamedTensors own_state() const = 0;

  /// θ of bucket b.
  [[nodiscard]] const at::Tensor& start(std::size_t b) const { return start_[b]; }
  /// x of bucket b, from `prepare` on. For `Sent::Prepared`.
  [[nodiscard]] const at::Tensor& kept(std::size_t b) const { return kept_[b]; }

 private:
  void begin_once();

  std::unique_ptr<Algorithm> averages_;
  std::int64_t period_rounds_;
  OuterStart start_;
  std::vector<at::Tensor> kept_;
};

/// Outer steps with momentum.
class MomentumOuterSteps final : public OuterSteps {
 public:
  using RuleOf = std::function<OuterMomentum(const DistributedOptimizerOptions& options)>;

  /// As `OuterSteps`.
  MomentumOuterSteps(std::vector<Bucket>& buckets, std::unique_ptr<Algorithm> averages,
                     std::int64_t period_rounds, const OuterMomentum& rule);

 protected:
  void prepare(std::size_t b) override;
  void update(std::size_t b) override;
  [[nodiscard]] NamedTensors own_state() const override;

 private:
  OuterMomentum rule_;
  std::vector<at::Tensor> moments_;
};

/// What rows of algorithms with outer steps have in common.
[[nodiscard]] AlgorithmRow outer_row();

/// What rounds between outer steps do.
enum class Between : std::uint8_t {
  Nothing,  ///< there are none
  Gossip,   ///< averages with neighbours; every `global_period_rounds`-th is an outer step
};

/// The row of an algorithm that is `MomentumOuterSteps` over all ranks, whose rule follows from the
/// options. Rules under which differences between ranks do not die out are refused.
[[nodiscard]] AlgorithmRow outer_row_of_all_ranks(const MomentumOuterSteps::RuleOf& rule,
                                                  Between between = Between::Nothing);
/// The same over the ranks of a round; by CHOCO with κ = `consensus_step_size` where the options have
/// a `compression`.
[[nodiscard]] AlgorithmRow outer_row_of_neighbors(const MomentumOuterSteps::RuleOf& rule);

}  // namespace bluefog::optimizers
