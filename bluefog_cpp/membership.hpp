#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace bluefog {

/// The ranks of a context, by their numbers in the launch, and those that were lost on the way
/// (`Context::shrink`).
struct Membership {
  /// A rank that does not take part any more.
  struct Loss {
    int rank = -1;            ///< its number in the launch
    std::uint64_t epoch = 0;  ///< the first one without it
    std::string cause;        ///< a clause for messages, the same on all ranks
  };

  std::uint64_t epoch = 0;   ///< how often ranks have gone on without others
  std::vector<int> ranks;    ///< by this context's numbers: the one of the launch; rising
  std::vector<Loss> lost{};  ///< by epoch, then by rank
};

}  // namespace bluefog
