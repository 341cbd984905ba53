#pragma once

#include <exception>
#include <optional>
#include <string>
#include <string_view>

#include "bluefog_cpp/engine/exchange.hpp"
#include "bluefog_cpp/engine/peers.hpp"

namespace bluefog {

/// The end of all calls of a context, for good, because its ranks go on without one that is lost:
/// what is known of it, and what counts as a reason. MPI calls it so (MPIX_Comm_revoke).
///
/// Used under the engine's mutex.
class Revocation {
 public:
  struct Reason {
    int lost = -1;     ///< the rank that the others go on without, or the one that revokes
    std::string text;  ///< a sentence without its end
  };

  /// @param by_losses whether the loss of a rank is a reason. @param peers outlive this object.
  Revocation(Peers& peers, bool by_losses) : peers_(peers), by_losses_(by_losses) {}

  /// Whether calls are revoked.
  [[nodiscard]] bool is_known() const noexcept { return reason_.has_value(); }
  /// The error of a call that ends so. @param where "call 5, barrier".
  [[nodiscard]] std::exception_ptr error(std::string_view where) const;

  /// Notes what a peer reports. The first reason counts.
  void hear(Reason reason);
  /// Notes it, and reports it to the peers where none has.
  void begin(Reason reason);

  /// The end of a process, if there is one and losses count: other ranks may have heard of it before,
  /// and not wait for it.
  [[nodiscard]] std::optional<Reason> by_the_dead();
  /// `rank`, which is waited for, will not come any more.
  [[nodiscard]] std::optional<Reason> by_the_gone(int rank, std::string_view cause) const;
  /// A rank that `exchange` waits for has not come in time.
  [[nodiscard]] std::optional<Reason> by_the_late(const Exchange& exchange,
                                                  std::string_view why) const;
  /// This rank wants it: the first rank that is gone, or `why`.
  [[nodiscard]] Reason by_this_rank(std::string_view why);

 private:
  Peers& peers_;
  bool by_losses_;
  std::optional<Reason> reason_{};
};

}  // namespace bluefog
