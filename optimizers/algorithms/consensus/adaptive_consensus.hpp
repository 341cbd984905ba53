#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "optimizers/algorithm.hpp"
#include "optimizers/algorithm_row.hpp"
#include "optimizers/algorithms/consensus/consensus_rule.hpp"
#include "optimizers/algorithms/consensus/distance_sketch.hpp"
#include "optimizers/bucket_averages.hpp"

namespace bluefog::optimizers {

/// Adapt-then-combine or adapt-with-combine with a `ConsensusRule`. An average takes x to
///
///     A x = (1 − κ_t) x + κ_t W x,   κ_t = κ (γ_t / γ₀)^p,
///
/// with γ_t the wrapped optimizer's learning rate, and a step makes several, A x ← A(A x) …, with
/// the next matrices of the schedule: as many as the rule says, or until
///
///     ‖x − J x‖ ≤ bound · ‖γ d‖
///
/// with both norms as root mean squares over ranks, estimated from sketches (`DistanceSketch`); of
/// adapt-with-combine d is the local step before. All ranks decide by the same numbers.
///
/// κ = 1 and one round are the algorithms without a rule. The mean over ranks stays where W keeps it,
/// for every κ. An eigenvalue λ of W becomes 1 − κ + κ λ. With bound 0, κ = 1 and as many rounds as
/// an exact schedule takes, every step of adapt-then-combine is parallel SGD's.
///
/// Averages of adapt-with-combine are formed at the start of their own step, which waits for them.
///
/// Cost per rank and average: one neighbor_allreduce for each bucket; with a bound two small
/// all-reduces and a pass over the model. One copy of the model where κ is not 1, a byte for each
/// element with a bound.
/// Sources: arXiv 2602.02899 (adaptive consensus), 2102.04828 (consensus control).
class AdaptiveConsensus final : public Algorithm {
 public:
  /// The order of the local step and the averages.
  enum class Order : std::uint8_t { AdaptThenCombine, AdaptWithCombine };

  /// @param parts for use while it is made; context and buckets outlive this object.
  AdaptiveConsensus(const AlgorithmParts& parts, Order order);

  [[nodiscard]] std::size_t calls_due() const override;
  void step(const Round& round, const StepBucket& step_bucket) override;
  void step_alone(const StepBucket& step_bucket) override;
  [[nodiscard]] NamedTensors state() const override;
  void restart() override;

 private:
  [[nodiscard]] bool looks() const noexcept { return rule_.most_rounds > 1 && rule_.bound > 0.0; }
  [[nodiscard]] double share_of_step();
  void step_locally(std::size_t b, const StepBucket& step_bucket);
  void begin_local_steps();
  [[nodiscard]] Round round_of(const Round& round, std::int64_t average) const;
  template <typename MakeReady>
  void average(const Round& round, double share, const MakeReady& make_ready);
  template <typename MakeReady>
  void start_all(const Round& round, double share, std::size_t& issued,
                 const MakeReady& make_ready);
  void end_all_started(double share);
  [[nodiscard]] bool is_near(std::size_t& issued) const;

  Context& context_;
  Order order_;
  ConsensusRule rule_;
  std::function<double()> learning_rate_;
  std::optional<Schedule> schedule_;
  NeighborAverages averages_;
  std::vector<Work> works_;
  /// The values that averages start from; empty where κ is 1 throughout.
  std::vector<at::Tensor> starts_;
  std::optional<DistanceSketch> sketch_;
  std::vector<at::Tensor> before_step_;
  at::Tensor highest_learning_rate_;
  /// ‖γ d‖² of the last local steps of this rank.
  at::Tensor step_square_;
  at::Tensor averages_made_;
};

/// `row`, whose algorithm takes a `ConsensusRule` too: with one other than the plain one
/// `AdaptiveConsensus` of that order is made.
[[nodiscard]] AlgorithmRow with_consensus(AlgorithmRow row, AdaptiveConsensus::Order order);

}  // namespace bluefog::optimizers
