#include "bluefog_cpp/device/links/device_way.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string_view>
#include <vector>

namespace bluefog {

DeviceWay way_of(OpKind kind, const Settings& settings, DeviceWay linked) noexcept {
  const auto host_if = [linked](bool is_forced) { return is_forced ? DeviceWay::Host : linked; };
  switch (kind) {
    case OpKind::Allgather:
      return host_if(settings.allgather_by_mpi);
    case OpKind::Allreduce:
      return host_if(settings.allreduce_by_mpi);
    case OpKind::Broadcast:
      return host_if(settings.broadcast_by_mpi);
    case OpKind::HierarchicalNeighborAllreduce:
      return host_if(settings.hierarchical_neighbor_allreduce_by_mpi);
    case OpKind::NeighborAllgather:
      return host_if(settings.neighbor_allgather_by_mpi);
    case OpKind::NeighborAllreduce:
      return host_if(settings.neighbor_allreduce_by_mpi);
    default:
      return DeviceWay::Host;
  }
}

std::string forced_text(const Settings& settings, DeviceWay linked) {
  std::vector<std::string_view> kinds;
  for (const OpKind kind : {OpKind::Allgather, OpKind::Allreduce, OpKind::Broadcast,
                            OpKind::HierarchicalNeighborAllreduce, OpKind::NeighborAllgather,
                            OpKind::NeighborAllreduce}) {
    if (linked != DeviceWay::Host && way_of(kind, settings, linked) == DeviceWay::Host) {
      kinds.push_back(name_of(kind));
    }
  }
  return kinds.empty() ? std::string()
                       : fmt::format(", {} through the host's memory (BLUEFOG_*_BY_MPI)",
                                     fmt::join(kinds, ", "));
}

}  // namespace bluefog
