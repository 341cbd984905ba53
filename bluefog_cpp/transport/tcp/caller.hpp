#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <cstddef>
#include <memory>
#include <string>

#include "bluefog_cpp/base/files/unique_fd.hpp"
#include "bluefog_cpp/deadline.hpp"
#include "bluefog_cpp/transport/tcp/addresses.hpp"
#include "bluefog_cpp/transport/tcp/lobby.hpp"

namespace bluefog::tcp {

/// Calls other ranks: looks for an endpoint that answers, greets there, and hands the connection to
/// the guest.
///
/// An endpoint that does not answer is tried again, in turn with the rank's others, until its host
/// counts as gone. Once one has taken the connection, its answer is waited for: where the rank is
/// only slow, it would take a second connection for the end of the first.
///
/// Used on the lobby's thread.
class Caller {
 public:
  /// @param options and @param guest outlive it.
  Caller(boost::asio::io_context& io, const Lobby::Options& options, LobbyGuest& guest)
      : io_(io), options_(options), guest_(guest) {}

  void call(int rank, std::size_t channel);

 private:
  struct Call;
  using Shared = std::shared_ptr<Call>;

  void begin(const Shared& call);
  void begin_round(const Shared& call);
  void try_next(const Shared& call);
  static void limit(const Shared& call, Deadline until);
  void fail(const Shared& call, const Endpoint& endpoint, const std::string& why);
  void end_round(const Shared& call);
  void greet(const Shared& call, const Endpoint& endpoint);
  void on_answer(const Shared& call, const Endpoint& endpoint);
  void await_other_call(const Shared& call);

  boost::asio::io_context& io_;
  const Lobby::Options& options_;
  LobbyGuest& guest_;
};

/// The descriptor of a connection that was greeted, as the transport wants it.
[[nodiscard]] shm::UniqueFd take_socket(boost::asio::ip::tcp::socket& socket);

}  // namespace bluefog::tcp
