#include "ops/calls/group.hpp"

#include <fmt/format.h>

#include <numeric>

namespace bluefog::ops {

Group Group::of(std::span<const int> ranks, int rank) {
  Group group;
  group.ranks.assign(ranks.begin(), ranks.end());
  group.peers.reserve(ranks.size() - 1);
  for (const int one : ranks) {
    if (one == rank) {
      group.own = group.peers.size();
    } else {
      group.peers.push_back({.rank = one});
    }
  }
  return group;
}

Group Group::everyone(const Context& context) {
  boost::container::small_vector<int, 1 + kInlineNeighbors> ranks(
      static_cast<std::size_t>(context.size()), boost::container::default_init);
  std::iota(ranks.begin(), ranks.end(), 0);
  return of({ranks.data(), ranks.size()}, context.rank());
}

Group Group::machine(const Context& context) {
  const MachineLayout& machines = context.machines();
  return of(machines.ranks_of(machines.machine_of(context.rank())), context.rank());
}

std::string fingerprint_name(std::string_view name, std::string_view detail) {
  if (name.empty() || detail.empty()) {
    return std::string(name.empty() ? detail : name);
  }
  return fmt::format("{}; {}", detail, name);
}

}  // namespace bluefog::ops
