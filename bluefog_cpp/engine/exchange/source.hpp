#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>

#include "bluefog_cpp/engine/exchange_spec.hpp"
#include "bluefog_cpp/engine/letters.hpp"
#include "bluefog_cpp/engine/peer_reports.hpp"
#include "bluefog_cpp/transport/transport.hpp"

namespace bluefog {

/// One source of an exchange: finds its message among what arrives, and says why it does not come.
class Source {
 public:
  Source(Transport* transport, const Incoming& incoming) noexcept
      : transport_(transport),
        rank_(incoming.source.rank),
        weight_(incoming.source.weight),
        bytes_(incoming.bytes) {}

  [[nodiscard]] int rank() const noexcept { return rank_; }
  /// The product of the receiver's weight and, once accepted, the sender's.
  [[nodiscard]] double weight() const noexcept { return weight_; }
  [[nodiscard]] std::size_t missing_bytes() const noexcept { return bytes_ - used_; }
  [[nodiscard]] std::size_t used() const noexcept { return used_; }
  [[nodiscard]] bool is_accepted() const noexcept { return accepted_; }
  [[nodiscard]] bool is_finished() const noexcept { return finished_; }

  /// Whether nothing of the message is here, nor one before it on its lane.
  [[nodiscard]] bool lacks_message(const ExchangeCall& call) const {
    if (accepted_ || finished_) {
      return false;
    }
    const MessageHeader* const header = transport_->arrived(rank_, call.spec.lane);
    return header == nullptr || header->id > call.id;
  }
  /// Looks for the message of `call`. @return whether it is here.
  /// @throws MismatchError if another one came in its place.
  /// @throws PeerFailure if the source has ended the call with an error.
  bool accept(const ExchangeCall& call, PeerReports& reports) {
    if (call.spec.letter != nullptr) [[unlikely]] {
      return accept_letter(call, reports);
    }
    const MessageHeader* const header = transport_->arrived(rank_, call.spec.lane);
    if (header == nullptr || header->id != call.id) {
      return accept_past(header, call, reports);
    }
    take(*header, call);
    return true;
  }

  /// Bytes of the accepted message that are here, from the reading position on.
  [[nodiscard]] std::span<const std::byte> readable(const ExchangeCall& call) const {
    if (kept_ != nullptr) [[unlikely]] {
      return std::span(kept_->bytes).subspan(used_);
    }
    return transport_->readable(rank_, call.spec.lane);
  }
  void consume(const ExchangeCall& call, std::size_t bytes) {
    if (kept_ == nullptr) [[likely]] {
      transport_->consume(rank_, call.spec.lane, bytes);
    }
    used_ += bytes;
  }
  /// Takes the message, all of whose bytes were consumed, off the stream.
  void finish(const ExchangeCall& call, PeerReports& reports) {
    if (kept_ == nullptr) [[likely]] {
      transport_->finish(rank_, call.spec.lane);
    }
    if (call.spec.letter != nullptr) [[unlikely]] {
      reports.letters().close(rank_, *call.spec.letter);
    }
    finished_ = true;
  }

  /// Whether its message is here, or comes without this rank's help.
  [[nodiscard]] bool has_come(const ExchangeCall& call) const {
    return finished_ || transport_->has_come(rank_, call.spec.lane, call.id);
  }
  /// Whether its message is missing, in whole or in part.
  [[nodiscard]] bool is_awaited(const ExchangeCall& call) const {
    return !finished_ && (!accepted_ || (missing_bytes() > 0 &&
                                         (call.spec.pace == Pace::Each || readable(call).empty())));
  }

  /// Whether its message may stand behind one that an earlier call of this rank takes.
  [[nodiscard]] bool is_behind_another(const ExchangeCall& call, const PeerReports& reports) const {
    if (accepted_ || finished_ || call.spec.letter != nullptr) {
      return false;
    }
    const MessageHeader* const header = transport_->arrived(rank_, call.spec.lane);
    return header != nullptr && header->id.call() < call.id.call() &&
           reports.is_under_way(rank_, header->id.call());
  }

  /// @throws PeerFailure if the source ended its message before all of its bytes came.
  void throw_if_aborted(const ExchangeCall& call, const PeerReports& reports) const;
  /// @throws PeerFailure if the source has left the call. Its message may have come, but holds
  /// nothing of this call then: both ranks have it or neither.
  void throw_if_abandoned(const ExchangeCall& call, const PeerReports& reports) const;

 private:
  bool accept_letter(const ExchangeCall& call, PeerReports& reports);
  bool accept_past(const MessageHeader* header, const ExchangeCall& call, PeerReports& reports);
  void take(const MessageHeader& header, const ExchangeCall& call) {
    if (!header.envelope.matches(call.spec.envelope) || header.bytes != bytes_) [[unlikely]] {
      reject(header, call);
    }
    weight_ *= header.weight;
    accepted_ = true;
  }
  /// A message of the source that it can only have sent after this exchange's, or null: `header`,
  /// the next one of this lane, if there is one, else one that came on another lane.
  [[nodiscard]] const MessageHeader* find_later(const MessageHeader* header,
                                                const ExchangeCall& call);
  /// @throws MismatchError where the source sends in the place of an offer, which this rank has made.
  void throw_if_it_makes_no_offers(const MessageHeader& header, const ExchangeCall& call) const;
  [[nodiscard]] bool is_left_out(CallId later);
  /// The message is of this call and does not fit it. @throws MismatchError.
  [[noreturn]] void reject(const MessageHeader& header, const ExchangeCall& call) const;
  [[noreturn]] void throw_left_out(const MessageHeader& later, const ExchangeCall& call) const;
  void throw_if_refused(const ExchangeCall& call, const PeerReports& reports) const;

  Transport* transport_;
  int rank_;
  double weight_;
  std::size_t bytes_;
  std::size_t used_ = 0;
  bool accepted_ = false;
  bool finished_ = false;
  /// Not null where the message is not on its stream any more.
  const Letters::Kept* kept_ = nullptr;
  /// Looks that found nothing on this lane.
  std::uint32_t vain_looks_ = 0;
  /// The later message of the source that was last seen in place of the expected one, and when it
  /// was first seen.
  CallId overtaken_by_{};
  std::chrono::steady_clock::time_point overtaken_since_{};
};

/// Takes what is here of `source`'s oldest message on `lane`, which no exchange takes.
/// @return whether it has come to its end, and is off the stream.
bool drop_message(Transport& transport, int source, Lane lane, PeerReports& reports);

}  // namespace bluefog
