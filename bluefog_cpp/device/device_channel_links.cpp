// Which link a channel has: NCCL's, that of ranks on one host, or none.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "bluefog_cpp/base/message_of.hpp"
#include "bluefog_cpp/device/device_channel.hpp"
#include "bluefog_cpp/device/kernel_images.hpp"
#include "bluefog_cpp/device/nccl/nccl_link.hpp"
#include "bluefog_cpp/device/peer/peer_link.hpp"
#include "bluefog_cpp/device/rank_problems.hpp"
#include "bluefog_cpp/error.hpp"

namespace bluefog {

void DeviceChannel::find_link(Bootstrap& bootstrap, bool loads_nccl, const MachineLayout& hosts,
                              Deadline deadline) {
  const DeviceWayChoice choice =
      settings_.ops_on_cpu ? DeviceWayChoice::Host : settings_.device_way;
  const bool tries_nccl = choice == DeviceWayChoice::Auto || choice == DeviceWayChoice::Nccl;
  const bool tries_peers = choice == DeviceWayChoice::Auto || choice == DeviceWayChoice::Peer;
  std::string why = settings_.ops_on_cpu ? "BLUEFOG_OPS_ON_CPU is set"
                    : choice == DeviceWayChoice::Auto
                        ? ""
                        : fmt::format("BLUEFOG_DEVICE_WAY is {}", tries_nccl    ? "nccl"
                                                                  : tries_peers ? "peer"
                                                                                : "host");
  const auto note = [&why](const std::string& obstacle) {
    why += (why.empty() ? "" : "; ") + obstacle;
  };
  bool has_kernels = true;
  if (choice != DeviceWayChoice::Host) {
    if (const std::string obstacle = load_kernels(bootstrap, deadline); !obstacle.empty()) {
      has_kernels = false;
      note("its kernels cannot be used: " + obstacle);
    }
  }
  if (tries_nccl && has_kernels) {
    if (const std::string obstacle = join_by_nccl(bootstrap, loads_nccl, deadline);
        !obstacle.empty()) {
      note("not by NCCL: " + obstacle);
    }
  }
  if (tries_peers && has_kernels && !link_) {
    if (const std::string obstacle = join_peers(bootstrap, hosts, deadline); !obstacle.empty()) {
      note("not from device to device: " + obstacle);
    }
  }
  if (rank_ != 0) {
    return;
  }
  const std::string way = !link_                            ? "through the host's memory"
                          : link_->way() == DeviceWay::Peer ? "from device to device by CUDA IPC"
                                                            : "by NCCL";
  const bool in_vain =
      (tries_nccl && (!link_ || link_->way() != DeviceWay::Nccl)) || (tries_peers && !link_);
  log_.log(in_vain ? LogLevel::Warning : LogLevel::Info,
           fmt::format("calls on CUDA devices go {}{}{}{}", way, forced_text(),
                       why.empty() ? "" : ": ", why));
}

std::string DeviceChannel::forced_text() const {
  std::vector<std::string_view> kinds;
  for (const OpKind kind :
       {OpKind::Allgather, OpKind::Allreduce, OpKind::Broadcast,
        OpKind::HierarchicalNeighborAllreduce, OpKind::NeighborAllgather, OpKind::NeighborAllreduce}) {
    if (link_ && way_of(kind) == DeviceWay::Host) {
      kinds.push_back(name_of(kind));
    }
  }
  return kinds.empty() ? std::string()
                       : fmt::format(", {} through the host's memory (BLUEFOG_*_BY_MPI)",
                                     fmt::join(kinds, ", "));
}

std::string DeviceChannel::load_kernels(Bootstrap& bootstrap, Deadline deadline) {
  const auto problem = first_problem(bootstrap, problem_of([this] {
                                       const gpu::DeviceScope scope = enter();
                                       for (const gpu::KernelImage& image :
                                            gpu::registered_kernels()) {
                                         for (const char* const name : image.names) {
                                           (void)kernel(image.image, name);
                                         }
                                       }
                                     }),
                                     deadline);
  return problem.rank < 0 ? std::string() : problem.describe();
}

std::string DeviceChannel::join_by_nccl(Bootstrap& bootstrap, bool loads_nccl, Deadline deadline) {
  gpu::NcclId id{};
  const auto loading = first_problem(bootstrap, problem_of([&] {
                                       if (loads_nccl) {
                                         libraries_.nccl = gpu::load_nccl();
                                       } else if (!libraries_.nccl) {
                                         throw UnsupportedError("there is no NCCL");
                                       }
                                       if (rank_ == 0) {
                                         id = libraries_.nccl->make_id();
                                       }
                                     }),
                                     deadline);
  if (loading.rank >= 0) {
    return loading.describe();
  }
  const auto ids = bootstrap.allgather(id, deadline);
  std::memcpy(id.data(), ids.front().data(), std::min(id.size(), ids.front().size()));
  const auto joining = first_problem(bootstrap, problem_of([&] {
                                       const gpu::DeviceScope scope = enter();
                                       link_ = std::make_shared<NcclLink>(
                                           libraries_.nccl, stream_, bootstrap.size(), id, rank_);
                                     }),
                                     deadline);
  if (joining.rank < 0) {
    return {};
  }
  if (const auto link = std::exchange(link_, nullptr)) {
    const gpu::DeviceScope scope = enter();
    if (const auto error = problem_of([&] { link->abort(); })) {
      log_.error(message_of(error));
    }
  }
  return joining.describe();
}

std::string DeviceChannel::join_peers(Bootstrap& bootstrap, const MachineLayout& hosts,
                                      Deadline deadline) {
  if (hosts.machine_count() > 1) {
    return fmt::format("the ranks are on {} hosts", hosts.machine_count());
  }
  if (settings_.transport == TransportChoice::Mpi) {
    return "BLUEFOG_TRANSPORT is mpi";
  }
  RankProblem problem;
  link_ = PeerLink::connect(bootstrap,
                            {.cuda = libraries_.cuda,
                             .staging = staging_,
                             .stream = stream_,
                             .device = device_,
                             .timeout = timeout_},
                            deadline, problem);
  return link_ ? std::string() : problem.describe();
}

}  // namespace bluefog
