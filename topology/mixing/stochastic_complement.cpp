#include "topology/mixing/stochastic_complement.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "bluefog_cpp/error.hpp"

namespace bluefog {
namespace {

/// Rows and columns whose sums are this near to 1 are taken for averages, as `bftopo check` does.
constexpr double kUnitSum = 1e-6;
/// Sums that differ by less are equally near to 1.
constexpr double kSameSum = 1e-9;
/// A rank that gives others less is closed: nothing goes through it.
constexpr double kClosed = 1e-12;

/// `row` + `factor` · `added` / `divisor`; a product of weights is formed first, so that equal
/// pairs of weights give equal bits and a symmetric W stays symmetric.
std::vector<WeightedRank> sum_of(const std::vector<WeightedRank>& row,
                                 const std::vector<WeightedRank>& added, double factor,
                                 double divisor) {
  std::vector<WeightedRank> sum;
  sum.reserve(row.size() + added.size());
  auto next = row.begin();
  for (const WeightedRank& entry : added) {
    const double part = factor * entry.weight / divisor;
    if (part == 0.0) {
      continue;
    }
    while (next != row.end() && next->rank < entry.rank) {
      sum.push_back(*next++);
    }
    const bool has_entry = next != row.end() && next->rank == entry.rank;
    sum.push_back({.rank = entry.rank, .weight = has_entry ? (next++)->weight + part : part});
  }
  sum.insert(sum.end(), next, row.end());
  return sum;
}

}  // namespace

StochasticComplement::StochasticComplement(MixingMatrix matrix) : matrix_(std::move(matrix)) {}

StochasticComplement::StochasticComplement(MixingMatrix matrix, std::vector<int> counts)
    : matrix_(std::move(matrix)), counts_(std::move(counts)) {}

int StochasticComplement::count_of(int rank) const {
  const int count = counts_.empty() ? 1 : counts_[static_cast<std::size_t>(rank)];
  const auto removed = removed_.find(rank);
  return removed == removed_.end() ? count : count - removed->second;
}

std::vector<WeightedRank> StochasticComplement::row(int rank) const {
  const auto changed = changed_.find(rank);
  return changed == changed_.end() ? matrix_.row(rank) : changed->second;
}

std::vector<WeightedRank> StochasticComplement::column(int rank) const {
  std::vector<WeightedRank> column = matrix_.column(rank);
  std::erase_if(column, [&](const WeightedRank& entry) { return changed_.contains(entry.rank); });
  for (const auto& [reader, row] : changed_) {
    const auto found = std::ranges::lower_bound(row, rank, {}, &WeightedRank::rank);
    if (found != row.end() && found->rank == rank) {
      column.push_back({.rank = reader, .weight = found->weight});
    }
  }
  std::ranges::sort(column, {}, &WeightedRank::rank);
  return column;
}

StochasticComplement::Departure StochasticComplement::departure_of(int rank) const {
  Departure departure{.rank = rank, .row = row(rank), .column = column(rank)};
  const auto sum = [&](const std::vector<WeightedRank>& list, int own) {
    double total = 0.0;
    for (const WeightedRank& entry : list) {
      total += entry.weight * (count_of(entry.rank) - (entry.rank == rank ? own : 0));
    }
    return total;
  };
  const double row_sum = sum(departure.row, 0);
  const double column_sum = sum(departure.column, 0);
  const double row_error = std::abs(row_sum - 1.0);
  const double column_error = std::abs(column_sum - 1.0);
  if (!(std::min(row_error, column_error) <= kUnitSum)) {
    throw InvalidArgument(
        fmt::format("mixing matrix without rank {}: its row sums to {:.9g} and its column to "
                    "{:.9g}, expected 1 of one of them",
                    rank, row_sum, column_sum));
  }
  departure.kept = row_error <= column_error + kSameSum ? Sums::Rows : Sums::Columns;
  // Without the rank's own weight: 1 − W(rank, rank) would cancel where that is near 1.
  departure.shared = sum(departure.kept == Sums::Rows ? departure.row : departure.column, 1);
  return departure;
}

void StochasticComplement::remove(int rank) {
  const Departure departure = departure_of(rank);
  if (std::ssize(departure.row) * std::ssize(departure.column) > kMaxEntries) {
    throw InvalidArgument(fmt::format(
        "mixing matrix without rank {}: it hears {} ranks and {} hear it, all of which would hear "
        "each other, expected at most {} such pairs",
        rank, departure.row.size(), departure.column.size(), kMaxEntries));
  }
  ++removed_[rank];
  if (std::abs(departure.shared) < kClosed) {
    give_back(departure);
  } else {
    pass_on(departure);
  }
  if (count_of(rank) == 0) {
    drop(rank, departure.column);
  }
}

/// w′_ij = w_ij + w_id w_dj / (1 − w_dd) for all who hear d.
void StochasticComplement::pass_on(const Departure& departure) {
  for (const WeightedRank& reader : departure.column) {
    if (count_of(reader.rank) > 0) {
      changed_[reader.rank] =
          sum_of(row(reader.rank), departure.row, reader.weight, departure.shared);
    }
  }
}

/// Nothing goes through a closed rank. Rows: d hears nobody, and who hears d keeps that weight for
/// itself. Columns: nobody hears d, and whom d hears keeps it.
void StochasticComplement::give_back(const Departure& departure) {
  for (const WeightedRank& end : departure.kept == Sums::Rows ? departure.column : departure.row) {
    if (const int count = count_of(end.rank); count > 0) {
      changed_[end.rank] =
          sum_of(row(end.rank), {{.rank = end.rank, .weight = 1.0}}, end.weight, count);
    }
  }
}

void StochasticComplement::drop(int rank, const std::vector<WeightedRank>& readers) {
  for (const WeightedRank& reader : readers) {
    std::vector<WeightedRank> rest = row(reader.rank);
    std::erase_if(rest, [rank](const WeightedRank& entry) { return entry.rank == rank; });
    changed_[reader.rank] = std::move(rest);
  }
  changed_[rank].clear();
}

}  // namespace bluefog
