#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "bluefog_cpp/weighted_rank.hpp"
#include "topology/neighbor_plan.hpp"
#include "topology/translation_pattern.hpp"

namespace bluefog {

/// An edge of a communication graph: `source` sends to `destination`, which
/// gives the value the weight W(destination, source). An edge from a rank to
/// itself holds its self weight.
struct WeightedEdge {
  int source = 0;       ///< the rank that sends
  int destination = 0;  ///< the rank that receives, and multiplies
  double weight = 1.0;  ///< W(destination, source), of any sign

  /// Memberwise.
  friend bool operator==(const WeightedEdge&, const WeightedEdge&) = default;
};

/// The weights of one averaging step: x ← W x, where W(i, j) is the weight
/// that rank i gives to rank j's value. Row i is what rank i computes.
///
/// An immutable value; copies share memory, and every const member may be
/// called from several threads. It is stored as sparse rows, or as one
/// `TranslationPattern` where all rows are shifts of each other, so that
/// regular graphs of 100,000 ranks stay small. An entry that was given with
/// weight 0 is an edge: the value is sent and then counts for nothing.
class MixingMatrix {
 public:
  /// I: every rank keeps its own value.
  /// @throws InvalidArgument if `size` < 1.
  static MixingMatrix identity(int size);

  /// W from its rows.
  /// @param rows `rows[i]` lists (j, W(i, j)) in any order, the self weight as j = i.
  /// @throws InvalidArgument naming the row, if it names a rank twice or one
  ///   outside 0 … rows.size() − 1, or has a weight that is not finite.
  static MixingMatrix from_rows(std::vector<std::vector<WeightedRank>> rows);

  /// W from its entries, in any order; ranks without a loop get no self weight.
  /// @throws InvalidArgument naming the edge, as `from_rows`.
  static MixingMatrix from_edges(int size, std::span<const WeightedEdge> edges);

  /// W from all of its values.
  /// @param row_major size · size values; zeros are no edges.
  static MixingMatrix from_dense(int size, std::span<const double> row_major);

  /// W from the one row that all others are shifts of. Cost: that row.
  /// @throws InvalidArgument if an offset is outside the grid or a weight is
  ///   not finite.
  static MixingMatrix from_pattern(const TranslationPattern& pattern);

  /// W from the parts of all ranks, as callers build them: W(i, j) is the weight that i gives to
  /// what j sends, times the weight that j sends it with.
  /// @param plans `plans[i]` is rank i's part.
  /// @throws InvalidArgument if a part is wrong by itself, has another size than the number of
  ///   parts, or stands at another place than its rank; MismatchError naming edges that only one of
  ///   their ends knows.
  static MixingMatrix from_plans(std::span<const NeighborPlan> plans);

  /// The number of ranks.
  [[nodiscard]] int size() const noexcept;
  /// Number of entries, the diagonal included.
  [[nodiscard]] std::int64_t entry_count() const noexcept;
  /// The row that all others are shifts of, or null where none is known.
  [[nodiscard]] const TranslationPattern* pattern() const noexcept;

  /// (j, W(rank, j)) by rising j, the self weight included.
  /// @throws InvalidArgument if `rank` is outside 0 … size() − 1; so do all
  ///   members below that take a rank.
  [[nodiscard]] std::vector<WeightedRank> row(int rank) const;
  /// (i, W(i, rank)) by rising i, the self weight included.
  [[nodiscard]] std::vector<WeightedRank> column(int rank) const;
  /// W(i, j); 0 where there is no entry.
  [[nodiscard]] double weight(int i, int j) const;

  /// Ranks that `rank` hears, rising, without itself.
  [[nodiscard]] std::vector<int> in_neighbors(int rank) const;
  /// Ranks that hear `rank`, rising, without itself.
  [[nodiscard]] std::vector<int> out_neighbors(int rank) const;
  /// The plan of this rank: sources with W(rank, j), destinations with weight 1.
  [[nodiscard]] NeighborPlan plan_for(int rank) const;

  /// Σ_j W(i, j) for every i.
  [[nodiscard]] std::vector<double> row_sums() const;
  /// Σ_i W(i, j) for every j.
  [[nodiscard]] std::vector<double> column_sums() const;
  /// True if every weight is at least 0 and every row sums to 1 ± tolerance.
  [[nodiscard]] bool is_row_stochastic(double tolerance = 1e-9) const;
  /// True if every weight is at least 0 and every column sums to 1 ± tolerance.
  [[nodiscard]] bool is_column_stochastic(double tolerance = 1e-9) const;
  /// True if every weight is at least 0 and all rows and columns sum to 1 ± tolerance.
  [[nodiscard]] bool is_doubly_stochastic(double tolerance = 1e-9) const;
  /// True if every column sums to 1 ± tolerance: the mean of the values is the same before and
  /// after; after `without`, the mean of the ranks that are left.
  [[nodiscard]] bool keeps_mean(double tolerance = 1e-9) const;
  /// True if |W(i, j) − W(j, i)| ≤ tolerance everywhere.
  [[nodiscard]] bool is_symmetric(double tolerance = 1e-14) const;

  /// Wᵀ: every edge the other way round, with its weight.
  [[nodiscard]] MixingMatrix transposed() const;
  /// The step `first`, then this one: the matrix product (*this) · first.
  /// @throws InvalidArgument if the sizes differ.
  [[nodiscard]] MixingMatrix after(const MixingMatrix& first) const;

  /// W after these ranks are lost: what others heard through them they hear from each other. With
  /// S the ranks that are left and D the lost ones, the stochastic complement
  ///
  ///     W′ = W_SS + W_SD (I − W_DD)⁻¹ W_DS,
  ///
  /// formed by removing d ∈ D one by one, by rising rank:
  ///
  ///     w_ij ← w_ij + w_id w_dj / (1 − w_dd),     1 − w_dd = Σ_{j≠d} w_dj.
  ///
  /// Ranks keep their numbers; a lost one has its self weight 1 and no edge. Rows that sum to 1 go
  /// on to do so, in a doubly stochastic W the columns too, and 1 − ‖W′ − J‖₂ among the ranks that
  /// are left is no less than 1 − ‖W − J‖₂. If column d sums to 1 and row d does not (push-sum),
  /// 1 − w_dd is Σ_{i≠d} w_id, and columns keep their sums. All ranks that have this W get the same
  /// bits, in whatever order `ranks` lists them; some first and others later agree up to rounding.
  ///
  /// A rank d for which |1 − w_dd| < 1e-12, as the second of two that only hear each other, is
  /// closed: it is dropped, and a weight that others gave it goes back to their self weight (by
  /// columns: what it heard, to those it heard). If that was not 0, `keeps_mean` is false.
  ///
  /// @param ranks distinct; none gives W itself.
  /// @throws InvalidArgument if a rank is outside 0 … size() − 1 or there twice, if none is left, if
  ///   neither row nor column of one sums to 1 ± 1e-6, or if W, or what the neighbours of one rank
  ///   would hear, has more than 100 million entries.
  /// Cost: O(entries), and p · q new entries for each rank that hears p and is heard by q.
  /// Source: C. D. Meyer, Stochastic complementation, SIAM Review 31 (1989), equation (2.1).
  [[nodiscard]] MixingMatrix without(std::span<const int> ranks) const;
  /// Rows and columns of these ranks alone, which are numbered anew by rising rank: the principal
  /// submatrix. After `without`, that is the W of those that are left.
  /// @param ranks distinct, in any order, at least one.
  /// @throws InvalidArgument as `without`, and if there is none. Cost: O(their entries + size()).
  [[nodiscard]] MixingMatrix among(std::span<const int> ranks) const;

  /// y ← W x. @throws InvalidArgument unless both have size() values.
  void apply(std::span<const double> x, std::span<double> y) const;
  /// W in row-major order. @throws InvalidArgument beyond 20,000 ranks.
  [[nodiscard]] std::vector<double> to_dense() const;

  /// Equal sizes and entries, however they are stored.
  friend bool operator==(const MixingMatrix& a, const MixingMatrix& b);

 private:
  struct Storage;
  explicit MixingMatrix(std::shared_ptr<const Storage> storage);
  void check_rank(int rank) const;

  std::shared_ptr<const Storage> storage_;
};

}  // namespace bluefog
