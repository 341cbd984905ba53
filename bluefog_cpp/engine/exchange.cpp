#include "bluefog_cpp/engine/exchange.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "bluefog_cpp/error.hpp"

namespace bluefog {

void Exchange::start(int rank, CallId id, const Routes& routes, Receiver& receiver,
                     TraceRow* row) {
  row_ = row;
  id_ = id;
  rank_ = rank;
  receiver_ = &receiver;
  sendings_.clear();
  sources_.clear();
  split_readers_.clear();
  used_ = 0;
  for (const Outgoing& outgoing : spec_.outgoing) {
    add_sendings(outgoing, routes);
  }
  for (const Incoming& incoming : spec_.incoming) {
    sources_.push_back({.transport = routes[static_cast<std::size_t>(incoming.source.rank)],
                        .rank = incoming.source.rank,
                        .weight = incoming.source.weight,
                        .bytes = incoming.bytes});
  }
  pieces_.resize(sources_.size());
  missing_headers_ = sources_.size();
  unfinished_sources_ = sources_.size();
  published_ = sendings_.empty();
  consumed_ = sources_.empty() && (spec_.pace == Pace::Each || spec_.bytes == 0);
}

void Exchange::add_sendings(const Outgoing& outgoing, const Routes& routes) {
  if (outgoing.readers.empty()) {
    return;
  }
  const auto route = [&](const WeightedRank& reader) {
    return routes[static_cast<std::size_t>(reader.rank)];
  };
  const auto add = [&](Transport* transport, std::span<const WeightedRank> readers) {
    Sending& sending = sendings_.emplace_back();
    sending.transport = transport;
    sending.departure.header.id = id_;
    sending.departure.header.bytes = outgoing.bytes;
    sending.departure.header.envelope = spec_.envelope;
    sending.departure.data = outgoing.data;
    sending.departure.readers = readers;
    sending.departure.lane = spec_.lane;
  };
  Transport* const first = route(outgoing.readers.front());
  if (std::ranges::all_of(outgoing.readers, [&](const auto& r) { return route(r) == first; })) {
    add(first, outgoing.readers);
    return;
  }
  boost::container::small_vector<Transport*, 2> transports;
  for (const WeightedRank& reader : outgoing.readers) {
    if (std::ranges::find(transports, route(reader)) == transports.end()) {
      transports.push_back(route(reader));
    }
  }
  for (Transport* const transport : transports) {
    std::vector<WeightedRank> readers;
    std::ranges::copy_if(outgoing.readers, std::back_inserter(readers),
                         [&](const auto& r) { return route(r) == transport; });
    add(transport, readers);
    split_readers_.push_back(std::move(readers));  // moving keeps the elements where they are
  }
}

bool Exchange::step(const StepRights& rights, PeerWord& word) {
  if (row_ != nullptr) [[unlikely]] {
    return step_traced(rights, word);
  }
  bool moved = may_publish(rights) && publish(rights);
  if (may_consume(rights)) {
    moved |= consume(word);
  }
  return moved;
}

bool Exchange::publish(const StepRights& rights) {
  bool moved = false;
  bool all_complete = true;
  for (std::size_t i = 0; i < sendings_.size(); ++i) {
    auto& [departure, transport] = sendings_[i];
    if (departure.complete()) {
      continue;
    }
    // Streams carry one message after the other.
    const bool is_first_of_transport =
        std::none_of(sendings_.begin(), sendings_.begin() + static_cast<std::ptrdiff_t>(i),
                     [&](const Sending& earlier) {
                       return earlier.transport == transport && !earlier.departure.complete();
                     });
    if (spec_.supply != nullptr) [[unlikely]] {
      departure.here = spec_.supply->bytes_here();
    }
    const bool has_more = departure.published < departure.here || departure.header.bytes == 0;
    if (is_first_of_transport && has_more) {
      departure.first_under_way = rights.first_under_way;
      moved |= transport->publish(departure);
    }
    all_complete = all_complete && departure.complete();
  }
  published_ = all_complete;
  return moved;
}

std::size_t Exchange::copied_out() const noexcept {
  std::size_t bytes = spec_.bytes;
  for (const Sending& sending : sendings_) {
    bytes = std::min(bytes, sending.departure.published);
  }
  return bytes;
}

bool Exchange::accept(Source& source, PeerWord& word) {
  while (true) {
    const MessageHeader* const header = source.transport->arrived(source.rank, spec_.lane);
    if (header != nullptr && header->id == id_) {
      if (!header->envelope.matches(spec_.envelope) || header->bytes != source.bytes) [[unlikely]] {
        refuse(source, *header);
      }
      source.weight *= header->weight;
      source.accepted = true;
      --missing_headers_;
      return true;
    }
    if (header != nullptr && header->id < id_) {
      const bool has_taker =
          header->id.call() != id_.call() && word.is_under_way(source.rank, header->id.call());
      if (has_taker || !drop_message(*source.transport, source.rank, spec_.lane, word)) {
        return false;
      }
      continue;
    }
    if (source.vain_looks == 0) {
      // The first look has the transport take in what came before the word that may be here.
      ++source.vain_looks;
      return false;
    }
    throw_if_refused(source, word);
    const MessageHeader* const later = find_later(source, header);
    if (later == nullptr || !is_left_out(source, later->id)) {
      return false;
    }
    if (later->id.call() == id_.call()) {
      throw MismatchError(
          fmt::format("{}: rank {} makes this call as {}, of another kind or completion; all ranks "
                      "must make the same calls in the same order",
                      call_text(), source.rank, later->envelope.describe()));
    }
    throw MismatchError(fmt::format(
        "{}: expected a message from rank {}, but that rank sent none in this call and has gone on "
        "to {}, {}; all ranks must make the same calls in the same order",
        call_text(), source.rank, bluefog::call_text(later->id.call()),
        later->envelope.describe()));
  }
}

bool Exchange::consume_together(PeerWord& word) {
  bool moved = false;
  if (missing_headers_ > 0) {
    for (Source& source : sources_) {
      if (!source.accepted) {
        moved |= accept(source, word);
      }
    }
    if (missing_headers_ > 0) {
      return moved;
    }
  }
  while (used_ < spec_.bytes) {
    std::size_t limit = spec_.overwrites_payload ? copied_out() : spec_.bytes;
    if (spec_.supply != nullptr) [[unlikely]] {
      limit = std::min(limit, spec_.supply->bytes_here());
    }
    std::size_t here = limit - used_;
    for (std::size_t i = 0; i < sources_.size() && here > 0; ++i) {
      const auto bytes = sources_[i].transport->readable(sources_[i].rank, spec_.lane);
      pieces_[i] = {.data = bytes.data(), .weight = sources_[i].weight, .source_index = i};
      if (bytes.empty()) {
        throw_if_aborted(sources_[i], word);
      }
      here = std::min(here, bytes.size());
    }
    if (here == 0) {
      return moved;
    }
    receiver_->receive(used_, here, {pieces_.data(), pieces_.size()});
    for (const Source& source : sources_) {
      source.transport->consume(source.rank, spec_.lane, here);
    }
    used_ += here;
    moved = true;
  }
  for (Source& source : sources_) {
    finish(source);
  }
  consumed_ = true;
  return true;
}

bool Exchange::consume_each(PeerWord& word) {
  bool moved = false;
  for (std::size_t i = 0; i < sources_.size(); ++i) {
    Source& source = sources_[i];
    if (source.finished) {
      continue;
    }
    if (!source.accepted) {
      if (!accept(source, word)) {
        continue;
      }
      moved = true;
    }
    while (source.used < source.bytes) {
      const auto bytes = source.transport->readable(source.rank, spec_.lane);
      if (bytes.empty()) {
        throw_if_aborted(source, word);
        break;
      }
      const Piece piece{.data = bytes.data(), .weight = source.weight, .source_index = i};
      receiver_->receive(source.used, bytes.size(), {&piece, 1});
      source.transport->consume(source.rank, spec_.lane, bytes.size());
      source.used += bytes.size();
      used_ += bytes.size();
      moved = true;
    }
    if (source.used == source.bytes) {
      finish(source);
    }
  }
  consumed_ = unfinished_sources_ == 0;
  return moved;
}

void Exchange::finish(Source& source) {
  source.transport->finish(source.rank, spec_.lane);
  source.finished = true;
  --unfinished_sources_;
}

std::vector<Retraction> Exchange::retract() {
  std::vector<Retraction> retractions;
  for (const auto& [departure, transport] : sendings_) {
    // What was never announced is not missed: its readers see the next call instead.
    if (departure.announced && !departure.complete()) {
      auto& retraction = retractions.emplace_back();
      retraction.transport = transport;
      retraction.departure = departure;
      retraction.readers.assign(departure.readers.begin(), departure.readers.end());
      retraction.departure.readers = retraction.readers;
      retraction.departure.data = nullptr;
    }
  }
  sendings_.clear();
  published_ = true;
  return retractions;
}

bool Exchange::has_come() const {
  return std::ranges::all_of(sources_, [&](const Source& source) {
    return source.finished || source.transport->has_come(source.rank, spec_.lane, id_);
  });
}

bool Exchange::is_awaited(const Source& source) const {
  const bool waits = spec_.pace == Pace::Each ||
                     source.transport->readable(source.rank, spec_.lane).empty();
  return !source.finished && (!source.accepted || waits);
}

std::vector<int> Exchange::awaited_sources() const {
  std::vector<int> ranks;
  for (const Source& source : sources_) {
    if (is_awaited(source)) {
      ranks.push_back(source.rank);
    }
  }
  return ranks;
}

std::vector<int> Exchange::awaited_readers() const {
  std::vector<int> ranks;
  for (const Sending& sending : sendings_) {
    if (!sending.departure.complete()) {
      for (const WeightedRank& reader : sending.departure.readers) {
        ranks.push_back(reader.rank);
      }
    }
  }
  return ranks;
}

std::string Exchange::call_text() const {
  return fmt::format("rank {}, {}, {}", rank_, bluefog::call_text(id_.call()), spec_.envelope.describe());
}

}  // namespace bluefog
