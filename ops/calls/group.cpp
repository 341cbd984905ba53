#include "ops/calls/group.hpp"

#include <fmt/format.h>

#include <numeric>

namespace bluefog::ops {

Group Group::everyone(const Context& context) {
  const auto size = static_cast<std::size_t>(context.size());
  Group group;
  group.own = static_cast<std::size_t>(context.rank());
  group.ranks.resize(size, boost::container::default_init);
  std::iota(group.ranks.begin(), group.ranks.end(), 0);
  group.peers.resize(size - 1);
  for (std::size_t i = 0; i < group.peers.size(); ++i) {
    group.peers[i].rank = group.ranks[group.place_of_peer(i)];
  }
  return group;
}

Group Group::machine(const Context& context) {
  const MachineLayout& machines = context.machines();
  Group group;
  for (const int rank : machines.ranks_of(machines.machine_of(context.rank()))) {
    if (rank == context.rank()) {
      group.own = group.ranks.size();
    } else {
      group.peers.push_back({.rank = rank});
    }
    group.ranks.push_back(rank);
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
