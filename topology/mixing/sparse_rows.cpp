#include "topology/mixing/sparse_rows.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace bluefog {

SparseRows::SparseRows(const std::vector<std::vector<WeightedRank>>& rows) {
  std::size_t count = 0;
  for (const auto& row : rows) {
    count += row.size();
  }
  entries_.reserve(count);
  begin_.reserve(rows.size() + 1);
  for (const auto& row : rows) {
    append(row);
  }
}

void SparseRows::append(std::span<const WeightedRank> row) {
  entries_.insert(entries_.end(), row.begin(), row.end());
  begin_.push_back(entries_.size());
}

SparseRows SparseRows::transposed() const {
  SparseRows columns;
  columns.begin_.assign(begin_.size(), 0);
  for (const WeightedRank& entry : entries_) {
    ++columns.begin_[entry.rank + 1];
  }
  for (std::size_t i = 1; i < columns.begin_.size(); ++i) {
    columns.begin_[i] += columns.begin_[i - 1];
  }
  columns.entries_.resize(entries_.size());
  std::vector<std::size_t> next = columns.begin_;
  for (std::size_t row = 0; row + 1 < begin_.size(); ++row) {
    for (std::size_t k = begin_[row]; k < begin_[row + 1]; ++k) {
      columns.entries_[next[entries_[k].rank]++] = {static_cast<int>(row), entries_[k].weight};
    }
  }
  return columns;
}

void RowAccumulator::add(int column, double value) {
  if (!used_[column]) {
    used_[column] = 1;
    columns_.push_back(column);
  }
  values_[column] += value;
}

std::vector<WeightedRank> RowAccumulator::take() {
  std::ranges::sort(columns_);
  std::vector<WeightedRank> row;
  row.reserve(columns_.size());
  for (const int column : columns_) {
    row.push_back({column, std::exchange(values_[column], 0.0)});
    used_[column] = 0;
  }
  columns_.clear();
  return row;
}

double largest_difference(std::span<const WeightedRank> a, std::span<const WeightedRank> b) {
  double largest = 0.0;
  std::size_t i = 0;
  std::size_t j = 0;
  while (i < a.size() || j < b.size()) {
    const bool take_a = j == b.size() || (i < a.size() && a[i].rank <= b[j].rank);
    const bool take_b = i == a.size() || (j < b.size() && b[j].rank <= a[i].rank);
    const double left = take_a ? a[i++].weight : 0.0;
    const double right = take_b ? b[j++].weight : 0.0;
    largest = std::max(largest, std::abs(left - right));
  }
  return largest;
}

}  // namespace bluefog
