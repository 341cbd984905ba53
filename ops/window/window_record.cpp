#include "ops/window/window_record.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "bluefog_cpp/error.hpp"

namespace bluefog::ops {
namespace {

/// The parts of fixed size, and the lengths of the others, in their order.
struct RecordHead {
  Dtype dtype = Dtype::Float32;
  bool associated_weight = false;
  OwnValue own_value = OwnValue::InTensor;
  bool may_share_device = false;
  std::int64_t count = 0;
  std::uint64_t place = 0;
  std::uint64_t address = 0;
  ShownBlock block{};
  std::array<std::uint64_t, 5> lengths{};
};

template <typename Element>
void append(std::vector<std::byte>& blob, const Element* data, std::size_t count) {
  const std::size_t end = blob.size();
  blob.resize(end + count * sizeof(Element));
  if (count > 0) {
    std::memcpy(blob.data() + end, data, count * sizeof(Element));
  }
}

template <typename List>
List take_list(std::span<const std::byte>& rest, std::uint64_t length) {
  using Element = typename List::value_type;
  if (length > rest.size() / sizeof(Element)) {
    throw TransportError("window: a rank's record is cut short");
  }
  List list(length, Element{});
  if (length > 0) {
    std::memcpy(list.data(), rest.data(), length * sizeof(Element));
  }
  rest = rest.subspan(length * sizeof(Element));
  return list;
}

std::string describe(const WindowRecord& record) {
  return fmt::format("win_create({}[{}], name '{}'{})", name_of(record.dtype), record.count,
                     record.name, record.associated_weight ? ", associated weight" : "");
}

/// Every entry of `ends(i)` has i among `other_ends` of that rank.
template <typename Ends, typename OtherEnds>
void check_edges(const std::vector<WindowRecord>& records, int own, Ends ends, OtherEnds other_ends,
                 const char* says, const char* denies) {
  for (std::size_t rank = 0; rank < records.size(); ++rank) {
    for (const std::int32_t other : ends(records[rank])) {
      const auto& back = other_ends(records[static_cast<std::size_t>(other)]);
      if (std::ranges::find(back, static_cast<std::int32_t>(rank)) == back.end()) {
        throw MismatchError(fmt::format("rank {}, {}: rank {} {} rank {}, which {}", own,
                                        describe(records[rank]), rank, says, other, denies));
      }
    }
  }
}

}  // namespace

std::vector<std::int32_t> ranks_of(const std::vector<WeightedRank>& list) {
  std::vector<std::int32_t> ranks;
  ranks.reserve(list.size());
  for (const WeightedRank& entry : list) {
    ranks.push_back(entry.rank);
  }
  return ranks;
}

std::size_t index_of(const std::vector<std::int32_t>& ranks, int rank) {
  return static_cast<std::size_t>(std::ranges::find(ranks, rank) - ranks.begin());
}

std::vector<std::byte> WindowRecord::to_blob() const {
  const RecordHead head{
      .dtype = dtype,
      .associated_weight = associated_weight,
      .own_value = own_value,
      .may_share_device = may_share_device,
      .count = count,
      .place = place,
      .address = address,
      .block = block,
      .lengths = {sources.size(), destinations.size(), name.size(), error.size(), obstacle.size()}};
  std::vector<std::byte> blob;
  append(blob, &head, 1);
  append(blob, sources.data(), sources.size());
  append(blob, destinations.data(), destinations.size());
  append(blob, name.data(), name.size());
  append(blob, error.data(), error.size());
  append(blob, obstacle.data(), obstacle.size());
  return blob;
}

WindowRecord WindowRecord::from_blob(std::span<const std::byte> blob) {
  RecordHead head;
  if (blob.size() < sizeof(head)) {
    throw TransportError("window: a rank's record is cut short");
  }
  std::memcpy(&head, blob.data(), sizeof(head));
  auto rest = blob.subspan(sizeof(head));
  WindowRecord record{.dtype = head.dtype,
                      .count = head.count,
                      .associated_weight = head.associated_weight,
                      .place = head.place,
                      .address = head.address,
                      .own_value = head.own_value,
                      .may_share_device = head.may_share_device,
                      .block = head.block};
  record.sources = take_list<std::vector<std::int32_t>>(rest, head.lengths[0]);
  record.destinations = take_list<std::vector<std::int32_t>>(rest, head.lengths[1]);
  record.name = take_list<std::string>(rest, head.lengths[2]);
  record.error = take_list<std::string>(rest, head.lengths[3]);
  record.obstacle = take_list<std::string>(rest, head.lengths[4]);
  return record;
}

void check_records(const std::vector<WindowRecord>& records, int own) {
  for (std::size_t rank = 0; rank < records.size(); ++rank) {
    if (!records[rank].error.empty()) {
      throw PeerFailure(
          static_cast<int>(rank),
          fmt::format("rank {}, {}: rank {} refused it: {}", own,
                      describe(records[static_cast<std::size_t>(own)]), rank, records[rank].error));
    }
  }
  const WindowRecord& first = records.front();
  for (std::size_t rank = 1; rank < records.size(); ++rank) {
    const WindowRecord& other = records[rank];
    if (other.name != first.name || other.dtype != first.dtype || other.count != first.count ||
        other.associated_weight != first.associated_weight) {
      throw MismatchError(
          fmt::format("rank {}, win_create: mismatched calls: rank 0 called {}, rank {} called {}",
                      own, describe(first), rank, describe(other)));
    }
  }
  const auto sources = [](const WindowRecord& record) -> const auto& { return record.sources; };
  const auto destinations = [](const WindowRecord& record) -> const auto& {
    return record.destinations;
  };
  check_edges(records, own, destinations, sources, "sends to", "does not hear it");
  check_edges(records, own, sources, destinations, "hears", "does not send to it");
}

}  // namespace bluefog::ops
