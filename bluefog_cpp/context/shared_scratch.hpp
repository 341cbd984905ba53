#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>

namespace bluefog {

/// Memory in which a call puts values together that lie apart, for other ranks of the host to reach:
/// the same block until a call needs a larger one. One call has it at a time.
class SharedScratch {
 public:
  using Allocate = std::function<std::shared_ptr<std::byte>(std::size_t bytes)>;

  /// `use(block)` with a block of at least `bytes`, made by `allocate` where there is none. After an
  /// exception from `use` the block is not used again: others may still write into it.
  template <typename Use>
  void with(std::size_t bytes, const Allocate& allocate, Use&& use) {
    const std::scoped_lock lock(mutex_);
    if (bytes_ < bytes) {
      drop();
      block_ = allocate(bytes);
      bytes_ = bytes;
    }
    try {
      std::forward<Use>(use)(block_.get());
    } catch (...) {
      drop();
      throw;
    }
  }

 private:
  void drop() noexcept {
    block_.reset();
    bytes_ = 0;
  }

  std::mutex mutex_;
  std::shared_ptr<std::byte> block_;
  std::size_t bytes_ = 0;
};

}  // namespace bluefog
