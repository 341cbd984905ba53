#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>

#include "bluefog_cpp/base/alignment.hpp"

namespace bluefog::mpi {

/// Memory that starts on a cache line, uninitialised.
class AlignedBytes {
 public:
  static constexpr std::size_t kAlignment = kCacheLine;

  AlignedBytes() = default;
  explicit AlignedBytes(std::size_t bytes)
      : memory_(static_cast<std::byte*>(std::aligned_alloc(kAlignment, round_up(bytes)))) {
    if (!memory_) {
      throw std::bad_alloc();
    }
  }

  [[nodiscard]] std::byte* data() const noexcept { return memory_.get(); }
  [[nodiscard]] static constexpr std::size_t round_up(std::size_t bytes) noexcept {
    return bluefog::round_up(bytes, kAlignment);
  }

 private:
  struct Free {
    void operator()(std::byte* memory) const noexcept { std::free(memory); }
  };
  std::unique_ptr<std::byte, Free> memory_;
};

}  // namespace bluefog::mpi
