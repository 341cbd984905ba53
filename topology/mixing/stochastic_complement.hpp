#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "bluefog_cpp/weighted_rank.hpp"
#include "topology/mixing_matrix.hpp"

namespace bluefog {

/// W while ranks are removed from it, one by one (`MixingMatrix::without`): the rows that change,
/// beside the W that they replace.
///
/// A rank may stand for several that are alike, as a machine does for its ranks: W(i, j) is then
/// the weight for each one of those, and each is removed by itself.
class StochasticComplement {
 public:
  /// Most entries that the neighbours of one rank may get, and that a result may have: 1.6 GB.
  static constexpr std::int64_t kMaxEntries = 100'000'000;

  /// Each rank of W stands for itself.
  explicit StochasticComplement(MixingMatrix matrix);
  /// Rank i of W stands for `counts[i]` ranks, 1 or more.
  StochasticComplement(MixingMatrix matrix, std::vector<int> counts);

  /// Removes `rank`, or one of those that it stands for. Others go on to hear what they heard
  /// through it.
  /// @throws InvalidArgument if neither its row nor its column sums to 1, or if its neighbours' new
  ///   rows would be too long to hold.
  void remove(int rank);

  /// The ranks that `rank` still stands for; 0 if it is lost.
  [[nodiscard]] int count_of(int rank) const;
  /// The row as it is now, without ranks that are lost; empty if `rank` is.
  [[nodiscard]] std::vector<WeightedRank> row(int rank) const;

 private:
  enum class Sums { Rows, Columns };
  /// A rank to remove, with what it hears and who hears it.
  struct Departure {
    int rank = 0;
    std::vector<WeightedRank> row{};
    std::vector<WeightedRank> column{};
    /// The sums that stay as they are.
    Sums kept = Sums::Rows;
    /// 1 − W(rank, rank).
    double shared = 0.0;
  };

  [[nodiscard]] std::vector<WeightedRank> column(int rank) const;
  [[nodiscard]] Departure departure_of(int rank) const;
  void pass_on(const Departure& departure);
  void give_back(const Departure& departure);
  void drop(int rank, const std::vector<WeightedRank>& readers);

  MixingMatrix matrix_;
  std::vector<int> counts_;
  std::map<int, int> removed_;
  std::map<int, std::vector<WeightedRank>> changed_;
};

}  // namespace bluefog
