#pragma once

#include <cstdint>
#include <string>

namespace bluefog {

class Letters;

/// Reports of other ranks about calls: kept by the ledger of calls, read by exchanges.
class PeerReports {
 public:
  PeerReports() = default;
  PeerReports(const PeerReports&) = delete;
  PeerReports& operator=(const PeerReports&) = delete;
  virtual ~PeerReports() = default;

  /// Why `rank` refused its call number `call` or ended it with an error, or null.
  [[nodiscard]] virtual const std::string* refusal(int rank, std::uint64_t call) const = 0;
  /// Whether `abandonment` may find something.
  [[nodiscard]] virtual bool knows_of_abandonment() const noexcept = 0;
  /// Why `rank` has left its call number `call` without waiting for its end, or null.
  [[nodiscard]] virtual const std::string* abandonment(int rank, std::uint64_t call) const = 0;
  /// Whether `call`, which `rank` makes too, has begun here and has not ended: it takes its
  /// messages itself.
  [[nodiscard]] virtual bool is_under_way(int rank, std::uint64_t call) const = 0;
  /// What has come by mail, and is to be taken.
  [[nodiscard]] virtual Letters& letters() noexcept = 0;
  /// Offers of `rank` in calls up to this one need no taker from now on.
  virtual void note_unneeded_offers(int rank, std::uint64_t call) = 0;
  /// Whether an offer of `rank` in `call` may go without one.
  [[nodiscard]] virtual bool needs_no_offer(int rank, std::uint64_t call) const = 0;
  /// `rank` sent a message in `call`, described by `text`, that no exchange here took.
  virtual void report_unexpected(int rank, std::uint64_t call, const std::string& text) = 0;
};

}  // namespace bluefog
