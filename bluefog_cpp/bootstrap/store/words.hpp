#pragma once

#include <chrono>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "bluefog_cpp/deadline.hpp"
#include "bluefog_cpp/store.hpp"

namespace bluefog {

/// For a look at a key.
inline Deadline at_once() { return Deadline::after(std::chrono::nanoseconds(1)); }

inline std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

inline std::string words_of(const Store::Bytes& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace bluefog
