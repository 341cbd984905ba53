#include "bluefog_cpp/engine/exchange.hpp"

#include <algorithm>

namespace bluefog {

void Exchange::start(int rank, CallId id, const Routes& routes, Receiver& receiver, TraceRow* row) {
  const ExchangeSpec& spec = call_.spec;
  trace_.set_row(row);
  call_.id = id;
  call_.rank = rank;
  receiver_ = &receiver;
  routes_ = &routes;
  used_ = 0;
  sendings_.start(call_, routes);
  sources_.clear();
  for (const Incoming& incoming : spec.incoming) {
    sources_.emplace_back(routes[static_cast<std::size_t>(incoming.source.rank)], incoming);
  }
  pieces_.resize(sources_.size());
  missing_headers_ = sources_.size();
  unfinished_sources_ = sources_.size();
  consumed_ = sources_.empty() && (spec.pace == Pace::Each || spec.bytes == 0);
}

bool Exchange::step(const StepRights& rights, PeerReports& reports) {
  if (trace_.is_written()) [[unlikely]] {
    return step_traced(rights, reports);
  }
  bool moved = may_publish(rights) && publish(rights);
  if (may_consume(rights)) {
    moved |= consume(reports);
  }
  return moved;
}

// The same steps as without a timeline.
bool Exchange::step_traced(const StepRights& rights, PeerReports& reports) {
  bool moved = false;
  if (may_publish(rights)) {
    const auto from = ExchangeTrace::Clock::now();
    moved = publish(rights);
    if (moved) {
      trace_.add("publish", from);
    }
  }
  if (may_consume(rights)) {
    const std::size_t used_before = used_;
    const auto from = ExchangeTrace::Clock::now();
    moved |= consume(reports);
    if (used_ != used_before) {
      trace_.add("combine", from);
    }
  }
  if (finished()) {
    trace_.end_pause(ExchangeTrace::Clock::now());
  } else if (!moved) {
    trace_.pause(pause_now(rights));
  }
  return moved;
}

ExchangeTrace::Pause Exchange::pause_now(const StepRights& rights) const {
  using Reason = ExchangeTrace::Pause::Reason;
  if (may_consume(rights)) {
    const auto source =
        std::ranges::find_if(sources_, [this](const Source& s) { return s.is_awaited(call_); });
    if (source != sources_.end()) {
      return {.reason = Reason::Source, .rank = source->rank()};
    }
  }
  if (published()) {
    return {.reason = Reason::NobodyWaits};
  }
  if (!rights.may_publish) {
    return {.reason = Reason::EarlierCall};
  }
  const int reader = sendings_.next_reader();
  return reader < 0 ? ExchangeTrace::Pause{} : ExchangeTrace::Pause{Reason::Reader, reader};
}

// Streams have room for a number of messages: those that nobody will ever read go on the way.
void Exchange::drop_unneeded_offers(PeerReports& reports) {
  const Lane lane = call_.spec.lane;
  for (const WeightedRank& peer : call_.spec.unneeded_offers) {
    Transport& transport = *(*routes_)[static_cast<std::size_t>(peer.rank)];
    const auto is_unneeded = [&](const MessageHeader* header) {
      if (header == nullptr || !is_offering(header->envelope.kind) || header->id >= call_.id) {
        return false;
      }
      const std::uint64_t call = header->id.call();
      return call == call_.id.call() || !reports.is_under_way(peer.rank, call);
    };
    reports.note_unneeded_offers(peer.rank, call_.id.call());
    while (is_unneeded(transport.arrived(peer.rank, lane)) &&
           drop_message(transport, peer.rank, lane, reports)) {
    }
  }
}

bool Exchange::accept_all(PeerReports& reports) {
  bool moved = false;
  for (Source& source : sources_) {
    if (!source.is_accepted() && source.accept(call_, reports)) {
      --missing_headers_;
      moved = true;
    }
  }
  return moved;
}

bool Exchange::consume_together(PeerReports& reports) {
  bool moved = false;
  if (missing_headers_ > 0) {
    moved = accept_all(reports);
    if (missing_headers_ > 0) {
      return moved;
    }
  }
  while (used_ < call_.spec.bytes) {
    const std::size_t here = gather_pieces(reports);
    if (here == 0) {
      return moved;
    }
    receiver_->receive(used_, here, {pieces_.data(), pieces_.size()});
    for (Source& source : sources_) {
      source.consume(call_, here);
    }
    used_ += here;
    moved = true;
  }
  for (Source& source : sources_) {
    source.finish(call_, reports);
  }
  unfinished_sources_ = 0;
  consumed_ = true;
  return true;
}

std::size_t Exchange::gather_pieces(PeerReports& reports) {
  const ExchangeSpec& spec = call_.spec;
  std::size_t limit = spec.overwrites_payload ? sendings_.copied_out(spec.bytes) : spec.bytes;
  if (spec.supply != nullptr) [[unlikely]] {
    limit = std::min(limit, spec.supply->bytes_here());
  }
  std::size_t here = limit - used_;
  for (std::size_t i = 0; i < sources_.size() && here > 0; ++i) {
    const auto bytes = sources_[i].readable(call_);
    pieces_[i] = {.data = bytes.data(), .weight = sources_[i].weight(), .source_index = i};
    if (bytes.empty()) {
      sources_[i].throw_if_aborted(call_, reports);
    }
    here = std::min(here, bytes.size());
  }
  return here;
}

bool Exchange::consume_each(PeerReports& reports) {
  bool moved = false;
  for (std::size_t i = 0; i < sources_.size(); ++i) {
    if (!sources_[i].is_finished()) {
      moved |= consume_one(i, reports);
    }
  }
  consumed_ = unfinished_sources_ == 0;
  return moved;
}

bool Exchange::consume_one(std::size_t index, PeerReports& reports) {
  Source& source = sources_[index];
  bool moved = false;
  if (!source.is_accepted()) {
    if (!source.accept(call_, reports)) {
      return false;
    }
    moved = true;
  }
  while (source.missing_bytes() > 0) {
    const auto bytes = source.readable(call_);
    if (bytes.empty()) {
      source.throw_if_aborted(call_, reports);
      return moved;
    }
    const Piece piece{.data = bytes.data(), .weight = source.weight(), .source_index = index};
    receiver_->receive(source.used(), bytes.size(), {&piece, 1});
    source.consume(call_, bytes.size());
    used_ += bytes.size();
    moved = true;
  }
  source.finish(call_, reports);
  --unfinished_sources_;
  return moved;
}

bool Exchange::has_come() const {
  return std::ranges::all_of(sources_,
                             [this](const Source& source) { return source.has_come(call_); });
}

AwaitedRanks Exchange::awaited_sources() const {
  AwaitedRanks ranks;
  for (const Source& source : sources_) {
    if (source.is_awaited(call_)) {
      ranks.push_back(source.rank());
    }
  }
  return ranks;
}

AwaitedRanks Exchange::lacking_sources() const {
  AwaitedRanks ranks;
  for (const Source& source : sources_) {
    if (source.lacks_message(call_)) {
      ranks.push_back(source.rank());
    }
  }
  return ranks;
}

bool Exchange::lacks_message_of(int source) const {
  return std::ranges::any_of(sources_, [&](const Source& one) {
    return one.rank() == source && one.lacks_message(call_);
  });
}

bool Exchange::is_behind_another(int source, const PeerReports& reports) const {
  return std::ranges::any_of(sources_, [&](const Source& one) {
    return one.rank() == source && one.is_behind_another(call_, reports);
  });
}

void Exchange::throw_if_abandoned(const PeerReports& reports) const {
  for (const Source& source : sources_) {
    source.throw_if_abandoned(call_, reports);
  }
}

}  // namespace bluefog
