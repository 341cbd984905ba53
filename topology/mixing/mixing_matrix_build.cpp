#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "bluefog_cpp/error.hpp"
#include "topology/mixing/mixing_matrix_storage.hpp"
#include "topology/mixing/plan_agreement.hpp"
#include "topology/mixing_matrix.hpp"

namespace bluefog {
namespace {

void require_size(int size) {
  if (size < 1) {
    throw InvalidArgument(fmt::format("mixing matrix: size is {}, expected at least 1", size));
  }
}

/// @param row sorted by rank.
void check_row(const std::vector<WeightedRank>& row, int rank, int size) {
  int previous = -1;
  for (const WeightedRank& entry : row) {
    if (entry.rank < 0 || entry.rank >= size) {
      throw InvalidArgument(fmt::format("mixing matrix: row {} names rank {}, expected 0 to {}",
                                        rank, entry.rank, size - 1));
    }
    if (entry.rank == previous) {
      throw InvalidArgument(
          fmt::format("mixing matrix: row {} names rank {} twice", rank, entry.rank));
    }
    if (!std::isfinite(entry.weight)) {
      throw InvalidArgument(fmt::format("mixing matrix: W({}, {}) is {}, expected a finite weight",
                                        rank, entry.rank, entry.weight));
    }
    previous = entry.rank;
  }
}

/// The weight with which `sender` sends to `reader`.
double sent_weight(const NeighborPlan& sender, int reader) {
  return std::ranges::lower_bound(sender.destinations, reader, {}, &WeightedRank::rank)->weight;
}

}  // namespace

MixingMatrix MixingMatrix::identity(int size) {
  require_size(size);
  return from_pattern({.shape = {size}, .entries = {{0, 1.0}}});
}

MixingMatrix MixingMatrix::from_rows(std::vector<std::vector<WeightedRank>> rows) {
  require_size(static_cast<int>(rows.size()));
  for (std::size_t rank = 0; rank < rows.size(); ++rank) {
    std::ranges::sort(rows[rank], {}, &WeightedRank::rank);
    check_row(rows[rank], static_cast<int>(rank), static_cast<int>(rows.size()));
  }
  auto storage = std::make_shared<Storage>();
  storage->size = static_cast<int>(rows.size());
  storage->rows = SparseRows(rows);
  storage->columns = storage->rows.transposed();
  return MixingMatrix(std::move(storage));
}

MixingMatrix MixingMatrix::from_edges(int size, std::span<const WeightedEdge> edges) {
  require_size(size);
  std::vector<std::vector<WeightedRank>> rows(size);
  for (const WeightedEdge& edge : edges) {
    if (edge.source < 0 || edge.source >= size || edge.destination < 0 ||
        edge.destination >= size) {
      throw InvalidArgument(fmt::format("mixing matrix: edge {} -> {}, expected ranks in 0 to {}",
                                        edge.source, edge.destination, size - 1));
    }
    rows[edge.destination].push_back({edge.source, edge.weight});
  }
  return from_rows(std::move(rows));
}

MixingMatrix MixingMatrix::from_dense(int size, std::span<const double> row_major) {
  require_size(size);
  if (row_major.size() != static_cast<std::size_t>(size) * size) {
    throw InvalidArgument(fmt::format("mixing matrix of {} ranks: expected {} values, got {}", size,
                                      static_cast<std::size_t>(size) * size, row_major.size()));
  }
  std::vector<std::vector<WeightedRank>> rows(size);
  for (int i = 0; i < size; ++i) {
    for (int j = 0; j < size; ++j) {
      const double value = row_major[static_cast<std::size_t>(i) * size + j];
      if (value != 0.0) {
        rows[i].push_back({j, value});
      }
    }
  }
  return from_rows(std::move(rows));
}

MixingMatrix MixingMatrix::from_pattern(const TranslationPattern& pattern) {
  auto storage = std::make_shared<Storage>();
  storage->pattern = TranslationPattern::make(pattern.shape, pattern.entries);
  for (const WeightedRank& entry : storage->pattern->entries) {
    if (!std::isfinite(entry.weight)) {
      throw InvalidArgument(
          fmt::format("translation pattern: offset {} has the weight {}, expected a finite one",
                      entry.rank, entry.weight));
    }
  }
  storage->pattern_transposed = storage->pattern->transposed();
  storage->size = storage->pattern->size();
  return MixingMatrix(std::move(storage));
}

MixingMatrix MixingMatrix::from_plans(std::span<const NeighborPlan> plans) {
  check_plans_agree(plans);
  std::vector<std::vector<WeightedRank>> rows(plans.size());
  for (std::size_t rank = 0; rank < plans.size(); ++rank) {
    const NeighborPlan& plan = plans[rank];
    if (plan.self_weight != 0.0) {
      rows[rank].push_back({plan.rank, plan.self_weight});
    }
    for (const WeightedRank& source : plan.sources) {
      const double sent = sent_weight(plans[static_cast<std::size_t>(source.rank)], plan.rank);
      rows[rank].push_back({source.rank, source.weight * sent});
    }
  }
  return from_rows(std::move(rows));
}

}  // namespace bluefog
