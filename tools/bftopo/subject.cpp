#include "tools/bftopo/subject.hpp"

#include <fmt/format.h>

#include "bluefog_cpp/error.hpp"
#include "topology/edge_list.hpp"

namespace bluefog::bftopo {

Schedule Subject::schedule() const {
  if (const topology::Ceca* two_variables = ceca()) {
    return two_variables->exchange();
  }
  return std::get<Schedule>(graph);
}

Subject make_subject(const Options& options) {
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

std::optional<MachineLayout> layout_of(const Options& options, const Subject& subject) {
  const int local_size = options.family_options.local_size;
  if (local_size == 1) {
    return std::nullopt;
  }
  const int size = subject.schedule().size();
  // A schedule over machines: each of its ranks is one.
  if (subject.name == "machine-exponential") {
    return MachineLayout::single(size).split(1);
  }
  if (size % local_size != 0) {
    throw InvalidArgument(fmt::format("--local-size: expected a divisor of the {} ranks, found {}",
                                      size, local_size));
  }
  return MachineLayout::single(size).split(local_size);
}

topology::TopologyReport report_of(const Options& options, const Subject& subject) {
  topology::ReportOptions wanted;
  wanted.message_bytes = options.cost.message_bytes;
  wanted.layout = layout_of(options, subject);
  return std::visit([&](const auto& graph) { return topology::check(graph, wanted); },
                    subject.graph);
}

}  // namespace bluefog::bftopo
