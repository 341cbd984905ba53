#include "topology/lazy_mixing.hpp"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "bluefog_cpp/error.hpp"

namespace bluefog::topology {
namespace {

/// `row` of W as that of s I + (1 − s) W; `self` is the diagonal's place.
std::vector<WeightedRank> lazy_row(std::vector<WeightedRank> row, int self, double self_share) {
  bool has_self = false;
  for (WeightedRank& entry : row) {
    entry.weight *= 1.0 - self_share;
    if (entry.rank == self) {
      entry.weight += self_share;
      has_self = true;
    }
  }
  if (!has_self && self_share > 0.0) {
    row.push_back({self, self_share});
  }
  return row;
}

}  // namespace

MixingMatrix lazy(const MixingMatrix& matrix, double self_share) {
  if (!(self_share >= 0.0 && self_share < 1.0)) {
    throw InvalidArgument(
        fmt::format("lazy: expected a share from 0 to below 1, found {}", self_share));
  }
  if (const TranslationPattern* const pattern = matrix.pattern()) {
    return MixingMatrix::from_pattern(
        {.shape = pattern->shape, .entries = lazy_row(pattern->entries, 0, self_share)});
  }
  std::vector<std::vector<WeightedRank>> rows;
  rows.reserve(static_cast<std::size_t>(matrix.size()));
  for (int rank = 0; rank < matrix.size(); ++rank) {
    rows.push_back(lazy_row(matrix.row(rank), rank, self_share));
  }
  return MixingMatrix::from_rows(std::move(rows));
}

}  // namespace bluefog::topology
