#include "ops/group.hpp"

#include <fmt/format.h>

#include <numeric>
#include <utility>

namespace bluefog::ops {
namespace {

Group make(std::vector<int> ranks, int rank) {
  Group group{.ranks = std::move(ranks)};
  for (std::size_t i = 0; i < group.ranks.size(); ++i) {
    if (group.ranks[i] == rank) {
      group.own = i;
    } else {
      group.peers.push_back({.rank = group.ranks[i]});
    }
  }
  return group;
}

}  // namespace

Group Group::everyone(const Context& context) {
  std::vector<int> ranks(static_cast<std::size_t>(context.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return make(std::move(ranks), context.rank());
}

Group Group::machine(const Context& context) {
  const MachineLayout& machines = context.machines();
  return make(machines.ranks_of(machines.machine_of(context.rank())), context.rank());
}

std::string fingerprint_name(std::string_view name, std::string_view detail) {
  if (name.empty() || detail.empty()) {
    return std::string(name.empty() ? detail : name);
  }
  return fmt::format("{}; {}", detail, name);
}

}  // namespace bluefog::ops
