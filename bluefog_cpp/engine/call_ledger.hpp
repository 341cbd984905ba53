#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "bluefog_cpp/engine/call_key.hpp"
#include "bluefog_cpp/engine/call_queue.hpp"
#include "bluefog_cpp/engine/letters.hpp"
#include "bluefog_cpp/engine/peer_reports.hpp"
#include "bluefog_cpp/engine/peers.hpp"
#include "bluefog_cpp/transport/message.hpp"

namespace bluefog {

/// The book of one context's calls: their numbers, those that failed here, and other ranks' reports
/// of theirs.
///
/// Calls of all ranks have one count, calls of two ranks one for each pair; refused calls count
/// too, so that ranks stay in step when one of them refuses. Used under the engine's mutex.
class CallLedger final : public PeerReports {
 public:
  /// @param queue the calls under way; both outlive the ledger.
  CallLedger(Peers& peers, const CallQueue& queue);

  /// Counts a call. @param partner as `Operation::partner`. @return its number.
  [[nodiscard]] std::uint64_t take_number(int partner);
  /// Counts a message to `partner`, or a receipt from it.
  [[nodiscard]] std::uint64_t take_number(int partner, Letter& letter) {
    return letters_.take_number(partner, letter);
  }
  /// The number of the next call of all ranks.
  [[nodiscard]] std::uint64_t next_call() const noexcept { return next_call_; }

  /// A call of all ranks that has changed a buffer of its caller here; call 0: none.
  struct Change {
    std::uint64_t call = 0;
    std::int64_t count = 0;
    OpKind kind = OpKind::Barrier;
    Dtype dtype = Dtype::UInt8;
  };
  void note_change(std::uint64_t call, const Envelope& envelope) noexcept {
    changes_[change_count_++ % changes_.size()] = {
        .call = call, .count = envelope.count, .kind = envelope.kind, .dtype = envelope.dtype};
  }
  static constexpr std::size_t kKeptCalls = 32;
  using Changes = std::array<Change, kKeptCalls>;
  /// The last ones, in no order.
  [[nodiscard]] const Changes& changes() const noexcept { return changes_; }
  /// The last calls of all ranks, since they went on together, that failed or were refused here and
  /// have changed nothing; 0: none. In no order.
  [[nodiscard]] std::array<std::uint64_t, kKeptCalls> failed_without_change() const noexcept;
  /// The numbers of calls made with each partner alone.
  [[nodiscard]] const std::vector<std::uint64_t>& pair_calls() const noexcept {
    return pair_calls_;
  }
  /// Goes on with the call of that number; those before it that this rank has not made count as
  /// failed. @param pair_calls likewise, how many of each partner are over.
  void go_on_from(std::uint64_t next_call, std::vector<std::uint64_t> pair_calls);

  /// Whether this rank has made that call, and it has ended.
  [[nodiscard]] bool is_over(CallKey key) const noexcept;

  /// The call failed or was refused here: its messages may still come.
  void note_failed(CallKey key);
  /// Whether it is one of the last `Transport::kMostWaitingControls` calls that failed, or one
  /// before those with which ranks have gone on together.
  [[nodiscard]] bool has_failed(CallKey key) const noexcept;
  /// Whether a call of all ranks of that number or a later one is among them.
  [[nodiscard]] bool has_failed_since(std::uint64_t first_call) const noexcept;
  [[nodiscard]] bool has_failed_calls() const noexcept { return !failed_calls_.empty(); }

  /// The call of another rank that it refused, left or ended with an error.
  struct Refusal {
    std::uint64_t call = 0;
    ControlMessage::Kind kind = ControlMessage::Kind::Refusal;
    std::string reason;
  };
  /// `rank` reported a refusal. Kept until the call is over here; dropped if it is.
  void note_refusal(int rank, ControlMessage report);
  [[nodiscard]] const Refusal* find_refusal(int rank, std::uint64_t call) const;

  /// A call that is over here does not fit another rank's: the next call to end says so, once per
  /// call although both sides notice and both get a report of the other.
  void note_late_mismatch(CallKey key, std::string text);
  /// The error of that call says it.
  void forget_late_mismatch(CallKey key);
  /// Whether a call that ends now has to say it: parts of a larger call leave it to the whole one.
  [[nodiscard]] bool has_late_mismatch() const noexcept {
    return !late_mismatch_.empty() && larger_calls_ == 0;
  }
  /// Its text, empty where there is none.
  [[nodiscard]] std::string take_late_mismatch() { return std::exchange(late_mismatch_, {}); }
  void count_larger_calls(int change) noexcept { larger_calls_ += change; }

  /// Whether a wait has timed out, here or at another rank.
  [[nodiscard]] bool has_abandoned() const noexcept { return has_abandoned_; }
  void note_abandonment() noexcept { has_abandoned_ = true; }

  [[nodiscard]] const std::string* refusal(int rank, std::uint64_t call) const override;
  [[nodiscard]] bool knows_of_abandonment() const noexcept override {
    return knows_of_abandonment_;
  }
  [[nodiscard]] const std::string* abandonment(int rank, std::uint64_t call) const override;
  [[nodiscard]] bool is_under_way(int rank, std::uint64_t call) const override;
  [[nodiscard]] Letters& letters() noexcept override { return letters_; }
  void note_unneeded_offers(int rank, std::uint64_t call) override {
    auto& last = unneeded_offers_[static_cast<std::size_t>(rank)];
    last = std::max(last, call);
  }
  [[nodiscard]] bool needs_no_offer(int rank, std::uint64_t call) const override {
    return call <= unneeded_offers_[static_cast<std::size_t>(rank)];
  }
  /// Reports it to that rank too.
  void report_unexpected(int rank, std::uint64_t call, const std::string& text) override;

 private:
  Peers& peers_;
  const CallQueue& queue_;
  Letters letters_;

  std::uint64_t next_call_ = 1;
  /// Calls made with each partner alone.
  std::vector<std::uint64_t> pair_calls_;
  /// The calls with which ranks have gone on together last.
  std::uint64_t first_common_call_ = 0;
  std::vector<std::uint64_t> first_common_pair_calls_;
  Changes changes_{};
  std::size_t change_count_ = 0;

  /// Failed calls, of which the oldest are replaced.
  std::vector<CallKey> failed_calls_;
  std::size_t replaced_ = 0;

  /// The refusals of each peer whose calls are not over here.
  std::vector<std::vector<Refusal>> refusals_;
  /// The last call in which this rank needed no offer of each peer; 0: none.
  std::vector<std::uint64_t> unneeded_offers_;
  /// Some of them have given up a call.
  bool knows_of_abandonment_ = false;
  bool has_abandoned_ = false;

  std::string late_mismatch_;
  CallKey last_late_call_{};
  int larger_calls_ = 0;
};

}  // namespace bluefog
