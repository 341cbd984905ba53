#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "bluefog_cpp/weighted_rank.hpp"

namespace bluefog {

/// Rows of (column, value) one after the other in one array, each by rising
/// column: the storage of a `MixingMatrix`.
class SparseRows {
 public:
  SparseRows() = default;
  explicit SparseRows(const std::vector<std::vector<WeightedRank>>& rows);

  void append(std::span<const WeightedRank> row);

  [[nodiscard]] std::span<const WeightedRank> operator[](int row) const {
    return std::span(entries_).subspan(begin_[row], begin_[row + 1] - begin_[row]);
  }
  [[nodiscard]] std::span<const WeightedRank> entries() const noexcept { return entries_; }
  [[nodiscard]] std::int64_t entry_count() const noexcept {
    return static_cast<std::int64_t>(entries_.size());
  }
  /// Columns as rows; of a square matrix.
  [[nodiscard]] SparseRows transposed() const;

 private:
  std::vector<std::size_t> begin_ = {0};
  std::vector<WeightedRank> entries_;
};

/// Adds up one row of a product, column by column.
class RowAccumulator {
 public:
  explicit RowAccumulator(int size) : values_(size, 0.0), used_(size, 0) {}

  void add(int column, double value);
  /// The row by rising column; the accumulator is empty again.
  [[nodiscard]] std::vector<WeightedRank> take();

 private:
  std::vector<double> values_;
  std::vector<char> used_;
  std::vector<int> columns_;
};

/// Largest |a_j − b_j| of two rows by rising column; absent entries are 0.
[[nodiscard]] double largest_difference(std::span<const WeightedRank> a,
                                        std::span<const WeightedRank> b);

}  // namespace bluefog
