#include "tools/bfrun/job/monitor/placement_lines.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace bluefog::bfrun {

std::vector<std::string> placement_lines(const std::map<int, RankReport>& started,
                                         const PlacementNotes& notes) {
  std::map<std::string, std::pair<int, Placement>> hosts;
  for (const auto& [rank, report] : started) {
    auto& [ranks, placement] = hosts[report.host];
    ++ranks;
    placement = report.placement;
  }
  const auto first = hosts.begin()->second.second;
  const bool same = std::all_of(hosts.begin(), hosts.end(),
                                [&](const auto& host) { return host.second.second == first; });
  const auto is_watched = [](const Placement& placement) { return placement.cores > 0; };
  if (same && is_watched(first)) {
    return {
        describe(static_cast<int>(started.size()), static_cast<int>(hosts.size()), first, notes)};
  }
  std::vector<std::string> lines;
  for (const auto& [name, host] : hosts) {
    const std::string text = is_watched(host.second)
                                 ? describe(host.first, 1, host.second, notes)
                                 : "not bound, as bfrun is not installed there at the same path";
    lines.push_back(fmt::format("host {}: {}", name, text));
  }
  return lines;
}

}  // namespace bluefog::bfrun
