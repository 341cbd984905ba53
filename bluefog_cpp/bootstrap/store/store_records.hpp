#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bluefog_cpp/bootstrap.hpp"
#include "bluefog_cpp/bootstrap/bootstrap_call.hpp"
#include "bluefog_cpp/store.hpp"

namespace bluefog {

/// One rank's part of a collective.
struct StoreRecord {
  BootstrapCall call = BootstrapCall::Allgather;
  Bootstrap::Blob blob;
};

/// Records in the order of ranks, as one value, and back.
/// @throws TransportError for bytes that no rank of this format has written.
[[nodiscard]] Store::Bytes encode(std::span<const StoreRecord> records);
[[nodiscard]] std::vector<StoreRecord> decode(std::span<const std::byte> bytes, std::size_t count);

/// A value of any size under `key`: the first piece there, the others beside it. The first one is
/// set last, so that whoever sees it finds them all.
void put_pieces(Store& store, const std::string& key, std::span<const std::byte> value,
                Deadline deadline);

/// The bytes that `put_pieces` has put, at most `most` bytes.
/// @param fetch the value of a key, which waits for it; nothing ends the reading with nothing.
[[nodiscard]] std::optional<Store::Bytes> take_pieces(
    const std::function<std::optional<Store::Bytes>(const std::string&)>& fetch,
    const std::string& key, std::size_t most);

/// Deletes a value of `bytes` bytes that `put_pieces` has put.
void remove_pieces(Store& store, const std::string& key, std::size_t bytes, Deadline deadline);

}  // namespace bluefog
