#include "bluefog_cpp/engine/exchange/source.hpp"

#include <fmt/format.h>

#include <chrono>
#include <optional>
#include <string>

#include "bluefog_cpp/error.hpp"

namespace bluefog {

bool Source::accept_letter(const ExchangeCall& call, PeerReports& reports) {
  const Letter& letter = *call.spec.letter;
  const Letters::Found found = reports.letters().look_for(*transport_, rank_, letter);
  switch (found.state) {
    case Letters::State::NotHere:
      return false;
    case Letters::State::LeftOut:
      throw PeerFailure(rank_,
                        fmt::format("{}: rank {} gave up sending it, and has sent later ones "
                                    "of {}",
                                    call.describe(), rank_, letter.tag));
    case Letters::State::Next:
      take(*transport_->arrived(rank_, call.spec.lane), call);
      return true;
    case Letters::State::Kept:
      if (found.kept->abort_reason) {
        throw PeerFailure(rank_, fmt::format("{}: rank {} gave up in the middle of it: {}",
                                             call.describe(), rank_, *found.kept->abort_reason));
      }
      take(found.kept->header, call);
      kept_ = found.kept;
      return true;
  }
  return false;
}

bool Source::accept_past(const MessageHeader* header, const ExchangeCall& call,
                         PeerReports& reports) {
  const Lane lane = call.spec.lane;
  for (; header != nullptr && header->id < call.id; header = transport_->arrived(rank_, lane)) {
    throw_if_it_makes_no_offers(*header, call);
    const bool has_taker =
        header->id.call() != call.id.call() && reports.is_under_way(rank_, header->id.call());
    if (has_taker || !drop_message(*transport_, rank_, lane, reports)) {
      return false;
    }
  }
  if (header != nullptr && header->id == call.id) {
    take(*header, call);
    return true;
  }
  if (vain_looks_ == 0) {
    // The first look has the transport take in what came before the report that may be here.
    ++vain_looks_;
    return false;
  }
  throw_if_refused(call, reports);
  const MessageHeader* const later = find_later(header, call);
  if (later != nullptr && is_left_out(later->id)) {
    throw_left_out(*later, call);
  }
  return false;
}

const MessageHeader* Source::find_later(const MessageHeader* header, const ExchangeCall& call) {
  if (header != nullptr) {
    return header;
  }
  // Ranks publish in the order of their calls, whatever the lane. A look now and then is enough.
  constexpr std::uint32_t kLooks = 8;
  if (++vain_looks_ % kLooks != 0) {
    return nullptr;
  }
  const std::optional<Lane> lane = lane_beside(call.spec.lane);
  if (!lane) {
    return nullptr;  // in no order with other calls
  }
  const auto* const other = transport_->arrived(rank_, *lane);
  const bool is_later =
      other != nullptr && other->id >= call.id && transport_->has_all_before(rank_, *lane);
  return is_later ? other : nullptr;
}

void Source::throw_if_it_makes_no_offers(const MessageHeader& header,
                                         const ExchangeCall& call) const {
  const bool had_offers = !call.spec.unneeded_offers.empty();
  if (had_offers && header.id.call() == call.id.call() && !is_offering(header.envelope.kind)) {
    ExchangeCall before = call;
    before.spec.envelope.kind = offering(before.spec.envelope.kind);
    reject(header, before);
  }
}

bool Source::is_left_out(CallId later) {
  // The peer's report of this call, or its answer to an inquiry, says more, and may still be on its
  // way beside the data.
  constexpr std::chrono::milliseconds kGrace{300};
  const auto now = std::chrono::steady_clock::now();
  if (overtaken_by_ != later) {
    overtaken_by_ = later;
    overtaken_since_ = now;
  }
  return now - overtaken_since_ >= kGrace;
}

void Source::throw_left_out(const MessageHeader& later, const ExchangeCall& call) const {
  if (later.id.call() == call.id.call()) {
    throw MismatchError(
        fmt::format("{}: rank {} makes this call as {}, of another kind or completion; all ranks "
                    "must make the same calls in the same order",
                    call.describe(), rank_, later.envelope.describe()));
  }
  throw MismatchError(fmt::format(
      "{}: expected a message from rank {}, but that rank sent none in this call and has gone on "
      "to {}, {}; all ranks must make the same calls in the same order",
      call.describe(), rank_, call_text(later.id.call()), later.envelope.describe()));
}

void Source::reject(const MessageHeader& header, const ExchangeCall& call) const {
  const Envelope& own = call.spec.envelope;
  const bool is_same = header.envelope.matches(own);
  const bool sees_another_graph = is_same && is_offering(own.kind);
  const bool differs_in_bytes = is_same && !sees_another_graph;
  std::string both = fmt::format(
      "rank {} called {}{}, rank {} called {}{}", rank_, header.envelope.describe(),
      differs_in_bytes ? fmt::format(" and sent {} bytes", header.bytes) : "", call.rank,
      own.describe(), differs_in_bytes ? fmt::format(" and expected {} bytes", bytes_) : "");
  if (sees_another_graph) {
    both +=
        "; they see different graphs of this step: are all ranks at the same step of the same "
        "schedule?";
  }
  const bool sender_compares = header.envelope.kind == OpKind::TopologyCheck;
  if (sender_compares != (own.kind == OpKind::TopologyCheck)) {
    both += fmt::format(
        "; rank {} compares the ranks' topologies first (as after a set_topology, or where the "
        "call asks for it), and rank {} does not",
        sender_compares ? rank_ : call.rank, sender_compares ? call.rank : rank_);
  }
  const bool sender_offers = is_offering(header.envelope.kind);
  Envelope own_in_place = own;
  own_in_place.kind = offering(own.kind);
  Envelope in_place = header.envelope;
  in_place.kind = offering(in_place.kind);
  if (sender_offers != is_offering(own.kind) && in_place.matches(own_in_place)) {
    both += fmt::format(
        "; rank {} knows the whole step's graph (as from a schedule, or where the call compares "
        "plans) and forms sums where buffers lie, and rank {} does not",
        sender_offers ? rank_ : call.rank, sender_offers ? call.rank : rank_);
  }
  transport_->send_control(
      rank_, {.kind = ControlMessage::Kind::Rejection, .call = header.id.call(), .text = both});
  throw MismatchError(fmt::format("{}: mismatched calls: {}", call.describe(), both));
}

void Source::throw_if_aborted(const ExchangeCall& call, const PeerReports& reports) const {
  if (const auto reason = transport_->aborted(rank_, call.spec.lane)) {
    // The report of it, which comes first, has room for more.
    const std::string* const reported = reports.refusal(rank_, call.id.call());
    throw PeerFailure(
        rank_, fmt::format("{}: rank {} gave up in the middle of it: {}", call.describe(), rank_,
                           reported != nullptr ? *reported : *reason));
  }
}

void Source::throw_if_refused(const ExchangeCall& call, const PeerReports& reports) const {
  if (const std::string* const reason = reports.refusal(rank_, call.id.call())) {
    throw PeerFailure(rank_, fmt::format("{}: rank {} ended this call with an error: {}",
                                         call.describe(), rank_, *reason));
  }
}

void Source::throw_if_abandoned(const ExchangeCall& call, const PeerReports& reports) const {
  if (finished_) {
    return;
  }
  if (const std::string* const reason = reports.abandonment(rank_, call.id.call())) {
    throw PeerFailure(rank_, fmt::format("{}: rank {} has given up this call: {}", call.describe(),
                                         rank_, *reason));
  }
}

bool drop_message(Transport& transport, int source, Lane lane, PeerReports& reports) {
  const MessageHeader& header = *transport.arrived(source, lane);
  while (const std::size_t here = transport.readable(source, lane).size()) {
    transport.consume(source, lane, here);
  }
  if (transport.at_end(source, lane)) {
    const bool is_needless =
        is_offering(header.envelope.kind) && reports.needs_no_offer(source, header.id.call());
    if (!is_needless) {
      reports.report_unexpected(source, header.id.call(), header.envelope.describe());
    }
  } else if (!transport.aborted(source, lane).has_value()) {
    return false;
  }
  transport.finish(source, lane);
  return true;
}

}  // namespace bluefog
