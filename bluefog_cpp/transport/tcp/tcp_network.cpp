#include "bluefog_cpp/transport/tcp/tcp_network.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <exception>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bluefog_cpp/base/files/take_line.hpp"
#include "bluefog_cpp/base/system_limits.hpp"
#include "bluefog_cpp/bootstrap/own_problem.hpp"
#include "bluefog_cpp/error.hpp"
#include "bluefog_cpp/transport/host_sharing.hpp"
#include "bluefog_cpp/transport/tcp/addresses.hpp"
#include "bluefog_cpp/transport/tcp/tcp_transport.hpp"

namespace bluefog::tcp {
namespace {

/// The lines of text by which a rank introduces itself to the others.
struct Card {
  std::string version{};
  std::string host{};
  std::string secret{};
  /// Why it cannot listen; empty where it does.
  std::string problem{};
  std::vector<std::string> endpoints{};
};

std::string text_of(const Card& card) {
  std::string problem = card.problem;
  std::ranges::replace(problem, '\n', ' ');
  std::string text = fmt::format("{}\n{}\n{}\n{}\n", card.version, card.host, card.secret, problem);
  for (const std::string& endpoint : card.endpoints) {
    text += endpoint + '\n';
  }
  return text;
}

Card card_of(const Bootstrap::Blob& blob) {
  std::string_view text(reinterpret_cast<const char*>(blob.data()), blob.size());
  Card card;
  card.version = take_line(text);
  card.host = take_line(text);
  card.secret = take_line(text);
  card.problem = take_line(text);
  while (!text.empty()) {
    card.endpoints.push_back(take_line(text));
  }
  return card;
}

std::string hex_of(const Secret& secret) {
  std::string text;
  for (const auto* const half : {&secret.caller, &secret.answerer}) {
    for (const std::uint8_t byte : *half) {
      text += fmt::format("{:02x}", byte);
    }
  }
  return text;
}

Secret secret_of(std::string_view text) {
  Secret secret;
  std::size_t at = 0;
  for (auto* const half : {&secret.caller, &secret.answerer}) {
    for (std::uint8_t& byte : *half) {
      const auto digits = text.substr(std::min(at, text.size()), 2);
      if (digits.size() != 2 ||
          std::from_chars(digits.data(), digits.data() + 2, byte, 16).ptr != digits.data() + 2) {
        throw InternalError("TCP transport: rank 0 sent no secret");
      }
      at += 2;
    }
  }
  return secret;
}

/// A socket that listens on all addresses is named by each of them.
std::vector<std::string> endpoints_of(const Lobby& lobby, const std::vector<LocalAddress>& local) {
  std::vector<std::string> endpoints;
  for (const Endpoint& endpoint : lobby.listening()) {
    if (!endpoint.address().is_unspecified()) {
      endpoints.push_back(to_text(endpoint));
      continue;
    }
    for (const LocalAddress& one : local) {
      if (one.address.is_v4() || endpoint.address().is_v6()) {
        endpoints.push_back(to_text(Endpoint(one.address, endpoint.port())));
      }
    }
  }
  return endpoints;
}

void check(const std::vector<Card>& cards, int rank) {
  for (std::size_t other = 0; other < cards.size(); ++other) {
    if (cards[other].version != cards.front().version) {
      throw UnsupportedError(fmt::format(
          "rank {}, TCP transport: expected the same version of this library on all ranks, rank 0 "
          "has {}, rank {} has {}",
          rank, cards.front().version, other, cards[other].version));
    }
    if (!cards[other].problem.empty()) {
      throw PeerFailure(static_cast<int>(other),
                        fmt::format("rank {}, TCP transport: rank {} cannot listen: {}", rank,
                                    other, cards[other].problem));
    }
  }
}

}  // namespace

std::unique_ptr<Transport> make_network(Bootstrap& bootstrap, const Settings& settings,
                                        Deadline deadline) {
  raise_descriptor_limit();
  const int rank = bootstrap.rank();
  std::exception_ptr problem;
  std::unique_ptr<Lobby> lobby;
  std::vector<LocalAddress> local;
  Card mine{.version = library_version(), .host = shm::detect_host_id()};
  try {
    local = local_addresses();
    lobby = std::make_unique<Lobby>(
        chosen_addresses(settings.tcp_interface, local),
        PortRange{.first = static_cast<std::uint16_t>(settings.tcp_first_port),
                  .last = static_cast<std::uint16_t>(settings.tcp_last_port)});
    mine.endpoints = endpoints_of(*lobby, local);
    if (rank == 0) {
      mine.secret = hex_of(Secret::make());
    }
  } catch (const Error& error) {
    problem = std::current_exception();
    mine.problem = error.what();
  }
  const std::string text = text_of(mine);
  std::vector<Card> cards;
  for (const auto& blob :
       allgather_unless(problem, bootstrap, std::as_bytes(std::span(text)), deadline)) {
    cards.push_back(card_of(blob));
  }
  check(cards, rank);

  Lobby::Options guests{
      .rank = rank, .secret = secret_of(cards.front().secret), .patience = settings.timeout};
  for (const Card& card : cards) {
    std::vector<Endpoint> endpoints;
    for (const std::string& endpoint : card.endpoints) {
      endpoints.push_back(endpoint_of(endpoint));
    }
    guests.endpoints.push_back(reachable(std::move(endpoints), local, card.host == mine.host));
  }
  return std::make_unique<TcpTransport>(
      std::move(lobby), std::move(guests),
      TcpTransportOptions{
          .socket_bytes = settings.tcp_socket_bytes,
          .silence = std::chrono::duration_cast<std::chrono::milliseconds>(settings.tcp_silence),
          .heartbeat = std::chrono::duration_cast<std::chrono::milliseconds>(settings.heartbeat)});
}

}  // namespace bluefog::tcp
