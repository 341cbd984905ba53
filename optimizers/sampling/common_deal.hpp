#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

namespace bluefog::optimizers::sampling {

/// A deal of an epoch that a rank has, and how far that rank has come in it.
struct KnownDeal {
  std::int64_t generation = 0;  ///< 0: the epoch's first; else one more than of the deal before
  std::vector<int> members{};   ///< the numbers in the launch of the ranks for which it is
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

/// Samples of each rank: those that it has drawn come first.
struct Draws {
  std::vector<at::Tensor> shares;
  std::vector<std::int64_t> drawn;
};

/// What ranks have drawn of the common deal and of later ones. Those that have no part in it begin where
/// the others are, with -1 for what these have drawn.
/// @param ranks their numbers in the launch. @param dealt the deal's shares, by member. @param later of
///   each rank, what it has drawn of later deals. @param trained how many steps' samples each of the
///   others has used up; nothing: as many as who has drawn the fewest.
[[nodiscard]] Draws draws_of(const CommonDeal& common, const std::vector<int>& ranks,
                             const std::vector<at::Tensor>& dealt,
                             const std::vector<at::Tensor>& later,
                             std::optional<std::int64_t> trained = std::nullopt);

}  // namespace bluefog::optimizers::sampling
