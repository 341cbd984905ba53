#include "bluefog_cpp/device/calls/device_payloads.hpp"

#include <algorithm>
#include <utility>

#include "bluefog_cpp/device/calls/payload_layout.hpp"

namespace bluefog {

void DevicePayloads::list_sends(const ExchangeSpec& exchange) {
  sends_.clear();
  for (const Outgoing& outgoing : exchange.outgoing) {
    for (const WeightedRank& reader : outgoing.readers) {
      if (outgoing.bytes > 0) {
        sends_.push_back({outgoing.data, outgoing.bytes, reader.rank});
      }
    }
  }
}

std::byte* DevicePayloads::take_memory(const ExchangeSpec& exchange, DeviceChannel& channel,
                                       std::size_t bytes) {
  if (are_kept(exchange)) {
    kept_ = channel.take_memory(bytes);
    return kept_.data();
  }
  return bytes > 0 ? channel.scratch(bytes) : nullptr;
}

void DevicePayloads::place_receives(const ExchangeSpec& exchange, DeviceChannel& channel) {
  // A message lies as the payload does that it is added to.
  const std::byte* const like = exchange.outgoing.empty() ? nullptr : exchange.outgoing.back().data;
  const bool stay_at_source = channel.link().offers() && !are_kept(exchange);
  const auto needs_memory = [stay_at_source](const Incoming& incoming) {
    return incoming.place == nullptr && !stay_at_source;
  };
  PayloadLayout whole;
  for (const Incoming& incoming : exchange.incoming) {
    if (needs_memory(incoming)) {
      whole.add(incoming.bytes, like);
    }
  }
  std::byte* const memory = take_memory(exchange, channel, whole.bytes());
  PayloadLayout layout;
  receives_.clear();
  for (const Incoming& incoming : exchange.incoming) {
    std::byte* const place =
        needs_memory(incoming) ? memory + layout.add(incoming.bytes, like) : incoming.place;
    receives_.push_back({.place = place, .bytes = incoming.bytes, .source = incoming.source.rank});
  }
}

void DevicePayloads::note_offers(const NeighborAgreement& agreement) {
  for (DeviceReceive& receive : receives_) {
    receive.offer = agreement.offer_of(receive.source);
  }
}

void DevicePayloads::list_pieces(const ExchangeSpec& exchange, const NeighborAgreement& agreement) {
  pieces_.clear();
  for (std::size_t i = 0; i < exchange.incoming.size(); ++i) {
    const Incoming& incoming = exchange.incoming[i];
    if (incoming.place == nullptr) {
      pieces_.push_back(
          {.data = receives_[i].data,
           .weight = incoming.source.weight * agreement.weight_of(incoming.source.rank),
           .source_index = i});
    }
  }
}

bool DevicePayloads::are_any() const noexcept {
  const auto brings = [](const DeviceReceive& receive) { return receive.bytes > 0; };
  return !sends_.empty() || std::ranges::any_of(receives_, brings);
}

void DevicePayloads::release_kept(std::shared_ptr<const gpu::Event> done) {
  kept_.note_use(std::move(done));
  kept_ = {};
}

}  // namespace bluefog
