#include "bluefog_cpp/bootstrap/store/store_records.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "bluefog_cpp/error.hpp"

namespace bluefog {

namespace {

// Begins every value; the last letter counts the formats.
constexpr std::uint32_t kMark = 0x31534642;  // "BFS1"
constexpr std::size_t kPieceBytes = std::size_t{256} << 10;

struct Head {
  std::uint32_t mark = kMark;
  std::uint32_t unused = 0;
  std::uint64_t bytes = 0;
};

struct RecordHead {
  std::uint64_t call = 0;
  std::uint64_t bytes = 0;
};

template <typename T>
void append(Store::Bytes& bytes, const T& value) {
  const auto view = std::as_bytes(std::span(&value, 1));
  bytes.insert(bytes.end(), view.begin(), view.end());
}

template <typename T>
T take(std::span<const std::byte>& bytes) {
  if (bytes.size() < sizeof(T)) {
    throw TransportError(fmt::format("a record was cut off: expected {} more bytes, found {}",
                                     sizeof(T), bytes.size()));
  }
  T value;
  std::memcpy(&value, bytes.data(), sizeof value);
  bytes = bytes.subspan(sizeof value);
  return value;
}

std::size_t pieces_of(std::size_t bytes) {
  return bytes == 0 ? 1 : (bytes + kPieceBytes - 1) / kPieceBytes;
}

std::string piece_key(const std::string& key, std::size_t piece) {
  return fmt::format("{}.{}", key, piece);
}

std::span<const std::byte> piece_of(std::span<const std::byte> value, std::size_t piece) {
  const std::size_t begin = std::min(piece * kPieceBytes, value.size());
  return value.subspan(begin, std::min(kPieceBytes, value.size() - begin));
}

[[noreturn]] void refuse(const std::string& key, const std::string& found) {
  throw TransportError(fmt::format(
      "key {}: expected what a rank of this version has written, found {}; give programs that share "
      "a store different prefixes",
      key, found));
}

}  // namespace

Store::Bytes encode(std::span<const StoreRecord> records) {
  Store::Bytes bytes;
  for (const StoreRecord& record : records) {
    append(bytes, RecordHead{static_cast<std::uint64_t>(record.call), record.blob.size()});
    bytes.insert(bytes.end(), record.blob.begin(), record.blob.end());
  }
  return bytes;
}

std::vector<StoreRecord> decode(std::span<const std::byte> bytes, std::size_t count) {
  std::vector<StoreRecord> records;
  for (std::size_t index = 0; index < count; ++index) {
    const auto head = take<RecordHead>(bytes);
    if (head.call > static_cast<std::uint64_t>(BootstrapCall::Duplicate) ||
        head.bytes > bytes.size()) {
      throw TransportError(
          fmt::format("record {} of {}: expected a call and its bytes, found call {} with {} of {} "
                      "bytes",
                      index, count, head.call, head.bytes, bytes.size()));
    }
    const auto blob = bytes.first(head.bytes);
    records.push_back({static_cast<BootstrapCall>(head.call), {blob.begin(), blob.end()}});
    bytes = bytes.subspan(head.bytes);
  }
  if (!bytes.empty()) {
    throw TransportError(
        fmt::format("{} records: expected no bytes behind them, found {}", count, bytes.size()));
  }
  return records;
}

void put_pieces(Store& store, const std::string& key, std::span<const std::byte> value,
                Deadline deadline) {
  for (std::size_t piece = pieces_of(value.size()) - 1; piece > 0; --piece) {
    store.set(piece_key(key, piece), piece_of(value, piece), deadline);
  }
  Store::Bytes first;
  append(first, Head{.bytes = value.size()});
  const auto rest = piece_of(value, 0);
  first.insert(first.end(), rest.begin(), rest.end());
  store.set(key, first, deadline);
}

std::optional<Store::Bytes> take_pieces(
    const std::function<std::optional<Store::Bytes>(const std::string&)>& fetch,
    const std::string& key, std::size_t most) {
  const auto first = fetch(key);
  if (!first) {
    return std::nullopt;
  }
  std::span<const std::byte> rest(*first);
  if (rest.size() < sizeof(Head)) {
    refuse(key, fmt::format("{} bytes", rest.size()));
  }
  const auto head = take<Head>(rest);
  if (head.mark != kMark || head.bytes > most) {
    refuse(key, fmt::format("the mark {:08x} and {} bytes", head.mark, head.bytes));
  }
  Store::Bytes value(rest.begin(), rest.end());
  const std::size_t pieces = pieces_of(head.bytes);
  for (std::size_t piece = 1; piece < pieces; ++piece) {
    const auto next = fetch(piece_key(key, piece));
    if (!next) {
      return std::nullopt;
    }
    value.insert(value.end(), next->begin(), next->end());
  }
  if (value.size() != head.bytes) {
    refuse(key, fmt::format("{} of {} bytes", value.size(), head.bytes));
  }
  return value;
}

void remove_pieces(Store& store, const std::string& key, std::size_t bytes, Deadline deadline) {
  store.remove(key, deadline);
  for (std::size_t piece = 1; piece < pieces_of(bytes); ++piece) {
    store.remove(piece_key(key, piece), deadline);
  }
}

}  // namespace bluefog
