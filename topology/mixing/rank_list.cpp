#include "topology/mixing/rank_list.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "bluefog_cpp/error.hpp"

namespace bluefog {

std::vector<int> rising_ranks(std::string_view call, std::span<const int> ranks, int size) {
  std::vector<int> rising(ranks.begin(), ranks.end());
  std::ranges::sort(rising);
  for (const int rank : rising) {
    if (rank < 0 || rank >= size) {
      throw InvalidArgument(
          fmt::format("{}: expected ranks from 0 to {}, found {}", call, size - 1, rank));
    }
  }
  if (const auto twice = std::ranges::adjacent_find(rising); twice != rising.end()) {
    throw InvalidArgument(fmt::format("{}: expected distinct ranks, found {} twice", call, *twice));
  }
  return rising;
}

std::vector<int> lost_ranks(std::string_view call, std::span<const int> ranks, int size) {
  std::vector<int> rising = rising_ranks(call, ranks, size);
  if (std::ssize(rising) == size) {
    throw InvalidArgument(
        fmt::format("{}: expected a rank that is left, found that all {} are lost", call, size));
  }
  return rising;
}

std::vector<int> kept_ranks(std::string_view call, std::span<const int> ranks, int size) {
  if (ranks.empty()) {
    throw InvalidArgument(fmt::format("{}: expected at least one rank, found none", call));
  }
  return rising_ranks(call, ranks, size);
}

}  // namespace bluefog
