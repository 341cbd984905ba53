#include "bluefog_cpp/device/links/link_search.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include "bluefog_cpp/base/message_of.hpp"
#include "bluefog_cpp/device/kernel_images.hpp"
#include "bluefog_cpp/device/links/device_way.hpp"
#include "bluefog_cpp/device/nccl/nccl_link.hpp"
#include "bluefog_cpp/device/peer/peer_link.hpp"
#include "bluefog_cpp/device/rank_problems.hpp"
#include "bluefog_cpp/error.hpp"

namespace bluefog {

bool LinkSearch::note(const char* what, const std::string& obstacle) {
  if (!obstacle.empty()) {
    why_ += (why_.empty() ? "" : "; ") + fmt::format("{}: {}", what, obstacle);
  }
  return obstacle.empty();
}

std::shared_ptr<DeviceLink> LinkSearch::find() {
  const Settings& settings = parts_.settings;
  const DeviceWayChoice choice = settings.ops_on_cpu ? DeviceWayChoice::Host : settings.device_way;
  const bool tries_nccl = choice == DeviceWayChoice::Auto || choice == DeviceWayChoice::Nccl;
  const bool tries_peers = choice == DeviceWayChoice::Auto || choice == DeviceWayChoice::Peer;
  if (settings.ops_on_cpu) {
    why_ = "BLUEFOG_OPS_ON_CPU is set";
  } else if (choice != DeviceWayChoice::Auto) {
    why_ = fmt::format("BLUEFOG_DEVICE_WAY is {}",
                       tries_nccl ? "nccl" : (tries_peers ? "peer" : "host"));
  }
  const bool has_kernels =
      choice == DeviceWayChoice::Host || note("its kernels cannot be used", load_kernels());
  if (tries_nccl && has_kernels && note("not by NCCL", threads_that_share_a_device())) {
    note("not by NCCL", join_by_nccl());
  }
  if (tries_peers && has_kernels && !link_) {
    note("not from device to device", join_peers());
  }
  if (bootstrap_.rank() == 0) {
    log_way((tries_nccl && (!link_ || link_->way() != DeviceWay::Nccl)) || (tries_peers && !link_));
  }
  return link_;
}

void LinkSearch::log_way(bool in_vain) const {
  const DeviceWay linked = link_ ? link_->way() : DeviceWay::Host;
  const std::string_view way = linked == DeviceWay::Host   ? "through the host's memory"
                               : linked == DeviceWay::Peer ? "from device to device by CUDA IPC"
                                                           : "by NCCL";
  parts_.log.log(in_vain ? LogLevel::Warning : LogLevel::Info,
                 fmt::format("calls on CUDA devices go {}{}{}{}", way,
                             forced_text(parts_.settings, linked), why_.empty() ? "" : ": ", why_));
}

std::string LinkSearch::load_kernels() {
  const auto problem =
      first_problem(bootstrap_, problem_of([this] {
                      const gpu::DeviceScope scope(*parts_.libraries.cuda, parts_.device);
                      for (const gpu::KernelImage& image : gpu::registered_kernels()) {
                        for (const char* const name : image.names) {
                          (void)parts_.kernels.find(image.image, name);
                        }
                      }
                    }),
                    deadline_);
  return problem.rank < 0 ? std::string() : problem.describe();
}

std::string LinkSearch::threads_that_share_a_device() {
  if (!bootstrap_.in_process()) {
    return {};
  }
  const std::uint64_t own[] = {parts_.libraries.cuda->process(),
                               static_cast<std::uint64_t>(parts_.device)};
  const auto places = bootstrap_.allgather(std::as_bytes(std::span(own)), deadline_);
  for (auto place = places.begin(); place != places.end(); ++place) {
    if (const auto first = std::find(places.begin(), place, *place); first != place) {
      return fmt::format(
          "ranks {} and {} are threads of one process on one device, where CUDA may let the host "
          "of the one wait for the kernel of the other, which waits for it",
          first - places.begin(), place - places.begin());
    }
  }
  return {};
}

std::string LinkSearch::join_by_nccl() {
  gpu::Libraries& libraries = parts_.libraries;
  gpu::NcclId id{};
  const auto loading = first_problem(bootstrap_, problem_of([&] {
                                       if (parts_.nccl == Parts::Nccl::Load) {
                                         libraries.nccl = gpu::load_nccl();
                                       } else if (!libraries.nccl) {
                                         throw UnsupportedError("there is no NCCL");
                                       }
                                       if (bootstrap_.rank() == 0) {
                                         id = libraries.nccl->make_id();
                                       }
                                     }),
                                     deadline_);
  if (loading.rank >= 0) {
    return loading.describe();
  }
  const auto ids = bootstrap_.allgather(id, deadline_);
  std::memcpy(id.data(), ids.front().data(), std::min(id.size(), ids.front().size()));
  const auto joining =
      first_problem(bootstrap_, problem_of([&] {
                      const gpu::DeviceScope scope(*libraries.cuda, parts_.device);
                      link_ = std::make_shared<NcclLink>(libraries.nccl, parts_.stream,
                                                         bootstrap_.size(), id, bootstrap_.rank());
                    }),
                    deadline_);
  if (joining.rank < 0) {
    return {};
  }
  if (const auto link = std::exchange(link_, nullptr)) {
    const gpu::DeviceScope scope(*libraries.cuda, parts_.device);
    if (const auto error = problem_of([&] { link->abort(); })) {
      parts_.log.error(message_of(error));
    }
  }
  return joining.describe();
}

std::string LinkSearch::join_peers() {
  if (parts_.hosts.machine_count() > 1) {
    return fmt::format("the ranks are on {} hosts", parts_.hosts.machine_count());
  }
  if (parts_.settings.transport == TransportChoice::Mpi) {
    return "BLUEFOG_TRANSPORT is mpi";
  }
  RankProblem problem;
  link_ = PeerLink::connect(bootstrap_,
                            {.cuda = parts_.libraries.cuda,
                             .staging = parts_.staging,
                             .stream = parts_.stream,
                             .device = parts_.device,
                             .arena = parts_.arena,
                             .timeout = parts_.settings.timeout},
                            deadline_, problem);
  return link_ ? std::string() : problem.describe();
}

}  // namespace bluefog
