#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tools/bfrun/job/descriptor.hpp"

namespace bluefog::bfrun {

/// Variable that tells the watchers on other machines where bfrun listens for them.
inline constexpr const char* kHostLineVariable = "BFRUN_HOST_LINE";

/// The ear of bfrun for the watchers on other machines, by which it learns that one of these cannot
/// be reached any more: mpirun waits for ever for what a lost machine would have said.
///
/// A connection of TCP to each watcher, on which nothing is said after the greeting but which of its
/// connections the watcher keeps. The systems at
/// both ends look whether the other one is there, so that a rank may compute, or be stopped, for as
/// long as it likes. Who does not show the secret is dropped. A watcher that cannot connect, past a
/// firewall for instance, is not looked after.
class HostLine {
 public:
  struct Listener {
    /// The connection of a rank's watcher broke. @param why in words.
    std::function<void(int rank, const std::string& why)> on_lost;
    /// The watcher has ended.
    std::function<void(int rank)> on_end;
  };

  /// Listens on all addresses of this machine.
  /// @param addresses those by which watchers may reach it.
  /// @param secret 32 characters that nobody guesses.
  /// @param silence how long a machine may answer nothing.
  HostLine(const std::vector<std::string>& addresses, std::string secret,
           std::chrono::seconds silence);

  /// The value of kHostLineVariable; empty where nobody listens.
  [[nodiscard]] const std::string& place() const { return place_; }
  /// Readable when there is something to serve; −1 where nobody listens.
  [[nodiscard]] int descriptor() const { return events_.get(); }
  /// Takes what is there. Does not block.
  void serve(const Listener& listener);

 private:
  struct Guest {
    Descriptor socket;
    std::string greeting;
    int rank = -1;         ///< −1 until it has greeted
    bool is_kept = false;  ///< the watcher, which tries several addresses at once, has said so
  };

  void accept_guests();
  void make_room();
  /// Returns whether the guest stays.
  [[nodiscard]] bool hear(Guest& guest, const Listener& listener) const;
  [[nodiscard]] bool welcome(Guest& guest) const;

  std::chrono::seconds silence_;
  std::string secret_;
  std::string place_;
  Descriptor events_;
  Descriptor socket_;
  std::map<int, Guest> guests_;  ///< by descriptor
};

/// The end of the line of a watcher on another machine.
class HostLineEnd {
 public:
  /// No connection.
  HostLineEnd() = default;
  /// Tries all addresses of `place` at once, for `kPatience` at most.
  HostLineEnd(std::string_view place, int rank);

  /// Readable once bfrun has ended, or cannot be reached any more; −1 where not connected.
  [[nodiscard]] int descriptor() const { return socket_.get(); }

  static constexpr std::chrono::milliseconds kPatience{2000};

 private:
  Descriptor socket_;
};

}  // namespace bluefog::bfrun
