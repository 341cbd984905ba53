#include "bluefog_cpp/transport/one_sided/one_sided.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "bluefog_cpp/base/error.hpp"
#include "bluefog_cpp/transport/context.hpp"
#include "bluefog_cpp/transport/nccl/device_channel.hpp"
#include "bluefog_cpp/transport/network.hpp"
#include "bluefog_cpp/transport/peer/peer_memory.hpp"

namespace bluefog {
namespace {

constexpr std::chrono::milliseconds kPeerLookPeriod{20};
/// How long a rank that leaves waits for others to let go of its device memory, before it leaves
/// that to the process's end.
constexpr std::chrono::seconds kLongestPeerFarewell{2};

/// Ranks with the same text may share memory.
std::vector<std::string> sharing_groups(const Context& context) {
  std::vector<std::string> groups;
  for (int rank = 0; rank < context.size(); ++rank) {
    const bool is_apart = context.settings().transport == TransportChoice::Mpi;
    groups.push_back(std::to_string(is_apart ? rank : context.hosts().machine_of(rank)));
  }
  return groups;
}

/// Windows use a network from a thread of their own.
void require_threads(Context& context) {
  if (const auto obstacle = context.bootstrap().concurrency_obstacle(); !obstacle.empty()) {
    throw UnsupportedError(fmt::format(
        "rank {}, win_create: windows between ranks that share no memory use MPI from a thread of "
        "their own: {}",
        context.rank(), obstacle));
  }
}

bool any_rank(Bootstrap& bootstrap, bool flag, Deadline deadline) {
  const std::array word{flag ? std::byte{1} : std::byte{0}};
  return std::ranges::any_of(bootstrap.allgather(word, deadline), [](const auto& blob) {
    return !blob.empty() && blob[0] != std::byte{0};
  });
}

}  // namespace

std::shared_ptr<OneSided> OneSided::connect(Context& context) {
  if (context.uses_network()) {
    require_threads(context);  // before bootstrap calls, beside which the engine may use MPI
  }
  std::shared_ptr<OneSided> one_sided(new OneSided());
  one_sided->rank_ = context.rank();
  one_sided->timeout_ = context.settings().timeout;
  const Deadline deadline = one_sided->deadline();
  Bootstrap& bootstrap = context.bootstrap();
  const auto size = static_cast<std::size_t>(context.size());
  one_sided->memory_ = shm::HostMemory::connect(bootstrap, sharing_groups(context), deadline);
  std::vector<int> here;
  for (int rank = 0; rank < context.size(); ++rank) {
    if (one_sided->memory_->reaches(rank)) {
      here.push_back(rank);
    }
  }
  one_sided->reader_ = std::make_unique<MemoryReader>(bootstrap, here, deadline);
  const bool is_cut_off = here.size() < size || !std::ranges::all_of(here, [&](int rank) {
                            return one_sided->reader_->reaches(rank);
                          });
  one_sided->engine_ = context.engine().shared_from_this();
  const auto check = [engine = one_sided->engine_] { engine->check_interrupt(); };
  one_sided->tasks_ = std::make_unique<TaskQueue>(
      fmt::format("rank {}, windows", context.rank()), check);
  one_sided->looks_.resize(size);
  if (any_rank(bootstrap, is_cut_off, deadline)) {
    require_threads(context);
    auto network = make_network(bootstrap, context.settings(), deadline);
    if (!network) {
      throw UnsupportedError(fmt::format(
          "rank {}: windows need a transport between ranks that cannot read each other's memory, "
          "and bootstrap '{}' offers none",
          context.rank(), bootstrap.name()));
    }
    one_sided->server_ = std::make_unique<WindowServer>(
        std::move(network), context.rank(), context.size(), context.settings().poll_period, check);
  }
  return one_sided;
}

OneSided::~OneSided() { close(); }

Deadline OneSided::deadline() const { return Deadline::after(timeout_); }

void OneSided::check_interrupt() const { engine_->check_interrupt(); }

std::optional<std::string> OneSided::obituary(int rank) {
  if (rank == rank_) {
    return std::nullopt;
  }
  const std::scoped_lock lock(mutex_);
  Look& look = looks_[static_cast<std::size_t>(rank)];
  if (!look.obituary) {
    const auto now = Deadline::Clock::now();
    if (now < look.next) {
      return std::nullopt;
    }
    look.next = now + kPeerLookPeriod;
    look.obituary = engine_->obituary(rank);
  }
  return look.obituary;
}

void OneSided::close() noexcept {
  if (tasks_) {
    tasks_->close();
  }
  if (server_) {
    server_->close();
  }
}

PeerMemory& OneSided::make_peer_memory(DeviceChannel& channel) {
  if (!peer_memory_) {
    peer_memory_ =
        std::make_unique<PeerMemory>(channel.shared_cuda(), channel.device(), *memory_, rank_);
  }
  return *peer_memory_;
}

void OneSided::leave_devices() noexcept {
  if (peer_memory_) {
    peer_memory_->leave(timeout_.count() == 0
                            ? std::chrono::nanoseconds(kLongestPeerFarewell)
                            : std::min<std::chrono::nanoseconds>(timeout_, kLongestPeerFarewell));
  }
}

}  // namespace bluefog
