#include "bluefog_cpp/one_sided/one_sided.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "bluefog_cpp/base/linger.hpp"
#include "bluefog_cpp/device/device_channel.hpp"
#include "bluefog_cpp/device/peer_memory.hpp"
#include "bluefog_cpp/engine/engine.hpp"
#include "bluefog_cpp/error.hpp"
#include "bluefog_cpp/machine_layout.hpp"
#include "bluefog_cpp/transport/network.hpp"

namespace bluefog {
namespace {

constexpr std::chrono::milliseconds kPeerLookPeriod{20};

/// The groups by rank: ranks with the same text may share memory.
std::vector<std::string> sharing_groups(const OneSidedParts& parts) {
  std::vector<std::string> groups;
  for (int rank = 0; rank < parts.bootstrap.size(); ++rank) {
    const bool is_apart = parts.settings.transport == TransportChoice::Mpi;
    groups.push_back(std::to_string(is_apart ? rank : parts.hosts.machine_of(rank)));
  }
  return groups;
}

/// Checks that threads may use the bootstrap's transports, as windows do from one of their own.
void require_threads(const Bootstrap& bootstrap) {
  if (const auto obstacle = bootstrap.concurrency_obstacle(); !obstacle.empty()) {
    throw UnsupportedError(fmt::format(
        "rank {}, win_create: windows between ranks that share no memory use MPI from a thread of "
        "their own: {}",
        bootstrap.rank(), obstacle));
  }
}

bool any_rank(Bootstrap& bootstrap, bool flag, Deadline deadline) {
  const std::array word{flag ? std::byte{1} : std::byte{0}};
  return std::ranges::any_of(bootstrap.allgather(word, deadline), [](const auto& blob) {
    return !blob.empty() && blob[0] != std::byte{0};
  });
}

}  // namespace

void WaitCheck::look() const {
  engine_->check_interrupt();
  if (Deadline::Clock::now() >= end_.load()) {
    throw StateError(fmt::format("rank {}, windows: the context was closed", rank_));
  }
}

std::shared_ptr<OneSided> OneSided::connect(const OneSidedParts& parts) {
  Bootstrap& bootstrap = parts.bootstrap;
  const int rank = bootstrap.rank();
  const std::vector<std::string> groups = sharing_groups(parts);
  if (std::ranges::any_of(groups, [&](const auto& group) { return group != groups.front(); })) {
    require_threads(bootstrap);  // before bootstrap calls, beside which the engine may use MPI
  }
  std::shared_ptr<OneSided> one_sided(new OneSided());
  one_sided->rank_ = rank;
  one_sided->timeout_ = parts.settings.timeout;
  const Deadline deadline = one_sided->deadline();
  one_sided->memory_ = shm::HostMemory::connect(bootstrap, groups, parts.arena, deadline);
  std::vector<int> here;
  for (int peer = 0; peer < bootstrap.size(); ++peer) {
    if (one_sided->memory_->reaches(peer)) {
      here.push_back(peer);
    }
  }
  one_sided->reader_ = std::make_unique<MemoryReader>(bootstrap, here, deadline);
  const auto size = static_cast<std::size_t>(bootstrap.size());
  const bool is_cut_off = here.size() < size || !std::ranges::all_of(here, [&](int peer) {
                            return one_sided->reader_->reaches(peer);
                          });
  one_sided->engine_ = parts.engine;
  one_sided->check_ = std::make_shared<WaitCheck>(parts.engine, rank);
  const auto check = [look = one_sided->check_] { look->look(); };
  one_sided->tasks_ = std::make_unique<TaskQueue>(fmt::format("rank {}, windows", rank), check);
  one_sided->looks_.resize(size);
  if (any_rank(bootstrap, is_cut_off, deadline)) {
    require_threads(bootstrap);
    auto network = make_network(bootstrap, parts.settings, deadline);
    if (!network) {
      throw UnsupportedError(fmt::format(
          "rank {}: windows need a transport between ranks that cannot read each other's memory, "
          "and bootstrap '{}' offers none",
          rank, bootstrap.name()));
    }
    one_sided->server_ = std::make_unique<WindowServer>(std::move(network), rank, bootstrap.size(),
                                                        parts.settings.poll_period, check);
  }
  return one_sided;
}

OneSided::~OneSided() { close(); }

Deadline OneSided::deadline() const { return Deadline::after(timeout_); }

std::optional<std::string> OneSided::cause_of_death(int rank) {
  if (rank == rank_) {
    return std::nullopt;
  }
  const std::scoped_lock lock(mutex_);
  Look& look = looks_[static_cast<std::size_t>(rank)];
  if (!look.cause_of_death) {
    const auto now = Deadline::Clock::now();
    if (now < look.next) {
      return std::nullopt;
    }
    look.next = now + kPeerLookPeriod;
    look.cause_of_death = engine_->cause_of_death(rank);
  }
  return look.cause_of_death;
}

void OneSided::close() noexcept {
  if (check_) {
    check_->end_at(Deadline::Clock::now() + linger::within(linger::kWindowCalls, timeout_));
  }
  if (tasks_) {
    tasks_->close();
  }
  if (server_) {
    server_->close();
  }
}

PeerMemory& OneSided::make_peer_memory(DeviceChannel& channel) {
  if (!peer_memory_) {
    peer_memory_ = std::make_unique<PeerMemory>(channel.shared_cuda(), channel.device(), *memory_,
                                                rank_, channel.is_stuck());
  }
  return *peer_memory_;
}

void OneSided::leave_devices() noexcept {
  if (peer_memory_) {
    peer_memory_->leave(linger::within(linger::kDeviceMemory, timeout_));
  }
}

}  // namespace bluefog
