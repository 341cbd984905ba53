#pragma once

#include <vector>

#include "bluefog_cpp/weighted_rank.hpp"
#include "topology/graphs/hyper_hypercube.hpp"

namespace bluefog::topology::detail {

/// One rank after the other of the simple base-(k+1) graph on places 0 … n − 1
/// (`simple_base_graph` says how it works).
class SimpleBase {
 public:
  SimpleBase(int size, int peers);

  [[nodiscard]] int rounds() const { return rounds_; }

  /// Row `place` of the symmetric W of a round, itself included, in no order.
  [[nodiscard]] std::vector<WeightedRank> row(int place, int round) const;

 private:
  /// The places of one digit of n: `blocks` blocks of `block_size` from `begin` on.
  struct Part {
    int begin;
    int blocks;
    int block_size;
    HyperHypercube whole;
    HyperHypercube block;

    [[nodiscard]] int end() const { return begin + blocks * block_size; }
  };

  [[nodiscard]] int part_of(int place) const;
  [[nodiscard]] std::vector<WeightedRank> hand_over(int place, int giver) const;
  [[nodiscard]] std::vector<WeightedRank> bystanders(int place, const Part& part) const;

  int size_;
  int peers_;
  int rounds_ = 0;
  std::vector<Part> parts_;
};

}  // namespace bluefog::topology::detail
