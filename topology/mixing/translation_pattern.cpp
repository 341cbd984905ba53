#include "topology/translation_pattern.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "bluefog_cpp/error.hpp"

namespace bluefog {
namespace {

void validate(const TranslationPattern& pattern) {
  const int size = pattern.size();
  for (const WeightedRank& entry : pattern.entries) {
    if (entry.rank < 0 || entry.rank >= size) {
      throw InvalidArgument(
          fmt::format("translation pattern: offset {}, expected 0 to {}", entry.rank, size - 1));
    }
  }
}

}  // namespace

TranslationPattern TranslationPattern::make(std::vector<int> shape,
                                            std::vector<WeightedRank> entries) {
  TranslationPattern pattern{std::move(shape), std::move(entries)};
  validate(pattern);
  std::vector<WeightedRank>& list = pattern.entries;
  std::ranges::stable_sort(list, {}, &WeightedRank::rank);
  std::size_t kept = 0;
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (kept > 0 && list[kept - 1].rank == list[i].rank) {
      list[kept - 1].weight += list[i].weight;
    } else {
      list[kept++] = list[i];
    }
  }
  list.resize(kept);
  return pattern;
}

int TranslationPattern::size() const {
  std::int64_t product = 1;
  for (const int extent : shape) {
    if (extent < 1) {
      throw InvalidArgument(
          fmt::format("grid [{}]: expected extents of at least 1", fmt::join(shape, ", ")));
    }
    product *= extent;
    if (product > std::numeric_limits<int>::max()) {
      throw InvalidArgument(fmt::format("grid [{}]: more ranks than the {} that an int counts",
                                        fmt::join(shape, ", "), std::numeric_limits<int>::max()));
    }
  }
  return static_cast<int>(product);
}

int TranslationPattern::shift(int rank, int offset) const {
  int stride = 1;
  int shifted = 0;
  for (auto extent = shape.rbegin(); extent != shape.rend(); ++extent) {
    const int here = rank % *extent;
    const int step = offset % *extent;
    const int place = step >= *extent - here ? step - (*extent - here) : here + step;
    shifted += stride * place;
    stride *= *extent;
    rank /= *extent;
    offset /= *extent;
  }
  return shifted;
}

int TranslationPattern::inverse(int offset) const {
  int stride = 1;
  int inverted = 0;
  for (auto extent = shape.rbegin(); extent != shape.rend(); ++extent) {
    const int step = offset % *extent;
    inverted += stride * (step == 0 ? 0 : *extent - step);
    stride *= *extent;
    offset /= *extent;
  }
  return inverted;
}

TranslationPattern TranslationPattern::transposed() const {
  std::vector<WeightedRank> inverted;
  inverted.reserve(entries.size());
  for (const WeightedRank& entry : entries) {
    inverted.push_back({inverse(entry.rank), entry.weight});
  }
  return make(shape, std::move(inverted));
}

TranslationPattern compose(const TranslationPattern& a, const TranslationPattern& b) {
  if (a.shape != b.shape) {
    throw InvalidArgument(fmt::format("composition of translation patterns: grids [{}] and [{}]",
                                      fmt::join(a.shape, ", "), fmt::join(b.shape, ", ")));
  }
  std::vector<WeightedRank> products;
  products.reserve(a.entries.size() * b.entries.size());
  for (const WeightedRank& left : a.entries) {
    for (const WeightedRank& right : b.entries) {
      products.push_back({a.shift(left.rank, right.rank), left.weight * right.weight});
    }
  }
  return TranslationPattern::make(a.shape, std::move(products));
}

}  // namespace bluefog
