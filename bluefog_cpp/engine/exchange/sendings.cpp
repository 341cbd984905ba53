#include "bluefog_cpp/engine/exchange/sendings.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include "bluefog_cpp/base/alignment.hpp"

namespace bluefog {

void Sendings::start(const ExchangeCall& call, const Routes& routes) {
  sendings_.clear();
  split_readers_.clear();
  for (const Outgoing& outgoing : call.spec.outgoing) {
    add(call, outgoing, routes);
  }
  published_ = sendings_.empty();
}

void Sendings::add(const ExchangeCall& call, const Outgoing& outgoing, const Routes& routes) {
  if (outgoing.readers.empty()) {
    return;
  }
  const auto route = [&](const WeightedRank& reader) {
    return routes[static_cast<std::size_t>(reader.rank)];
  };
  const auto add_to = [&](Transport* transport, std::span<const WeightedRank> readers) {
    Sending& sending = sendings_.emplace_back();
    sending.transport = transport;
    sending.departure.header.id = call.id;
    sending.departure.header.bytes = outgoing.bytes;
    sending.departure.header.envelope = call.spec.envelope;
    sending.departure.data = outgoing.data;
    sending.departure.readers = readers;
    sending.departure.lane = call.spec.lane;
  };
  Transport* const first = route(outgoing.readers.front());
  if (std::ranges::all_of(outgoing.readers, [&](const auto& r) { return route(r) == first; })) {
    add_to(first, outgoing.readers);
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
    add_to(transport, readers);
    split_readers_.push_back(std::move(readers));  // moving keeps the elements where they are
  }
}

bool Sendings::publish(Supply* supply, const StepRights& rights) {
  bool moved = false;
  bool all_complete = true;
  for (std::size_t i = 0; i < sendings_.size(); ++i) {
    auto& [departure, transport] = sendings_[i];
    if (departure.complete()) {
      continue;
    }
    if (supply != nullptr) [[unlikely]] {
      departure.here = supply->bytes_here();
    }
    const bool has_more = departure.published < departure.here || departure.header.bytes == 0;
    if (has_more && !waits_for_earlier(i)) {
      departure.first_under_way = rights.first_under_way;
      moved |= transport->publish(departure);
    }
    all_complete = all_complete && departure.complete();
  }
  published_ = all_complete;
  return moved;
}

// Streams carry one message after the other. Those to different readers go side by side: a reader
// that combines what several ranks send takes no more of one than of the slowest.
bool Sendings::waits_for_earlier(std::size_t index) const {
  const Sending& own = sendings_[index];
  const auto is_ahead = [&own](const Sending& earlier) {
    return earlier.transport == own.transport && !earlier.departure.complete() &&
           (!own.transport->has_stream_per_reader() ||
            std::ranges::find_first_of(earlier.departure.readers, own.departure.readers, {},
                                       &WeightedRank::rank,
                                       &WeightedRank::rank) != earlier.departure.readers.end());
  };
  return std::any_of(sendings_.begin(), sendings_.begin() + static_cast<std::ptrdiff_t>(index),
                     is_ahead);
}

std::size_t Sendings::copied_out(std::size_t most) const noexcept {
  std::size_t bytes = most;
  for (const Sending& sending : sendings_) {
    bytes = std::min(bytes, sending.departure.published);
  }
  return bytes == most ? bytes : bytes / kCacheLine * kCacheLine;
}

std::vector<Retraction> Sendings::begun() const {
  std::vector<Retraction> retractions;
  for (const auto& [departure, transport] : sendings_) {
    // A message that was never announced is not missed: its readers see the next call instead.
    if (departure.announced && !departure.complete()) {
      auto& retraction = retractions.emplace_back();
      retraction.transport = transport;
      retraction.departure = departure;
      retraction.readers.assign(departure.readers.begin(), departure.readers.end());
      retraction.departure.readers = retraction.readers;
      retraction.departure.data = nullptr;
    }
  }
  return retractions;
}

AwaitedRanks Sendings::awaited_readers() const {
  AwaitedRanks ranks;
  for (const Sending& sending : sendings_) {
    if (!sending.departure.complete()) {
      for (const WeightedRank& reader : sending.departure.readers) {
        ranks.push_back(reader.rank);
      }
    }
  }
  return ranks;
}

int Sendings::next_reader() const noexcept {
  for (const auto& [departure, transport] : sendings_) {
    if (!departure.complete()) {
      const std::size_t reader = std::min(departure.reader_cursor, departure.readers.size() - 1);
      return departure.readers[reader].rank;
    }
  }
  return -1;
}

}  // namespace bluefog
