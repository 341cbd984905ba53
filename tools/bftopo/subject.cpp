#include "tools/bftopo/subject.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "bluefog_cpp/error.hpp"
#include "topology/edge_list.hpp"

namespace bluefog::bftopo {
namespace {

/// The graph as it is before ranks are lost.
Subject whole_subject(const Options& options) {
  const int size = options.family_options.size;
  if (!options.family) {
    return {options.subject, "from a file",
            topology::static_schedule(
                topology::load_edge_list(options.subject, {.size = size, .rule = options.rule}))};
  }
  const std::string name(options.family->name);
  const std::string description(options.family->description);
  if (options.family->kind == topology::FamilyKind::TwoVariables) {
    const auto ports =
        name == "ceca-one-port" ? topology::CecaPorts::One : topology::CecaPorts::Two;
    return {name, description, topology::Ceca(size, ports)};
  }
  return {name, description, topology::make_schedule(name, options.family_options)};
}

/// @param lost rising.
std::vector<int> ranks_left(int size, const std::vector<int>& lost) {
  std::vector<int> left;
  for (int rank = 0; rank < size; ++rank) {
    if (!std::ranges::binary_search(lost, rank)) {
      left.push_back(rank);
    }
  }
  return left;
}

/// The layout of the ranks that are left.
MachineLayout layout_among(const MachineLayout& layout, const std::vector<int>& left) {
  std::vector<std::string> machines;
  for (const int rank : left) {
    machines.push_back(std::to_string(layout.machine_of(rank)));
  }
  return MachineLayout::from_host_ids(machines);
}

}  // namespace

Schedule Subject::schedule() const {
  if (const topology::Ceca* two_variables = ceca()) {
    return two_variables->exchange();
  }
  return std::get<Schedule>(graph);
}

int Subject::rank_of(int place) const {
  return left.empty() || place < 0 ? place : left[static_cast<std::size_t>(place)];
}

std::string Subject::count_words() const {
  return lost.empty() ? fmt::format("{} ranks", size_before)
                      : fmt::format("{} of {} ranks, without {}", size_before - lost.size(),
                                    size_before, fmt::join(lost, ", "));
}

Subject make_subject(const Options& options) {
  Subject subject = whole_subject(options);
  subject.size_before = subject.schedule().size();
  if (options.without.empty()) {
    return subject;
  }
  Schedule schedule = subject.schedule().without(options.without);
  subject.lost = options.without;
  std::ranges::sort(subject.lost);
  if (options.command != Command::Show && options.command != Command::Draw) {
    subject.left = ranks_left(subject.size_before, subject.lost);
    schedule = schedule.among(subject.left);
  }
  subject.graph = std::move(schedule);
  return subject;
}

std::optional<MachineLayout> layout_of(const Options& options, const Subject& subject) {
  const int local_size = options.family_options.local_size;
  if (local_size == 1) {
    return std::nullopt;
  }
  // A schedule over machines: each of its ranks is one.
  if (subject.name == "machine-exponential") {
    return MachineLayout::single(subject.schedule().size()).split(1);
  }
  const int size = subject.size_before;
  if (size % local_size != 0) {
    throw InvalidArgument(fmt::format("--local-size: expected a divisor of the {} ranks, found {}",
                                      size, local_size));
  }
  const MachineLayout layout = MachineLayout::single(size).split(local_size);
  return subject.left.empty() ? layout : layout_among(layout, subject.left);
}

topology::TopologyReport report_of(const Options& options, const Subject& subject) {
  topology::ReportOptions wanted;
  wanted.message_bytes = options.cost.message_bytes;
  wanted.layout = layout_of(options, subject);
  topology::TopologyReport report =
      std::visit([&](const auto& graph) { return topology::check(graph, wanted); }, subject.graph);
  for (int* const rank : {&report.worst_row.rank, &report.worst_column.rank, &report.first_apart}) {
    *rank = subject.rank_of(*rank);
  }
  return report;
}

}  // namespace bluefog::bftopo
