#pragma once

#include <string>

namespace bluefog::store {

/// The place of a store over TCP.
struct StoreAddress {
  std::string host = {};  ///< a name, or an address of IPv4 or IPv6
  int port = 0;
  std::string secret = {};  ///< at most 64 characters; empty: none

  /// "127.0.0.1:4711", "[::1]:4711".
  [[nodiscard]] std::string text() const;
};

/// Reads what `text()` gives.
/// @param name where the text comes from, for the message.
/// @throws InvalidArgument for what is no place.
[[nodiscard]] StoreAddress parse_store_address(const std::string& name, const std::string& text);

/// A secret that nobody guesses.
[[nodiscard]] std::string draw_secret();

}  // namespace bluefog::store
