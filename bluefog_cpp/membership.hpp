#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace bluefog {

/// The ranks of a context, by their numbers in the launch, those that were lost on the way
/// (`Context::shrink`), and those that have joined (`Context::regroup`). Who joins has the next
/// number that nobody has had.
struct Membership {
  /// A rank that does not take part any more.
  struct Loss {
    int rank = -1;            ///< its number in the launch
    std::uint64_t epoch = 0;  ///< the first one without it
    std::string cause;        ///< a clause for messages, the same on all ranks
    /// When the others wrote down that they go on, in seconds since 1970, by the clock of one of them.
    double time = 0;
    /// The first step of distributed optimizers without it (`DistributedOptimizer::step_count`), in
    /// their contexts; 0: it was lost before one was made; −1: there is none, or ranks make as many
    /// steps as they like.
    std::int64_t step = -1;
  };

  /// A rank that was not there at the start.
  struct Entry {
    int rank = -1;            ///< its number
    std::uint64_t epoch = 0;  ///< the first one with it
  };

  std::uint64_t epoch = 0;      ///< how often ranks have gone on without others or with new ones
  std::vector<int> ranks;       ///< by this context's numbers: the one of the launch; rising
  std::vector<Loss> lost{};     ///< by epoch, then by rank
  std::vector<Entry> joined{};  ///< likewise; also those that were lost later
};

}  // namespace bluefog
