#pragma once

#include <boost/container/small_vector.hpp>
#include <cstddef>
#include <vector>

#include "bluefog_cpp/base/trace/trace.hpp"
#include "bluefog_cpp/engine/exchange/exchange_trace.hpp"
#include "bluefog_cpp/engine/exchange/retractions.hpp"
#include "bluefog_cpp/engine/exchange/routes.hpp"
#include "bluefog_cpp/engine/exchange/sendings.hpp"
#include "bluefog_cpp/engine/exchange/source.hpp"
#include "bluefog_cpp/engine/exchange_spec.hpp"
#include "bluefog_cpp/engine/peer_reports.hpp"

namespace bluefog {

/// State machine of one exchange: publishes when there is room, combines when all pieces are here,
/// never blocks. Whoever holds the engine's mutex steps it.
class Exchange {
 public:
  /// The spec of the next exchange, cleared, to be filled in place before `start`: a copy would
  /// wait for what was just written. The exchange before has ended.
  [[nodiscard]] ExchangeSpec& new_spec() noexcept { return call_.spec = {}; }

  /// @param rank this rank, for messages.
  /// @param row where spans go; null: none are written.
  void start(int rank, CallId id, const Routes& routes, Receiver& receiver,
             TraceRow* row = nullptr);

  /// @return whether anything moved.
  /// @throws MismatchError, PeerFailure: the exchange then has to be retracted.
  bool step(const StepRights& rights, PeerReports& reports);

  [[nodiscard]] bool published() const noexcept { return sendings_.published(); }
  [[nodiscard]] bool finished() const noexcept { return published() && consumed_; }
  /// Whether the receiver has been given something.
  [[nodiscard]] bool has_used() const noexcept { return used_ > 0; }

  /// The messages that its readers were notified of but have not got in full: where the exchange
  /// ends early, they must learn that the rest does not come.
  [[nodiscard]] std::vector<Retraction> begun() const { return sendings_.begun(); }
  /// Ends the exchange early.
  void drop() noexcept { sendings_.drop(); }

  [[nodiscard]] bool expects_messages() const noexcept { return !sources_.empty(); }
  /// Whether what it expects is here, or comes without this rank's help.
  [[nodiscard]] bool has_come() const;

  /// Ranks whose message is still missing, in whole or in part.
  [[nodiscard]] AwaitedRanks awaited_sources() const;
  /// Whether the message of `source` may stand behind one that an earlier call of this rank takes.
  [[nodiscard]] bool is_behind_another(int source, const PeerReports& reports) const;
  /// Awaited ranks of which nothing is here, nor a message before it that has to be taken first.
  [[nodiscard]] AwaitedRanks lacking_sources() const;
  /// Whether nothing of the message of `source` is here, nor a message before it that has to be
  /// taken first.
  [[nodiscard]] bool lacks_message_of(int source) const;
  /// Ranks that have not taken what this rank sends, while there is no room for more.
  [[nodiscard]] AwaitedRanks awaited_readers() const { return sendings_.awaited_readers(); }

 private:
  [[nodiscard]] bool may_publish(const StepRights& rights) const noexcept {
    return !published() && rights.may_publish;
  }
  [[nodiscard]] bool may_consume(const StepRights& rights) const noexcept {
    return !consumed_ && (call_.spec.consumption == Consumption::AsItArrives || rights.waited_for);
  }
  bool publish(const StepRights& rights) { return sendings_.publish(call_.spec.supply, rights); }
  bool consume(PeerReports& reports) {
    if (!call_.spec.unneeded_offers.empty()) [[unlikely]] {
      drop_unneeded_offers(reports);
    }
    if (reports.knows_of_abandonment()) [[unlikely]] {
      throw_if_abandoned(reports);
    }
    return call_.spec.pace == Pace::Together ? consume_together(reports) : consume_each(reports);
  }
  bool step_traced(const StepRights& rights, PeerReports& reports);
  void drop_unneeded_offers(PeerReports& reports);
  [[nodiscard]] ExchangeTrace::Pause pause_now(const StepRights& rights) const;

  bool accept_all(PeerReports& reports);
  bool consume_together(PeerReports& reports);
  /// Makes `pieces_` of what is here of all sources at the same offset. @return its bytes.
  std::size_t gather_pieces(PeerReports& reports);
  bool consume_each(PeerReports& reports);
  bool consume_one(std::size_t index, PeerReports& reports);
  void throw_if_abandoned(const PeerReports& reports) const;

  ExchangeCall call_{};
  Receiver* receiver_ = nullptr;
  Sendings sendings_;
  const Routes* routes_ = nullptr;
  boost::container::small_vector<Source, kInlineNeighbors> sources_;
  boost::container::small_vector<Piece, kInlineNeighbors> pieces_;
  std::size_t missing_headers_ = 0;
  std::size_t unfinished_sources_ = 0;
  /// Bytes of arrived messages that were used; with `Pace::Together` those of each source.
  std::size_t used_ = 0;
  bool consumed_ = false;
  ExchangeTrace trace_;
};

}  // namespace bluefog
