#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace bluefog::optimizers {

/// How the samples of a data set are dealt to ranks, the same on all of them: C++'s `ElasticSampler`
/// and Python's deal by it alike. Shares are of int64; they begin with -1, for no sample, as often as
/// others had drawn one before their rank was there.
struct Dealing {
  std::int64_t count = 0;  ///< samples of the data set, at least 1
  bool shuffles = true;    ///< whether each epoch has an order of its own
  std::uint64_t seed = 0;  ///< of these orders

  /// The shares of `ranks` ranks of an epoch, of equal length: rank r has places r, r + ranks, … of
  /// its order, whose beginning fills up the last ones.
  [[nodiscard]] std::vector<at::Tensor> first_shares(std::int64_t epoch, int ranks) const;

  /// The shares of ranks that have drawn `drawn` of `shares`: what they have drawn, and then what
  /// nobody has, so that all have drawn equally many in the end: as many as who has drawn most, at
  /// least, and some of them twice.
  [[nodiscard]] std::vector<at::Tensor> later_shares(std::int64_t epoch,
                                                     const std::vector<at::Tensor>& shares,
                                                     const std::vector<std::int64_t>& drawn) const;

  /// The samples in none of `shares`.
  [[nodiscard]] std::int64_t missed_by(const std::vector<at::Tensor>& shares) const;

 private:
  [[nodiscard]] at::Tensor order(std::int64_t epoch, std::int64_t of) const;
};

}  // namespace bluefog::optimizers
