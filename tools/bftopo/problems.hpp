#pragma once

#include <string>
#include <vector>

#include "tools/bftopo/subject.hpp"
#include "topology/topology_report.hpp"

namespace bluefog::bftopo {

/// The reasons why ranks cannot average with the graph, a sentence each: sums other than 1, edges
/// that only one end knows, parts that never hear of each other, differences that do not die out.
[[nodiscard]] std::vector<std::string> problems_of(const Options& options, const Subject& subject,
                                                   const topology::TopologyReport& report);

}  // namespace bluefog::bftopo
