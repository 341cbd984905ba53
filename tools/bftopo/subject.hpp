#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

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
  /// The number of ranks before some are lost.
  int size_before = 1;
  /// The ranks that are lost (`--without`), rising.
  std::vector<int> lost = {};
  /// The ranks that `graph` counts from 0, rising; empty where it has them all.
  std::vector<int> left = {};

  /// The messages of each step: the schedule, or CECA's exchanges.
  [[nodiscard]] Schedule schedule() const;
  [[nodiscard]] const topology::Ceca* ceca() const { return std::get_if<topology::Ceca>(&graph); }
  /// The number that a rank of `graph` has outside.
  [[nodiscard]] int rank_of(int place) const;
  /// "8 ranks", or "6 of 8 ranks, without 3, 5".
  [[nodiscard]] std::string count_words() const;
};

/// Makes the family, or reads the file. Ranks of `--without` are lost: `show` and `draw` have them
/// in their places, without edges, other commands are about the ranks that are left.
/// @throws InvalidArgument as the builder or `load_edge_list`, and as `Schedule::without`.
[[nodiscard]] Subject make_subject(const Options& options);

/// The machines of --local-size; none without it.
[[nodiscard]] std::optional<MachineLayout> layout_of(const Options& options,
                                                     const Subject& subject);

/// The report, which names ranks as they are named outside.
[[nodiscard]] topology::TopologyReport report_of(const Options& options, const Subject& subject);

}  // namespace bluefog::bftopo
