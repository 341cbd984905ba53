#pragma once

#include <map>
#include <string>
#include <vector>

#include "tools/bfrun/job/rank_report.hpp"
#include "tools/bfrun/rank/binding.hpp"

namespace bluefog::bfrun {

/// The cores that the ranks of a job have got on their hosts: one line where all hosts are alike,
/// else one for each.
/// @param started the words of all ranks, by rank
[[nodiscard]] std::vector<std::string> placement_lines(const std::map<int, RankReport>& started,
                                                       const PlacementNotes& notes);

}  // namespace bluefog::bfrun
