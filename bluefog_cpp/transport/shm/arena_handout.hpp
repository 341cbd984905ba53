#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bluefog_cpp/base/files/unique_fd.hpp"
#include "bluefog_cpp/deadline.hpp"
#include "bluefog_cpp/transport/fd_channel.hpp"
#include "bluefog_cpp/transport/shm/host_arena.hpp"

namespace bluefog::shm {

/// The side of the rank that hands its arena out to the other ranks of its host.
///
/// Whoever is no rank of the job is dropped and holds up nobody: a process of another user, one
/// that does not know the token, one that sends half a greeting, one that says nothing.
class ArenaGiver {
 public:
  /// @param ranks the ranks of the host, this one first. @throws TransportError.
  explicit ArenaGiver(const std::vector<int>& ranks);

  [[nodiscard]] const Token& token() const noexcept { return token_; }
  /// The name that other ranks connect to.
  [[nodiscard]] const std::string& name() const noexcept { return listener_.name(); }

  /// Returns when every other rank has it. @throws TransportError; TimeoutError with the ranks that
  /// have not come before the deadline.
  void give(const HostArena& arena, Deadline deadline);
  ~ArenaGiver();
  ArenaGiver(const ArenaGiver&) = delete;
  ArenaGiver& operator=(const ArenaGiver&) = delete;

 private:
  struct Guest;

  void admit();
  /// @return whether the guest may go.
  bool serve(Guest& guest, const HostArena& arena);

  int rank_;
  std::vector<int> missing_;
  Token token_;
  FdListener listener_;
  std::vector<Guest> guests_;
};

/// The side of a rank that gets the arena. Takes its descriptor before the other ranks count on it.
class ArenaTaker {
 public:
  /// @throws TransportError.
  explicit ArenaTaker(int rank) : rank_(rank), socket_(make_socket()) {}

  /// @param name where the giver listens. @throws TransportError, TimeoutError.
  [[nodiscard]] std::shared_ptr<HostArena> take(const std::string& name, const Token& token,
                                                Deadline deadline);

 private:
  int rank_;
  UniqueFd socket_;
};

}  // namespace bluefog::shm
