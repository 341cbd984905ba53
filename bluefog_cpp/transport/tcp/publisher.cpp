#include "bluefog_cpp/transport/tcp/publisher.hpp"

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>

namespace bluefog::tcp {
namespace {

/// The bytes that one step moves of a long message: so few that the other side reads it out of a
/// cache, and reading and combining come in between.
constexpr std::size_t kStepBytes = std::size_t{32} << 10U;
/// Messages up to this length go in one step.
constexpr std::size_t kWholeBytes = std::size_t{128} << 10U;

constexpr std::size_t channel_of(Lane lane) noexcept { return static_cast<std::size_t>(lane); }

/// Messages that have begun to the rank on the other one of the lanes `Ordinary` and `Deep`.
std::uint64_t begun_on_other_lane(const ConnectionTable& table, int rank, Lane lane) {
  const std::optional<Lane> other = lane_beside(lane);
  const Connection* const beside = other ? table.find(rank, channel_of(*other)) : nullptr;
  return beside == nullptr ? 0 : beside->out.begun();
}

// The first short message does not wait for its connection.
bool may_wait(const Departure& departure, const Connection& connection) {
  constexpr std::size_t kShortBytes = 4096;
  return connection.state == Connection::State::Asked && !connection.out.has_waiting() &&
         departure.header.bytes <= std::min(kShortBytes, departure.here);
}

}  // namespace

Publisher::Publisher(ConnectionTable& table) : table_(table), readers_(table.peers().size()) {}

bool Publisher::publish(Departure& departure) {
  return is_deep(departure.lane) ? publish_deep(departure) : publish_ordinary(departure);
}

void Publisher::note_receipt(int rank, std::uint64_t taken) {
  Reader& from = reader(rank);
  for (; from.taken < taken && !from.untaken.empty(); ++from.taken) {
    from.untaken.pop_front();
  }
}

// A message waits for readers to take an earlier one of its name, as in shared memory. Calls that
// are under way here do not count: their readers may come only after they have got later messages.
bool Publisher::is_held_back(const Departure& departure) {
  const std::uint32_t name = departure.header.envelope.name_hash;
  if (departure.lane != Lane::Deep || departure.announced || name == 0) {
    return false;
  }
  const CallId first = CallId::make(departure.first_under_way, 0);
  return std::ranges::any_of(departure.readers, [&](const WeightedRank& to) {
    return !table_.peer(to.rank).is_gone() &&
           std::ranges::any_of(reader(to.rank).untaken, [&](const Untaken& message) {
             return message.name_hash == name && message.id < first;
           });
  });
}

void Publisher::begin(Departure& departure) {
  for (const WeightedRank& to : departure.readers) {
    if (table_.peer(to.rank).is_gone()) {
      continue;
    }
    MessageHeader header = departure.header;
    header.weight = to.weight;
    table_.use(to.rank, channel_of(departure.lane))
        .out.begin(header, begun_on_other_lane(table_, to.rank, departure.lane));
    if (departure.lane == Lane::Deep) {
      reader(to.rank).untaken.push_back({header.id, header.envelope.name_hash});
    }
  }
  departure.announced = true;
}

Connection* Publisher::under_way(const Departure& departure, int reader) const {
  Connection* const connection = table_.find(reader, channel_of(departure.lane));
  const bool is_so = connection != nullptr && connection->out.is_under_way(departure.header.id);
  return is_so ? connection : nullptr;
}

void Publisher::note_sent(const Departure& departure) {
  for (const WeightedRank& to : departure.readers) {
    if (Connection* const connection = table_.find(to.rank, channel_of(departure.lane))) {
      table_.note_sent(*connection);
    }
  }
}

bool Publisher::all_have_room(const Departure& departure) {
  bool all_have = true;
  for (const WeightedRank& to : departure.readers) {
    if (!table_.peer(to.rank).is_gone()) {
      const Connection& connection = table_.use(to.rank, channel_of(departure.lane));
      all_have &= connection.out.has_room() || may_wait(departure, connection);
    }
  }
  return all_have;
}

bool Publisher::publish_ordinary(Departure& departure) {
  if (!departure.announced) {
    if (!all_have_room(departure)) {
      return false;
    }
    begin(departure);
  }
  const std::size_t here = std::min<std::size_t>(departure.header.bytes, departure.here);
  const std::size_t most = departure.header.bytes <= kWholeBytes ? kWholeBytes : kStepBytes;
  bool moved = false;
  bool needs_copy = departure.header.bytes == 0;  // nobody comes again to send its head
  for (const WeightedRank& to : departure.readers) {
    if (Connection* const connection = under_way(departure, to.rank)) {
      moved |= connection->out.has_room() && connection->out.send({departure.data, here}, most);
      needs_copy |= connection->state == Connection::State::Asked;
    }
  }
  if (needs_copy) {
    stage_rest(departure, here);
  }
  note_sent(departure);
  std::size_t least = departure.header.bytes;
  for (const WeightedRank& to : departure.readers) {
    if (const Connection* const connection = under_way(departure, to.rank)) {
      least = std::min(least, connection->out.position());
    }
  }
  moved |= least > departure.published;
  departure.published = std::max(departure.published, least);
  return moved;
}

// Deep messages wait for nobody: bytes that the sockets do not take at once are copied.
bool Publisher::publish_deep(Departure& departure) {
  if (is_held_back(departure)) {
    return false;
  }
  if (!departure.announced) {
    begin(departure);
  }
  const std::size_t here = std::min<std::size_t>(departure.header.bytes, departure.here);
  for (const WeightedRank& to : departure.readers) {
    Connection* const connection = under_way(departure, to.rank);
    if (connection != nullptr && connection->out.has_room()) {
      connection->out.send({departure.data, here}, here + 1);
    }
  }
  stage_rest(departure, here);
  note_sent(departure);
  departure.published = here;
  table_.note_background();
  return true;
}

// Copies bytes once for all readers that still need them.
void Publisher::stage_rest(const Departure& departure, std::size_t end) {
  std::size_t from = end;
  for (const WeightedRank& to : departure.readers) {
    if (Connection* const connection = under_way(departure, to.rank)) {
      from = std::min(from, connection->out.position());
      if (end == connection->out.position()) {
        connection->out.stage({}, nullptr);  // its head may not be out
      }
    }
  }
  while (from < end) {
    auto block = std::make_shared<BlockPool::Block>(table_.pool().take(end - from));
    const std::size_t block_end = from + std::min(block->bytes(), end - from);
    std::memcpy(block->data(), departure.data + from, block_end - from);
    for (const WeightedRank& to : departure.readers) {
      Connection* const connection = under_way(departure, to.rank);
      if (connection != nullptr && connection->out.position() < block_end) {
        const std::size_t at = connection->out.position();
        connection->out.stage({block->data() + (at - from), block_end - at}, block);
      }
    }
    from = block_end;
  }
}

void Publisher::abort(Departure& departure, std::string_view reason) {
  for (const WeightedRank& to : departure.readers) {
    Connection* const connection = under_way(departure, to.rank);
    if (departure.announced && connection != nullptr) {
      connection->out.abort(reason);
      table_.note_sent(*connection);
    }
  }
  departure.announced = true;
  departure.published = departure.header.bytes;
}

}  // namespace bluefog::tcp
