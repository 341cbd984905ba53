#include <fmt/format.h>

#include <memory>
#include <utility>

#include "bluefog_cpp/error.hpp"
#include "topology/mixing/mixing_matrix_storage.hpp"
#include "topology/mixing/rank_list.hpp"
#include "topology/mixing/stochastic_complement.hpp"
#include "topology/mixing_matrix.hpp"

namespace bluefog {
namespace {

/// A pattern's entries take no memory, those of W′ do.
void require_room(const MixingMatrix& matrix) {
  if (matrix.entry_count() > StochasticComplement::kMaxEntries) {
    throw InvalidArgument(
        fmt::format("mixing matrix without ranks: {} entries, expected at most {}",
                    matrix.entry_count(), StochasticComplement::kMaxEntries));
  }
}

}  // namespace

MixingMatrix MixingMatrix::without(std::span<const int> ranks) const {
  const std::vector<int> lost = lost_ranks("mixing matrix without ranks", ranks, size());
  if (lost.empty()) {
    return *this;
  }
  require_room(*this);
  StochasticComplement complement(*this);
  for (const int rank : lost) {
    complement.remove(rank);
  }
  auto storage = std::make_shared<Storage>();
  storage->size = size();
  for (int rank = 0; rank < size(); ++rank) {
    if (complement.count_of(rank) > 0) {
      storage->rows.append(complement.row(rank));
    } else {
      storage->rows.append(std::vector<WeightedRank>{{.rank = rank, .weight = 1.0}});
    }
  }
  storage->columns = storage->rows.transposed();
  return MixingMatrix(std::move(storage));
}

MixingMatrix MixingMatrix::among(std::span<const int> ranks) const {
  const std::vector<int> kept = kept_ranks("mixing matrix among ranks", ranks, size());
  if (std::ssize(kept) == size()) {
    return *this;
  }
  std::vector<int> places(static_cast<std::size_t>(size()), -1);
  for (std::size_t place = 0; place < kept.size(); ++place) {
    places[static_cast<std::size_t>(kept[place])] = static_cast<int>(place);
  }
  auto storage = std::make_shared<Storage>();
  storage->size = static_cast<int>(kept.size());
  for (const int rank : kept) {
    std::vector<WeightedRank> part;
    for (const WeightedRank& entry : row(rank)) {
      if (const int place = places[static_cast<std::size_t>(entry.rank)]; place >= 0) {
        part.push_back({.rank = place, .weight = entry.weight});
      }
    }
    storage->rows.append(part);
  }
  storage->columns = storage->rows.transposed();
  return MixingMatrix(std::move(storage));
}

}  // namespace bluefog
