#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace bluefog::optimizers::sampling {

/// A deal of an epoch that a rank has, and how far that rank has come in it.
struct KnownDeal {
  std::int64_t generation =
      0;                       ///< 0: the epoch's first; else one more than that of the deal before
  std::vector<int> members{};  ///< the numbers in the launch of the ranks for which it is
  std::int64_t drawn = 0;
  bool has_ended = false;  ///< whoever draws knows that there are no more
};

/// The deals of an epoch that a rank has.
struct Standing {
  int number = 0;       ///< of the rank, in the launch
  bool is_new = false;  ///< it has not been there before this meeting
  /// Newest first. None: it has not begun the epoch, and can make the first deal.
  std::vector<KnownDeal> known{};
};

/// The deal from which ranks that meet go on.
struct CommonDeal {
  std::int64_t generation = 0;
  std::vector<int> members{};
  std::vector<bool> has_part{};  ///< by rank: whether it has the deal, and is one of its members
  std::size_t giver = 0;         ///< the first that has part: the others get what it has
  std::vector<std::int64_t> drawn{};  ///< by rank that has part
  bool has_ended = false;             ///< on any rank
  bool is_newest = true;              ///< no rank has drawn from a later one
};

/// The newest deal that all of its members have which are left and not new: where a rank was lost within
/// a meeting, some have dealt anew, and others have not. A process that this meeting took in has no part
/// in the deal before, and counts as new. Where there is none, the one in which the most have part.
/// Nothing where nobody has begun the epoch. The same for the same standings.
[[nodiscard]] std::optional<CommonDeal> common_deal(const std::vector<Standing>& standings);

}  // namespace bluefog::optimizers::sampling
