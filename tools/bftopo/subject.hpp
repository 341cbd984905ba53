#pragma once

#include <optional>
#include <string>
#include <variant>

#include "bluefog_cpp/machine_layout.hpp"
#include "tools/bftopo/options.hpp"
#include "topology/ceca.hpp"
#include "topology/schedule.hpp"
#include "topology/topology_report.hpp"

namespace bluefog::bftopo {

/// The graph that a command is about.
struct Subject {
  std::string name;
  std::string description;
  std::variant<Schedule, topology::Ceca> graph;

  /// The messages of each step: the schedule, or CECA's exchanges.
  [[nodiscard]] Schedule schedule() const;
  [[nodiscard]] const topology::Ceca* ceca() const { return std::get_if<topology::Ceca>(&graph); }
};

/// Makes the family, or reads the file.
/// @throws InvalidArgument as the builder or `load_edge_list`.
[[nodiscard]] Subject make_subject(const Options& options);

/// The machines of --local-size; none without it.
[[nodiscard]] std::optional<MachineLayout> layout_of(const Options& options,
                                                     const Subject& subject);

[[nodiscard]] topology::TopologyReport report_of(const Options& options, const Subject& subject);

}  // namespace bluefog::bftopo
