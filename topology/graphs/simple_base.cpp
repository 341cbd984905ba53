#include "topology/graphs/simple_base.hpp"

#include <algorithm>
#include <cstdint>

namespace bluefog::topology::detail {
namespace {

/// Equal weights for `places`, moved by `begin`.
std::vector<WeightedRank> equal_weights(const std::vector<int>& places, int begin) {
  std::vector<WeightedRank> row;
  row.reserve(places.size());
  for (const int place : places) {
    row.push_back({begin + place, 1.0 / static_cast<double>(places.size())});
  }
  return row;
}

}  // namespace

SimpleBase::SimpleBase(int size, int peers) : size_(size), peers_(peers) {
  const int base = peers + 1;
  if (is_smooth(size, base)) {
    parts_.push_back({0, 1, size, {size, base}, {size, base}});
    rounds_ = parts_.front().whole.rounds();
    return;
  }
  std::int64_t power = 1;
  while (power * base <= size) {
    power *= base;
  }
  for (int begin = 0; begin < size; power /= base) {
    const auto block_size = static_cast<int>(power);
    const int blocks = (size - begin) / block_size;
    if (blocks == 0) {
      continue;
    }
    parts_.push_back({begin, blocks, block_size, {blocks * block_size, base}, {block_size, base}});
    begin = parts_.back().end();
  }
  rounds_ = parts_.front().whole.rounds() + 1 + parts_.front().block.rounds();
}

int SimpleBase::part_of(int place) const {
  const auto next = std::ranges::upper_bound(parts_, place, {}, &Part::begin);
  return static_cast<int>(next - parts_.begin()) - 1;
}

/// The turn of part `giver`: rank r after it exchanges with rank r of each of its blocks.
std::vector<WeightedRank> SimpleBase::hand_over(int place, int giver) const {
  const Part& part = parts_[giver];
  const double weight = static_cast<double>(part.block_size) / (size_ - part.begin);
  if (place >= part.end()) {
    std::vector<WeightedRank> row{{place, 1.0 - part.blocks * weight}};
    for (int block = 0; block < part.blocks; ++block) {
      row.push_back({part.begin + block * part.block_size + place - part.end(), weight});
    }
    return row;
  }
  const int partner = part.end() + (place - part.begin) % part.block_size;
  if (partner < size_) {
    return {{place, 1.0 - weight}, {partner, weight}};
  }
  return bystanders(place, part);
}

/// The giver's ranks that nobody exchanges with average in groups of up to k + 1.
std::vector<WeightedRank> SimpleBase::bystanders(int place, const Part& part) const {
  const int busy = size_ - part.end();  // the first ranks of each block
  const int idle = part.block_size - busy;
  const int block = (place - part.begin) / part.block_size;
  const int index = block * idle + (place - part.begin) % part.block_size - busy;
  const int first = index - index % (peers_ + 1);
  const int last = std::min(first + peers_ + 1, part.blocks * idle);
  std::vector<int> group;
  for (int i = first; i < last; ++i) {
    group.push_back(i / idle * part.block_size + busy + i % idle);
  }
  return equal_weights(group, part.begin);
}

std::vector<WeightedRank> SimpleBase::row(int place, int round) const {
  const int index = part_of(place);
  const Part& part = parts_[index];
  const int turn = round - parts_.front().whole.rounds();
  const int turns = static_cast<int>(parts_.size()) - 1;
  if (turn < 0 || (index == turns && turn >= turns)) {
    return equal_weights(part.whole.members(place - part.begin, round), part.begin);
  }
  if (turn <= index) {
    return hand_over(place, turn);
  }
  const int begin = place - (place - part.begin) % part.block_size;
  return equal_weights(part.block.members(place - begin, turn - index - 1), begin);
}

}  // namespace bluefog::topology::detail
