#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "topology/mixing_matrix.hpp"
#include "topology/neighbor_plan.hpp"

namespace bluefog {

/// The mixing matrix of each step, W(0), W(1), …, repeating after a period.
///
/// A value; copies share memory, plans included. All members may be called
/// from several threads. Made by the functions below.
class Schedule {
 public:
  /// The number of ranks.
  [[nodiscard]] int size() const noexcept;

  /// Steps after which the schedule repeats: W(t + period) = W(t).
  [[nodiscard]] std::int64_t period_steps() const noexcept;

  /// W(step): one of the matrices that were given, in the same memory, or one that is made anew.
  /// @param step 0 or more. @throws InvalidArgument if negative.
  [[nodiscard]] MixingMatrix mixing_matrix(std::int64_t step) const;

  /// The part of `rank` in `step`. The first request makes the plan, later ones (also a period
  /// later) return the same object without an allocation. Up to 8,192 plans are kept.
  /// @throws InvalidArgument if `rank` is out of range or `step` negative.
  [[nodiscard]] std::shared_ptr<const NeighborPlan> plan_for(int rank, std::int64_t step) const;

  /// The schedule after these ranks are lost: step t is W(t).without(ranks), with the same period.
  /// Ranks keep their numbers; a lost one keeps its value and talks to nobody. Plans weigh at the
  /// receiver, and every rank that has this schedule gets the same bits.
  ///
  /// Steps are formed when they are asked for, the last one is kept: a plan that is not known yet
  /// costs O(entries of its step) and what `MixingMatrix::without` says.
  ///
  /// @param ranks distinct; none gives the schedule itself. Ranks that are lost one after the other
  ///   are best left out together, from the first schedule: all ranks get the same bits then,
  ///   whatever each knew in between.
  /// @throws InvalidArgument if a rank is out of range or there twice, or if none is left. A step
  ///   that `MixingMatrix::without` refuses is refused when it is asked for.
  [[nodiscard]] Schedule without(std::span<const int> ranks) const;

  /// Step t is W(t).among(ranks): the schedule of these ranks alone, numbered anew by rising rank.
  /// @throws InvalidArgument as `MixingMatrix::among`.
  [[nodiscard]] Schedule among(std::span<const int> ranks) const;

  /// How a schedule makes its steps; the extension point for other families.
  class Source {
   public:
    virtual ~Source() = default;
    /// The number of ranks, at least 1.
    [[nodiscard]] virtual int size() const = 0;
    /// Steps after which the schedule repeats, at least 1.
    [[nodiscard]] virtual std::int64_t period_steps() const = 0;
    /// W(phase).
    /// @param phase 0 … period_steps() − 1.
    [[nodiscard]] virtual MixingMatrix mixing_matrix(std::int64_t phase) const = 0;
    /// This rank's part of mixing_matrix(phase), its `plan_for(rank)` or another way to put it
    /// (`weighed_by_senders`).
    [[nodiscard]] virtual NeighborPlan plan_for(int rank, std::int64_t phase) const = 0;
  };

  /// The schedule whose steps `source` makes. Its members are called from any thread, several at a
  /// time.
  explicit Schedule(std::unique_ptr<const Source> source);

 private:
  struct State;
  std::shared_ptr<State> state_;
};

/// Graphs and schedules of weights, and what they do to the values that are averaged.
namespace topology {

/// The same matrix in every step.
[[nodiscard]] Schedule static_schedule(MixingMatrix matrix);

/// The given matrices in turn.
/// @throws InvalidArgument if there is none or their sizes differ.
[[nodiscard]] Schedule cycle(std::vector<MixingMatrix> matrices);

/// In step t rank i hears i − 2^(t mod τ) mod n and averages the two values;
/// τ = ⌈log₂ n⌉. For n = 2^τ the product of τ steps is J exactly; other n only
/// approach it (arXiv 2110.13363).
[[nodiscard]] Schedule one_peer_exponential(int size);

/// In step t each rank sends to one out-neighbour of `graph`, the (t mod
/// out-degree)-th in clockwise order from itself, and gives the weight
/// 1/(1 + number received) to itself and to each value that arrives. Rows sum
/// to 1; columns only where everybody receives equally many. The period is the
/// least common multiple of the out-degrees. Weights of `graph` are not read.
/// Answers to BlueFog's `GetDynamicOnePeerSendRecvRanks`.
/// @throws InvalidArgument if that period does not fit 64 bits.
[[nodiscard]] Schedule one_peer(const MixingMatrix& graph);

}  // namespace topology
}  // namespace bluefog
