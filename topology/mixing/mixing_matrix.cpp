#include "topology/mixing_matrix.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "bluefog_cpp/error.hpp"
#include "topology/mixing/mixing_matrix_storage.hpp"

namespace bluefog {

namespace {

constexpr int kMaxDenseSize = 20'000;

std::vector<WeightedRank> shifted(const TranslationPattern& pattern, int rank) {
  std::vector<WeightedRank> list;
  list.reserve(pattern.entries.size());
  for (const WeightedRank& entry : pattern.entries) {
    list.push_back({pattern.shift(rank, entry.rank), entry.weight});
  }
  std::ranges::sort(list, {}, &WeightedRank::rank);
  return list;
}

std::vector<int> ranks_without(std::span<const WeightedRank> list, int self) {
  std::vector<int> ranks;
  ranks.reserve(list.size());
  for (const WeightedRank& entry : list) {
    if (entry.rank != self) {
      ranks.push_back(entry.rank);
    }
  }
  return ranks;
}

/// One weight for everybody: all ranks get the same sum.
bool is_complete(const TranslationPattern& pattern) {
  const double weight = pattern.entries.empty() ? 0.0 : pattern.entries.front().weight;
  return std::ssize(pattern.entries) == pattern.size() &&
         std::ranges::all_of(pattern.entries,
                             [&](const WeightedRank& entry) { return entry.weight == weight; });
}

double sum_of(std::span<const WeightedRank> list) {
  double sum = 0.0;
  for (const WeightedRank& entry : list) {
    sum += entry.weight;
  }
  return sum;
}

bool all_one(const std::vector<double>& sums, double tolerance) {
  return std::ranges::all_of(sums, [&](double sum) { return std::abs(sum - 1.0) <= tolerance; });
}

}  // namespace

MixingMatrix::MixingMatrix(std::shared_ptr<const Storage> storage) : storage_(std::move(storage)) {}

int MixingMatrix::size() const noexcept { return storage_->size; }

std::int64_t MixingMatrix::entry_count() const noexcept {
  if (!storage_->pattern) {
    return storage_->rows.entry_count();
  }
  return static_cast<std::int64_t>(storage_->pattern->entries.size()) * storage_->size;
}

const TranslationPattern* MixingMatrix::pattern() const noexcept {
  return storage_->pattern ? &*storage_->pattern : nullptr;
}

void MixingMatrix::check_rank(int rank) const {
  if (rank >= 0 && rank < size()) {
    return;
  }
  throw InvalidArgument(
      fmt::format("mixing matrix: asked for rank {}, expected 0 to {}", rank, size() - 1));
}

std::vector<WeightedRank> MixingMatrix::row(int rank) const {
  check_rank(rank);
  if (storage_->pattern) {
    return shifted(*storage_->pattern, rank);
  }
  const std::span<const WeightedRank> list = storage_->rows[rank];
  return {list.begin(), list.end()};
}

std::vector<WeightedRank> MixingMatrix::column(int rank) const {
  check_rank(rank);
  if (storage_->pattern) {
    return shifted(*storage_->pattern_transposed, rank);
  }
  const std::span<const WeightedRank> list = storage_->columns[rank];
  return {list.begin(), list.end()};
}

double MixingMatrix::weight(int i, int j) const {
  check_rank(j);
  const std::vector<WeightedRank> list = row(i);
  const auto found = std::ranges::lower_bound(list, j, {}, &WeightedRank::rank);
  return found != list.end() && found->rank == j ? found->weight : 0.0;
}

std::vector<int> MixingMatrix::in_neighbors(int rank) const {
  return ranks_without(row(rank), rank);
}

std::vector<int> MixingMatrix::out_neighbors(int rank) const {
  return ranks_without(column(rank), rank);
}

StepLinks MixingMatrix::Storage::links_of(int rank) const {
  if (pattern) {
    return {.sources = ranks_without(shifted(*pattern, rank), rank),
            .destinations = ranks_without(shifted(*pattern_transposed, rank), rank)};
  }
  return {.sources = ranks_without(rows[rank], rank),
          .destinations = ranks_without(columns[rank], rank)};
}

NeighborPlan MixingMatrix::plan_for(int rank) const {
  NeighborPlan plan{
      .rank = rank, .size = size(), .self_weight = 0.0, .sources = {}, .destinations = {}};
  for (const WeightedRank& entry : row(rank)) {
    if (entry.rank == rank) {
      plan.self_weight = entry.weight;
    } else {
      plan.sources.push_back(entry);
    }
  }
  for (const int destination : out_neighbors(rank)) {
    plan.destinations.push_back({destination, 1.0});
  }
  plan.step = {storage_, &storage_->step};
  return plan;
}

std::vector<double> MixingMatrix::row_sums() const {
  if (storage_->pattern) {
    return std::vector<double>(size(), sum_of(storage_->pattern->entries));
  }
  std::vector<double> sums(size());
  for (int rank = 0; rank < size(); ++rank) {
    sums[rank] = sum_of(storage_->rows[rank]);
  }
  return sums;
}

std::vector<double> MixingMatrix::column_sums() const { return transposed().row_sums(); }

bool MixingMatrix::is_row_stochastic(double tolerance) const {
  const std::span<const WeightedRank> entries =
      storage_->pattern ? std::span<const WeightedRank>(storage_->pattern->entries)
                        : storage_->rows.entries();
  return std::ranges::all_of(entries,
                             [](const WeightedRank& entry) { return entry.weight >= 0.0; }) &&
         all_one(row_sums(), tolerance);
}

bool MixingMatrix::is_column_stochastic(double tolerance) const {
  return transposed().is_row_stochastic(tolerance);
}

bool MixingMatrix::is_doubly_stochastic(double tolerance) const {
  return is_row_stochastic(tolerance) && is_column_stochastic(tolerance);
}

bool MixingMatrix::keeps_mean(double tolerance) const { return all_one(column_sums(), tolerance); }

bool MixingMatrix::is_symmetric(double tolerance) const {
  if (storage_->pattern) {
    return largest_difference(storage_->pattern->entries, storage_->pattern_transposed->entries) <=
           tolerance;
  }
  for (int rank = 0; rank < size(); ++rank) {
    if (largest_difference(storage_->rows[rank], storage_->columns[rank]) > tolerance) {
      return false;
    }
  }
  return true;
}

MixingMatrix MixingMatrix::transposed() const {
  auto storage = std::make_shared<Storage>();
  storage->size = size();
  storage->pattern = storage_->pattern_transposed;
  storage->pattern_transposed = storage_->pattern;
  storage->rows = storage_->columns;
  storage->columns = storage_->rows;
  return MixingMatrix(std::move(storage));
}

MixingMatrix MixingMatrix::after(const MixingMatrix& first) const {
  if (first.size() != size()) {
    throw InvalidArgument(
        fmt::format("composition of mixing matrices: {} ranks after {}", size(), first.size()));
  }
  if (pattern() && first.pattern() && pattern()->shape == first.pattern()->shape) {
    return from_pattern(compose(*pattern(), *first.pattern()));
  }
  auto storage = std::make_shared<Storage>();
  storage->size = size();
  RowAccumulator accumulator(size());
  for (int rank = 0; rank < size(); ++rank) {
    for (const WeightedRank& outer : row(rank)) {
      for (const WeightedRank& inner : first.row(outer.rank)) {
        accumulator.add(inner.rank, outer.weight * inner.weight);
      }
    }
    storage->rows.append(accumulator.take());
  }
  storage->columns = storage->rows.transposed();
  return MixingMatrix(std::move(storage));
}

void MixingMatrix::apply(std::span<const double> x, std::span<double> y) const {
  if (x.size() != static_cast<std::size_t>(size()) || y.size() != x.size()) {
    throw InvalidArgument(fmt::format("mixing matrix of {} ranks applied to {} values into {}",
                                      size(), x.size(), y.size()));
  }
  if (storage_->pattern && is_complete(*storage_->pattern)) {
    const double sum = std::accumulate(x.begin(), x.end(), 0.0);
    std::ranges::fill(y, storage_->pattern->entries.front().weight * sum);
    return;
  }
  for (int rank = 0; rank < size(); ++rank) {
    double sum = 0.0;
    if (storage_->pattern) {
      for (const WeightedRank& entry : storage_->pattern->entries) {
        sum += entry.weight * x[storage_->pattern->shift(rank, entry.rank)];
      }
    } else {
      for (const WeightedRank& entry : storage_->rows[rank]) {
        sum += entry.weight * x[entry.rank];
      }
    }
    y[rank] = sum;
  }
}

std::vector<double> MixingMatrix::to_dense() const {
  if (size() > kMaxDenseSize) {
    throw InvalidArgument(fmt::format(
        "dense form of a mixing matrix: {} ranks, expected at most {}", size(), kMaxDenseSize));
  }
  std::vector<double> dense(static_cast<std::size_t>(size()) * size(), 0.0);
  for (int rank = 0; rank < size(); ++rank) {
    for (const WeightedRank& entry : row(rank)) {
      dense[static_cast<std::size_t>(rank) * size() + entry.rank] = entry.weight;
    }
  }
  return dense;
}

bool operator==(const MixingMatrix& a, const MixingMatrix& b) {
  if (a.storage_ == b.storage_) {
    return true;
  }
  if (a.size() != b.size() || a.entry_count() != b.entry_count()) {
    return false;
  }
  if (a.pattern() && b.pattern() && a.pattern()->shape == b.pattern()->shape) {
    return *a.pattern() == *b.pattern();
  }
  for (int rank = 0; rank < a.size(); ++rank) {
    if (a.row(rank) != b.row(rank)) {
      return false;
    }
  }
  return true;
}

}  // namespace bluefog
