#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "bluefog_cpp/base/alignment.hpp"

namespace bluefog::tcp {

/// Memory for payload in sizes of powers of two, kept for use again: fresh pages cost more than a
/// copy. Used under the transport's mutex.
class BlockPool {
 public:
  static constexpr std::size_t kLeastBytes = 256;
  /// The bytes of a stream that a core's own cache holds.
  static constexpr std::size_t kMostBytes = std::size_t{256} << 10U;

  /// Memory that starts on a cache line; goes back to its pool, which outlives it.
  class Block {
   public:
    Block() = default;
    Block(BlockPool* pool, std::byte* data, std::size_t bytes) noexcept
        : pool_(pool), data_(data), bytes_(bytes) {}
    Block(Block&& other) noexcept
        : pool_(other.pool_), data_(std::exchange(other.data_, nullptr)), bytes_(other.bytes_) {}
    Block& operator=(Block&& other) noexcept {
      if (this != &other) {
        release();
        pool_ = other.pool_;
        data_ = std::exchange(other.data_, nullptr);
        bytes_ = other.bytes_;
      }
      return *this;
    }
    ~Block() { release(); }

    [[nodiscard]] std::byte* data() const noexcept { return data_; }
    [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }

   private:
    void release() noexcept {
      if (data_ != nullptr) {
        pool_->give_back(data_, bytes_);
        data_ = nullptr;
      }
    }

    BlockPool* pool_ = nullptr;
    std::byte* data_ = nullptr;
    std::size_t bytes_ = 0;
  };

  BlockPool() = default;
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;
  ~BlockPool();

  /// A block for `bytes`, or for as many of them as the largest has. @throws std::bad_alloc.
  [[nodiscard]] Block take(std::size_t bytes);

 private:
  static constexpr std::size_t kClasses = 11;
  static_assert(kLeastBytes << (kClasses - 1) == kMostBytes);

  void give_back(std::byte* data, std::size_t bytes) noexcept;

  /// Free blocks, by size.
  std::array<std::vector<std::byte*>, kClasses> free_;
  /// How many blocks there are of a size: giving one back needs no memory.
  std::array<std::size_t, kClasses> made_{};
};

}  // namespace bluefog::tcp
