#include "ops/group.hpp"

#include <fmt/format.h>

namespace bluefog::ops {
namespace {

/// Adds the next of a group's ranks, seen from rank `own`.
void add(Group& group, int rank, int own) {
  if (rank == own) {
    group.own = group.ranks.size();
  } else {
    group.peers.push_back({.rank = rank});
  }
  group.ranks.push_back(rank);
}

}  // namespace

Group Group::everyone(const Context& context) {
  Group group;
  for (int rank = 0; rank < context.size(); ++rank) {
    add(group, rank, context.rank());
  }
  return group;
}

Group Group::machine(const Context& context) {
  const MachineLayout& machines = context.machines();
  Group group;
  for (const int rank : machines.ranks_of(machines.machine_of(context.rank()))) {
    add(group, rank, context.rank());
  }
  return group;
}

std::string fingerprint_name(std::string_view name, std::string_view detail) {
  if (name.empty() || detail.empty()) {
    return std::string(name.empty() ? detail : name);
  }
  return fmt::format("{}; {}", detail, name);
}

}  // namespace bluefog::ops
