#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "topology/schedule.hpp"

namespace bluefog::topology {

/// The partners of a rank in one step of CECA.
enum class CecaPorts {
  /// Each rank sends to one rank and hears another; any number of ranks.
  Two,
  /// Each rank exchanges with one rank; an even number of ranks.
  One,
};

/// One step of CECA, the same for all ranks. With m the message that arrives,
///
///     d ← own · d + (1 − own) · m        (averages that include the rank's own value)
///     s ← others · s + (1 − others) · m  (averages of the others only)
struct CecaStep {
  /// Whether the ranks send d, or s.
  enum class Sends {
    WithOwn,     ///< d
    WithoutOwn,  ///< s
  };

  Sends sends = Sends::WithOwn;  ///< what m is, of the rank that sends it
  /// The distance to the sender, modulo n. Two: rank − distance; One: rank + distance for even
  /// ranks, rank − distance for odd ones.
  int distance = 0;
  double own = 0.5;     ///< the share of d that is kept
  double others = 0.0;  ///< the share of s that is kept

  /// Memberwise.
  friend bool operator==(const CecaStep&, const CecaStep&) = default;
};

/// Exact averages of any number of ranks in τ = ⌈log₂ n⌉ steps, with one message sent and one
/// heard per rank and step: as many as one-peer exponential needs for n = 2^τ.
///
/// Each rank holds two variables, so that no mixing matrix of n ranks describes CECA and no plan
/// for one buffer can run it: d_i, the mean of its own value and of c others, and s_i, the mean of
/// those c others. c starts at 0 (s is then not read) and takes the values of the leading binary
/// digits of n − 1: with a digit 1 everybody sends d and c becomes 2c + 1, with a digit 0 s and 2c.
/// After τ steps c = n − 1 and d_i is the mean of all. Senders are at such distances that no value
/// counts twice: with two ports, d_i covers ranks i − c … i.
///
/// Three views serve three uses: `exchange` is the traffic, n × n permutations that a
/// `neighbor_allreduce` can carry; `stacked_matrix` is the whole step on (d, s), 2n × 2n; `apply`
/// computes it. Every exchange is doubly stochastic. The rows of the stacked matrices sum to 1,
/// their columns do not: single steps keep a consensus, only whole periods keep the mean.
///
/// Immutable; all members may be called from several threads.
/// Source: Ding et al., arXiv 2306.00256 (DSGD-CECA-2P and DSGD-CECA-1P); the count of others
/// follows Bar-Noy, Kipnis and Schieber's census functions (1993).
class Ceca {
 public:
  /// The steps for `size` ranks. Cost: O(log n).
  /// @throws InvalidArgument if `size` < 1, or with one port if it is odd and above 1.
  explicit Ceca(int size, CecaPorts ports = CecaPorts::Two);

  /// The number of ranks, n.
  [[nodiscard]] int size() const noexcept { return size_; }
  /// The partners of a rank in each step, as given to the constructor.
  [[nodiscard]] CecaPorts ports() const noexcept { return ports_; }
  /// One period, τ steps; none for one rank.
  [[nodiscard]] const std::vector<CecaStep>& steps() const noexcept { return steps_; }

  /// The rank that `rank` hears in a step of the period.
  /// @throws InvalidArgument if `rank` is out of range or `step` outside 0 … τ − 1.
  [[nodiscard]] int source(int rank, int step) const;

  /// W(t) of the messages: self weight 0 and weight 1 for the source, so that an out-of-place
  /// `neighbor_allreduce` of d or s returns m. One rank: the identity.
  [[nodiscard]] Schedule exchange() const;

  /// The step on the vector (d_0 … d_{n−1}, s_0 … s_{n−1}). @throws InvalidArgument as `source`.
  [[nodiscard]] MixingMatrix stacked_matrix(int step) const;

  /// One step in place. Cost: O(n).
  /// @param with_own d, of n values. @param without_own s, of n values; read from step 1 on.
  /// @throws InvalidArgument as `source`, or if a span has another length.
  void apply(int step, std::span<double> with_own, std::span<double> without_own) const;

 private:
  void check_step(int step) const;
  [[nodiscard]] int source_in(int rank, const CecaStep& step) const;

  int size_;
  CecaPorts ports_;
  std::vector<CecaStep> steps_;
};

}  // namespace bluefog::topology
