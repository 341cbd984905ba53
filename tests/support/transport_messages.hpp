#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "bluefog_cpp/transport/transport.hpp"

namespace bluefog::testing {

using Bytes = std::vector<std::byte>;

/// Bytes that differ by sender, call and place.
inline Bytes pattern(std::size_t bytes, int sender, std::uint64_t call) {
  Bytes result(bytes);
  for (std::size_t i = 0; i < bytes; ++i) {
    result[i] = static_cast<std::byte>(i * 31 + i / 4096 + sender * 7 + call);
  }
  return result;
}

inline Bytes pattern(std::size_t bytes) { return pattern(bytes, 0, 0); }

/// A message of `bytes`, which outlive it, as `readers` do.
inline Departure departure_of(const Bytes& bytes, std::uint64_t call,
                              std::span<const WeightedRank> readers, Lane lane) {
  Departure departure;
  departure.header.id = CallId::make(call, 0);
  departure.header.bytes = bytes.size();
  departure.header.envelope = Envelope::make(OpKind::NeighborAllreduce, Dtype::UInt8,
                                             static_cast<std::int64_t>(bytes.size()), "test");
  departure.data = bytes.data();
  departure.readers = readers;
  departure.lane = lane;
  return departure;
}

/// One step of reading a message of `source` into `bytes`; true at its end.
inline bool read_some(Transport& transport, int source, Lane lane, Bytes& bytes) {
  if (transport.arrived(source, lane) == nullptr) {
    return false;
  }
  const auto here = transport.readable(source, lane);
  bytes.insert(bytes.end(), here.begin(), here.end());
  transport.consume(source, lane, here.size());
  return transport.at_end(source, lane);
}

}  // namespace bluefog::testing
