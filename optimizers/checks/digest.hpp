#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>

namespace bluefog::optimizers {

/// A number of what ranks compare (FNV-1a): the same on every rank and machine, unlike std::hash.
class Digest {
 public:
  void add(std::span<const std::byte> bytes) noexcept {
    for (const std::byte byte : bytes) {
      value_ = (value_ ^ static_cast<std::uint64_t>(byte)) * 1099511628211ULL;
    }
  }
  void add(std::string_view text) noexcept { add(std::as_bytes(std::span(text))); }
  template <typename Number>
    requires std::is_arithmetic_v<Number>
  void add(Number number) noexcept {
    add(std::as_bytes(std::span(&number, 1)));
  }

  [[nodiscard]] std::uint64_t value() const noexcept { return value_; }

 private:
  std::uint64_t value_ = 14695981039346656037ULL;
};

}  // namespace bluefog::optimizers
