#pragma once

#include <algorithm>
#include <boost/container/small_vector.hpp>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "bluefog_cpp/transport/shm/shared_region.hpp"

namespace bluefog::shm {

/// One reader's claim on a payload block: it is over when the reader has
/// consumed that entry of the stream.
struct Claim {
  int peer = 0;
  std::uint8_t lane = 0;
  std::uint64_t entry = 0;
};

/// The writer's side of its payload memory, which knows the blocks that are free.
///
/// A block is written once, however many readers it has, and is free again
/// when every reader's stream has moved past it. Only the writer looks at this,
/// so that no counter is shared.
class PayloadPool {
 public:
  struct Block {
    std::uint64_t place = 0;
    std::byte* data = nullptr;
    /// 0 while there is no memory yet.
    std::size_t bytes = 0;
    /// The message of which a deep block holds a part, and that message's name.
    std::uint64_t message = 0;
    std::uint32_t name_hash = 0;
    boost::container::small_vector<Claim, 4> claims;
  };

  /// `slots` blocks of `chunk_bytes` each, and blocks of other sizes, which get their memory when
  /// they are first used. @param region this rank's; outlives the pool.
  PayloadPool(SharedRegion& region, std::size_t chunk_bytes, std::size_t slots)
      : region_(region), chunk_bytes_(chunk_bytes), slots_(slots) {}

  /// A free slot, or null. `is_over` says whether a claim is over. A few slots go round while
  /// readers keep up: their memory is still in the caches.
  /// @throws TransportError when memory is short.
  template <typename IsOver>
  Block* take_slot(const IsOver& is_over) {
    const std::size_t first = next_;
    next_ = next_ + 1 >= std::min(kWarmSlots, slots_.size()) ? 0 : next_ + 1;
    for (std::size_t tries = 0; tries < slots_.size(); ++tries) {
      Block& block = slots_[(first + tries) % slots_.size()];
      if (is_free(block, is_over)) {
        if (block.bytes == 0) {
          give_memory(block, chunk_bytes_);
        }
        return &block;
      }
    }
    return nullptr;
  }

  /// A free block of at least `bytes` for part of a message; the region grows when there is none.
  /// Null while readers still hold an earlier message with the same name, so that memory stays at
  /// one copy of each tensor. Messages from `first_id` on do not count: their calls are under way
  /// here, and their readers may come only after they have got later messages.
  /// @throws TransportError when memory is short.
  template <typename IsOver>
  Block* take_deep(std::size_t bytes, std::uint64_t message, std::uint32_t name_hash,
                   std::uint64_t first_id, const IsOver& is_over) {
    Block* found = nullptr;
    for (auto& block : deep_) {
      if (is_free(*block, is_over)) {
        if (found == nullptr && block->bytes >= bytes && block->bytes / 2 <= bytes) {
          found = block.get();
        }
      } else if (name_hash != 0 && block->name_hash == name_hash && block->message != message &&
                 block->message < first_id) {
        return nullptr;
      }
    }
    if (found == nullptr) {
      found = add_deep(bytes);
    }
    found->message = message;
    found->name_hash = name_hash;
    return found;
  }

  /// The memory of deep blocks that a reader has on a lane.
  template <typename IsOver>
  [[nodiscard]] std::size_t held_by(int peer, std::uint8_t lane, const IsOver& is_over) {
    std::size_t bytes = 0;
    for (auto& block : deep_) {
      if (!is_free(*block, is_over) && block->claims.back().peer == peer &&
          block->claims.back().lane == lane) {
        bytes += block->bytes;
      }
    }
    return bytes;
  }

  [[nodiscard]] std::size_t chunk_bytes() const noexcept { return chunk_bytes_; }

 private:
  static constexpr std::size_t kWarmSlots = 4;

  template <typename IsOver>
  static bool is_free(Block& block, const IsOver& is_over) {
    while (!block.claims.empty() && is_over(block.claims.back())) {
      block.claims.pop_back();
    }
    return block.claims.empty();
  }
  void give_memory(Block& block, std::size_t bytes);
  Block* add_deep(std::size_t bytes);

  SharedRegion& region_;
  std::size_t chunk_bytes_;
  std::vector<Block> slots_;
  std::size_t next_ = 0;
  std::vector<std::unique_ptr<Block>> deep_;
};

}  // namespace bluefog::shm
