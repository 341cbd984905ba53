#include "bluefog_cpp/transport/shm/connect.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <exception>
#include <fstream>
#include <optional>
#include <span>
#include <utility>

#include "bluefog_cpp/base/error.hpp"
#include "bluefog_cpp/transport/shm/fd_channel.hpp"

namespace bluefog::shm {
namespace {

using Blob = Bootstrap::Blob;

Blob to_blob(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

std::string to_text(const Blob& blob) {
  return {reinterpret_cast<const char*>(blob.data()), blob.size()};
}

std::vector<int> ranks_of_host(const std::vector<std::string>& host_ids, int rank) {
  std::vector<int> ranks;
  for (std::size_t r = 0; r < host_ids.size(); ++r) {
    if (host_ids[r] == host_ids[static_cast<std::size_t>(rank)]) {
      ranks.push_back(static_cast<int>(r));
    }
  }
  return ranks;
}

/// Threads exchange the addresses of their handles and copy them.
std::vector<Peer> exchange_in_process(Bootstrap& bootstrap, const std::vector<int>& ranks,
                                      const std::shared_ptr<SharedRegion>& own, Deadline deadline) {
  const auto* address = &own;
  const auto blobs = bootstrap.allgather(std::as_bytes(std::span(&address, 1)), deadline);
  std::vector<Peer> peers(ranks.size());
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const std::shared_ptr<SharedRegion>* theirs = nullptr;
    std::memcpy(&theirs, blobs[static_cast<std::size_t>(ranks[i])].data(), sizeof(theirs));
    peers[i].rank = ranks[i];
    peers[i].region = *theirs;
  }
  bootstrap.barrier(deadline);  // the handles stay where they are until all have copied them
  return peers;
}

/// Connects to the lower ranks of the host and accepts the higher ones.
std::vector<Peer> exchange_between_processes(const std::vector<int>& ranks, int rank,
                                             const std::vector<Blob>& invitations,
                                             const FdListener& listener,
                                             const std::array<std::byte, 16>& token,
                                             const std::shared_ptr<SharedRegion>& own,
                                             Deadline deadline) {
  std::vector<Peer> peers(ranks.size());
  const auto greet = [&](std::size_t index, const std::array<std::byte, 16>& their_token) {
    send_greeting(peers[index].socket.get(), {.rank = rank, .token = their_token}, own->fd());
  };
  const auto token_of = [&](int r) {
    std::array<std::byte, 16> theirs{};
    const Blob& blob = invitations[static_cast<std::size_t>(r)];
    if (blob.size() <= theirs.size()) {
      throw TransportError(fmt::format("shared memory set-up: rank {} sent no invitation", r));
    }
    std::memcpy(theirs.data(), blob.data(), theirs.size());
    return theirs;
  };
  std::size_t higher = 0;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    peers[i].rank = ranks[i];
    if (ranks[i] < rank) {
      const auto their_token = token_of(ranks[i]);
      peers[i].socket = connect_to(
          to_text(invitations[static_cast<std::size_t>(ranks[i])]).substr(their_token.size()));
      greet(i, their_token);
    } else if (ranks[i] == rank) {
      peers[i].region = own;
    } else {
      ++higher;
    }
  }
  const auto take = [&](UniqueFd socket, std::optional<std::size_t> expected) {
    Greeting greeting;
    UniqueFd fd = receive_greeting(socket.get(), greeting, deadline);
    const auto it = std::ranges::find(ranks, greeting.rank);
    const auto index = static_cast<std::size_t>(it - ranks.begin());
    if (greeting.token != token || it == ranks.end() || (expected && *expected != index) ||
        peers[index].region) {
      throw TransportError(fmt::format(
          "shared memory set-up: rank {} received a greeting that is not from this job", rank));
    }
    peers[index].region = SharedRegion::map(std::move(fd));
    peers[index].socket = std::move(socket);
    return index;
  };
  for (std::size_t i = 0; i < higher; ++i) {
    const std::size_t index = take(listener.accept(deadline), std::nullopt);
    greet(index, token_of(ranks[index]));
  }
  for (std::size_t i = 0; ranks[i] < rank; ++i) {
    take(std::move(peers[i].socket), i);
  }
  return peers;
}

}  // namespace

std::string detect_host_id() {
  std::string id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> id;
  // Sockets of the abstract namespace do not reach into another network namespace.
  std::array<char, 64> link{};
  const ssize_t length = ::readlink("/proc/self/ns/net", link.data(), link.size() - 1);
  if (length > 0) {
    id += ':';
    id.append(link.data(), static_cast<std::size_t>(length));
  }
  return id;
}

ConnectResult connect(Bootstrap& bootstrap, std::string_view name,
                      const std::vector<std::string>& host_ids, const ShmOptions& options,
                      Deadline deadline) {
  const int rank = bootstrap.rank();
  const std::vector<int> ranks = ranks_of_host(host_ids, rank);
  const bool is_alone = ranks.size() == 1;
  std::shared_ptr<SharedRegion> own;
  std::optional<FdListener> listener;
  std::string error;
  std::array<std::byte, 16> token{};
  Blob invitation;
  try {
    if (!is_alone) {
      own = SharedRegion::create(ShmTransport::region_bytes(ranks.size(), options));
      ShmTransport::initialize(*own, ranks.size(), options);
    }
    if (!is_alone && !bootstrap.in_process()) {
      token = random_token();
      listener = FdListener::open(static_cast<int>(ranks.size()));
      invitation.assign(token.begin(), token.end());
      const Blob socket_name = to_blob(listener->name());
      invitation.insert(invitation.end(), socket_name.begin(), socket_name.end());
    }
  } catch (const std::exception& e) {
    error = e.what();
  }
  // Every rank takes part in every step of the bootstrap, whatever went wrong before.
  std::vector<Peer> peers;
  if (bootstrap.in_process()) {
    if (error.empty()) {
      peers = exchange_in_process(bootstrap, ranks, own, deadline);
    } else {
      (void)exchange_in_process(bootstrap, {}, own, deadline);
    }
  } else {
    const auto invitations = bootstrap.allgather(invitation, deadline);
    try {
      if (!is_alone && error.empty()) {
        peers =
            exchange_between_processes(ranks, rank, invitations, *listener, token, own, deadline);
      }
    } catch (const std::exception& e) {
      error = e.what();
    }
  }
  ConnectResult result;
  if (!is_alone && error.empty()) {
    try {
      const auto index = static_cast<std::size_t>(std::ranges::find(ranks, rank) - ranks.begin());
      result.transport =
          std::make_unique<ShmTransport>(name, bootstrap.size(), std::move(peers), index, options);
    } catch (const std::exception& e) {
      error = e.what();
    }
  }
  for (const Blob& blob : bootstrap.allgather(to_blob(error), deadline)) {
    result.errors.push_back(to_text(blob));
  }
  const bool some_failed = std::ranges::any_of(
      ranks, [&](int r) { return !result.errors[static_cast<std::size_t>(r)].empty(); });
  if (some_failed) {
    result.transport.reset();
  }
  return result;
}

}  // namespace bluefog::shm
