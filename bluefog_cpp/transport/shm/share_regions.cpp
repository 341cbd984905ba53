#include "bluefog_cpp/transport/shm/share_regions.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <exception>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "bluefog_cpp/error.hpp"
#include "bluefog_cpp/transport/fd_channel.hpp"

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

/// This rank's listener, and what the other ranks of the host need to reach it: token and name.
struct Invitation {
  std::optional<FdListener> listener{};
  std::array<std::byte, 16> token{};
  Blob blob{};

  static Invitation make(std::size_t local_size) {
    Invitation invitation;
    invitation.token = random_token();
    invitation.listener = FdListener::open(static_cast<int>(local_size));
    invitation.blob.assign(invitation.token.begin(), invitation.token.end());
    const Blob name = to_blob(invitation.listener->name());
    invitation.blob.insert(invitation.blob.end(), name.begin(), name.end());
    return invitation;
  }
};

}  // namespace

HostRegions share_regions(Bootstrap& bootstrap, const std::vector<std::string>& host_ids,
                          const std::function<std::shared_ptr<SharedRegion>()>& make_region,
                          Deadline deadline) {
  const int rank = bootstrap.rank();
  const std::vector<int> ranks = ranks_of_host(host_ids, rank);
  const bool is_alone = ranks.size() == 1;
  HostRegions regions;
  regions.own = static_cast<std::size_t>(std::ranges::find(ranks, rank) - ranks.begin());
  std::shared_ptr<SharedRegion> own;
  Invitation invitation;
  try {
    if (!is_alone) {
      own = make_region();
      if (!bootstrap.in_process()) {
        invitation = Invitation::make(ranks.size());
      }
    }
  } catch (const std::exception& e) {
    regions.error = e.what();
  }
  // Every rank takes part in every step of the bootstrap, whatever went wrong before.
  const bool shares = !is_alone && regions.error.empty();
  if (bootstrap.in_process()) {
    regions.peers =
        exchange_in_process(bootstrap, shares ? ranks : std::vector<int>{}, own, deadline);
    if (std::ranges::any_of(regions.peers, [](const Peer& peer) { return !peer.region; })) {
      regions.peers.clear();  // that rank says why
    }
    return regions;
  }
  const auto invitations = bootstrap.allgather(invitation.blob, deadline);
  try {
    if (shares) {
      regions.peers = exchange_between_processes(ranks, rank, invitations, *invitation.listener,
                                                 invitation.token, own, deadline);
    }
  } catch (const std::exception& e) {
    regions.error = e.what();
  }
  return regions;
}

std::vector<std::string> gather_errors(Bootstrap& bootstrap, const std::string& error,
                                       Deadline deadline) {
  std::vector<std::string> errors;
  for (const Blob& blob : bootstrap.allgather(to_blob(error), deadline)) {
    errors.push_back(to_text(blob));
  }
  return errors;
}

}  // namespace bluefog::shm
