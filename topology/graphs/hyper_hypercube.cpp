#include "topology/graphs/hyper_hypercube.hpp"

#include <map>

namespace bluefog::topology::detail {
namespace {

/// The fewest factors that a number of ranks splits into, and the first of them.
struct Split {
  int count = 0;
  int factor = 1;
};

/// Tries each divisor up to `largest`. The quotient divides the first number again, so that only a
/// few numbers are ever looked at.
Split best_split(int size, int largest, std::map<int, Split>& known) {
  if (size == 1) {
    return {};
  }
  const auto found = known.find(size);
  if (found != known.end()) {
    return found->second;
  }
  Split best;
  for (int factor = 2; factor <= largest && factor <= size; ++factor) {
    if (size % factor != 0) {
      continue;
    }
    const int rest = size / factor;
    const Split after = best_split(rest, largest, known);
    if (rest > 1 && after.count == 0) {
      continue;  // a prime factor is too large
    }
    if (best.count == 0 || after.count + 1 < best.count) {
      best = {after.count + 1, factor};
    }
  }
  known[size] = best;
  return best;
}

}  // namespace

bool is_smooth(int size, int largest) {
  for (int factor = 2; factor <= largest && size > 1;) {
    if (size % factor == 0) {
      size /= factor;
    } else {
      ++factor;
    }
  }
  return size == 1;
}

std::vector<int> fewest_factors(int size, int largest) {
  std::map<int, Split> known;
  std::vector<int> factors;
  if (!is_smooth(size, largest)) {
    return factors;
  }
  while (size > 1) {
    factors.push_back(best_split(size, largest, known).factor);
    size /= factors.back();
  }
  return factors;
}

HyperHypercube::HyperHypercube(int size, int largest_extent)
    : extents_(fewest_factors(size, largest_extent)) {
  int stride = 1;
  for (const int extent : extents_) {
    strides_.push_back(stride);
    stride *= extent;
  }
}

std::vector<int> HyperHypercube::members(int place, int round) const {
  if (extents_.empty()) {
    return {place};
  }
  const auto turn = static_cast<std::size_t>(round % rounds());
  const int stride = strides_[turn];
  const int first = place - place / stride % extents_[turn] * stride;
  std::vector<int> places;
  for (int i = 0; i < extents_[turn]; ++i) {
    places.push_back(first + i * stride);
  }
  return places;
}

MixingMatrix HyperHypercube::mixing_matrix(int round) const {
  if (extents_.empty()) {
    return MixingMatrix::identity(1);
  }
  // Row-major: the coordinate of the first round, with stride 1, comes last.
  TranslationPattern pattern{.shape = {extents_.rbegin(), extents_.rend()}, .entries = {}};
  const std::vector<int> offsets = members(0, round);
  for (const int offset : offsets) {
    pattern.entries.push_back({offset, 1.0 / static_cast<double>(offsets.size())});
  }
  return MixingMatrix::from_pattern(pattern);
}

}  // namespace bluefog::topology::detail
