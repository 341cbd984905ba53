#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

#include "bluefog_cpp/engine/exchange.hpp"
#include "bluefog_cpp/weighted_rank.hpp"
#include "ops/sums/operand.hpp"

namespace bluefog::ops {

/// The place of `rank` among `sources`, which rise, and itself.
[[nodiscard]] inline std::size_t place_among(std::span<const WeightedRank> sources, int rank) {
  return static_cast<std::size_t>(std::ranges::lower_bound(sources, rank, {}, &WeightedRank::rank) -
                                  sources.begin());
}

/// Lists what a row of the mixing matrix sums, by rising rank: this rank's own value at `place`,
/// and the sources' pieces around it. Ranks with the same row then get the same bits.
template <typename Operands>
void list_row(Operands& operands, std::size_t place, const Operand& own,
              std::span<const Piece> pieces) {
  operands.resize(1 + pieces.size());
  operands[place] = own;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    operands[i < place ? i : i + 1] = {.data = pieces[i].data, .weight = pieces[i].weight};
  }
}

}  // namespace bluefog::ops
