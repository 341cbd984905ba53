// What comes in place of the message that an exchange expects: one of another call, or a word.
#include <fmt/format.h>

#include <chrono>
#include <string>

#include "bluefog_cpp/engine/exchange.hpp"
#include "bluefog_cpp/error.hpp"

namespace bluefog {

const MessageHeader* Exchange::find_later(Source& source, const MessageHeader* header) {
  if (header != nullptr) {
    return header;
  }
  // Ranks publish in the order of their calls, whatever the lane. A look now and then is enough.
  constexpr std::uint32_t kLooks = 8;
  if (++source.vain_looks % kLooks != 0) {
    return nullptr;
  }
  if (spec_.lane == Lane::Pair) {
    return nullptr;  // in no order with other calls
  }
  for (const Lane lane : {Lane::Ordinary, Lane::Deep}) {
    if (lane == spec_.lane) {
      continue;
    }
    const auto* const other = source.transport->arrived(source.rank, lane);
    if (other != nullptr && other->id >= id_) {
      return other;
    }
  }
  return nullptr;
}

bool Exchange::is_left_out(Source& source, CallId later) {
  // The peer's word about this call says more, and may still be on its way beside the data.
  constexpr std::chrono::milliseconds kGrace{20};
  const auto now = std::chrono::steady_clock::now();
  if (source.overtaken_by != later) {
    source.overtaken_by = later;
    source.overtaken_since = now;
  }
  return now - source.overtaken_since >= kGrace;
}

void Exchange::refuse(const Source& source, const MessageHeader& header) const {
  const bool differs_in_bytes = header.envelope.matches(spec_.envelope);
  std::string both = fmt::format(
      "rank {} called {}{}, rank {} called {}{}", source.rank, header.envelope.describe(),
      differs_in_bytes ? fmt::format(" and sent {} bytes", header.bytes) : "", rank_,
      spec_.envelope.describe(),
      differs_in_bytes ? fmt::format(" and expected {} bytes", source.bytes) : "");
  const bool sender_compares = header.envelope.kind == OpKind::TopologyCheck;
  if (sender_compares != (spec_.envelope.kind == OpKind::TopologyCheck)) {
    both += fmt::format(
        "; rank {} compares the ranks' topologies first (as after a set_topology, or where the "
        "call "
        "asks for it), and rank {} does not",
        sender_compares ? source.rank : rank_, sender_compares ? rank_ : source.rank);
  }
  source.transport->send_control(
      source.rank,
      {.kind = ControlMessage::Kind::Rejection, .call = header.id.call(), .text = both});
  throw MismatchError(fmt::format("{}: mismatched calls: {}", call_text(), both));
}

void Exchange::throw_if_aborted(const Source& source, const PeerWord& word) const {
  if (const auto reason = source.transport->aborted(source.rank, spec_.lane)) {
    // The word about it, which comes first, has room for more.
    const std::string* const said = word.refusal(source.rank, id_.call());
    throw PeerFailure(source.rank,
                      fmt::format("{}: rank {} gave up in the middle of it: {}", call_text(),
                                  source.rank, said != nullptr ? *said : *reason));
  }
}

void Exchange::throw_if_refused(const Source& source, const PeerWord& word) const {
  if (const std::string* const reason = word.refusal(source.rank, id_.call())) {
    throw PeerFailure(source.rank, fmt::format("{}: rank {} ended this call with an error: {}",
                                               call_text(), source.rank, *reason));
  }
}

// A message of that rank may have come, in whole or in part, but it has nothing of this call: both
// have it or neither.
void Exchange::throw_if_given_up(const PeerWord& word) const {
  for (const Source& source : sources_) {
    const std::string* const reason =
        source.finished ? nullptr : word.giving_up(source.rank, id_.call());
    if (reason != nullptr) {
      throw PeerFailure(source.rank, fmt::format("{}: rank {} has given up this call: {}",
                                                 call_text(), source.rank, *reason));
    }
  }
}

bool drop_message(Transport& transport, int source, Lane lane, PeerWord& word) {
  const MessageHeader& header = *transport.arrived(source, lane);
  while (const std::size_t here = transport.readable(source, lane).size()) {
    transport.consume(source, lane, here);
  }
  if (transport.at_end(source, lane)) {
    word.unexpected(source, header.id.call(), header.envelope.describe());
  } else if (!transport.aborted(source, lane).has_value()) {
    return false;
  }
  transport.finish(source, lane);
  return true;
}

}  // namespace bluefog
