#pragma once

#include <exception>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bluefog_cpp/engine/peers.hpp"
#include "bluefog_cpp/engine/records/revocation.hpp"

namespace bluefog {

/// Ranks whose programs cannot go on: their calls are those of steps alone, whatever the others make,
/// so that another call of these is the end of such a rank's part in the group, and no mistake.
///
/// Used under the engine's mutex.
class GivenUp {
 public:
  /// @param peers, revocation outlive this object.
  GivenUp(Peers& peers, const Revocation& revocation) noexcept
      : peers_(peers), revocation_(revocation) {}

  /// Has all ranks know that this rank has given up. @param why a clause.
  void tell(std::string_view why) { peers_.report({}, why, ControlMessage::Kind::GivenUp); }
  /// Notes what a peer reports.
  void hear(int source, std::string why) { ranks_.emplace_back(source, std::move(why)); }

  /// That rank's part has ended: why calls are to be revoked. Nothing where it has not given up, or
  /// calls are revoked already, or the loss of a rank is an error.
  [[nodiscard]] std::optional<Revocation::Reason> reason_of(int rank) const;
  /// The same where a call has ended with `error`, because a rank has given up.
  [[nodiscard]] std::optional<Revocation::Reason> reason_of(const std::exception_ptr& error) const;
  /// The cause of death of that rank as a clause: what it has said itself, where it has given up.
  [[nodiscard]] std::optional<std::string> cause(int rank, std::optional<std::string> seen) const;

 private:
  [[nodiscard]] const std::string* why(int rank) const noexcept;

  Peers& peers_;
  const Revocation& revocation_;
  std::vector<std::pair<int, std::string>> ranks_{};
};

}  // namespace bluefog
