#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "bluefog_cpp/buffer_view.hpp"
#include "bluefog_cpp/one_sided/window_message.hpp"
#include "bluefog_cpp/transport/robust_lock.hpp"
#include "ops/window/window_values.hpp"

namespace bluefog::ops {

/// The effect of a store on a buffer's value.
enum class StoreMode : std::uint8_t { Replace, Add };

/// Bytes with the weight that they are to be multiplied by, and what goes along: the associated
/// weight (push-sum), weighted already, and the sender's stamp.
struct WeightedBytes {
  const std::byte* data = nullptr;
  double weight = 1.0;
  double mass = 0.0;
  std::int64_t stamp = 0;
};

/// Takes `lock` for the calling rank, and waits as long as the context allows. Its captures are two
/// words at most, which it holds without the heap.
using TakeLock = std::function<void(shm::RobustLock& lock)>;

/// The place where other ranks find a rank's own value.
enum class OwnValue : std::uint8_t {
  InTensor,
  /// In a copy beside the buffers: no other rank can read the tensor where it is.
  Published,
};

/// A rank's part of a window: one buffer per source, behind them one for the own value where that
/// is published, and their locks. All of it lies in memory that the ranks of its host share, or the
/// buffers in memory of its device, which these ranks have opened.
///
/// Calls take `values` where the buffers are on a device: they return, and release locks, when the
/// device has done its part.
class WindowMemory {
 public:
  struct Shape {
    /// Buffers of sources.
    std::size_t sources = 0;
    OwnValue own_value = OwnValue::InTensor;
    Dtype dtype = Dtype::Float32;
    /// The size of each buffer.
    std::size_t bytes = 0;

    [[nodiscard]] std::size_t slots() const noexcept {
      return sources + (own_value == OwnValue::Published ? 1 : 0);
    }
  };

  /// The bytes that such a window takes: all, then those of heads and of buffers.
  [[nodiscard]] static std::size_t size_of_block(const Shape& shape) noexcept {
    return size_of_heads(shape) + size_of_buffers(shape);
  }
  [[nodiscard]] static std::size_t size_of_heads(const Shape& shape) noexcept;
  [[nodiscard]] static std::size_t size_of_buffers(const Shape& shape) noexcept;

  /// A window whose block lies at `block`.
  WindowMemory(std::byte* block, const Shape& shape) noexcept
      : WindowMemory(block, block + size_of_heads(shape), shape) {}
  /// A window whose buffers lie apart from their heads, and are not used where they are null.
  WindowMemory(std::byte* heads, std::byte* buffers, const Shape& shape) noexcept
      : block_(heads), buffers_(buffers), shape_(shape) {}

  /// Writes the heads, before other ranks see them. Buffers of sources get `value`, or zeros where
  /// it is null.
  /// @param own_value the value to publish; null where none is published.
  void initialize(const std::byte* value, const std::byte* own_value,
                  WindowValues* values = nullptr);

  /// Sets all buffers of sources to `value`, or to zeros where it is null; they count as read.
  void fill(const std::byte* value, const TakeLock& take, WindowValues* values = nullptr) const;

  /// The mutex of whoever asked for exclusion at this rank.
  [[nodiscard]] shm::RobustLock& mutex() const noexcept { return head().mutex; }
  /// This rank's own associated weight.
  [[nodiscard]] std::atomic<double>& mass() const noexcept { return head().mass; }
  [[nodiscard]] bool publishes() const noexcept { return shape_.own_value == OwnValue::Published; }
  [[nodiscard]] bool is_freed() const noexcept { return head().is_freed.load(); }
  void mark_freed() const noexcept { head().is_freed.store(true); }

  /// Puts into the buffer of the source with that index, or adds to it.
  void store(std::size_t index, StoreMode mode, const WeightedBytes& value, const TakeLock& take,
             WindowValues* values = nullptr) const;

  /// Puts what `read` writes, times `value.weight`; `value.data` is not used.
  void store_read(std::size_t index, const WeightedBytes& value,
                  const std::function<void(std::byte* to)>& read, const TakeLock& take,
                  WindowValues* values = nullptr) const;

  /// Sets the published value: others find the old one or the new one, whole, in `copy_published`.
  void publish(const std::byte* value, const TakeLock& take, WindowValues* values = nullptr) const;
  void copy_published(std::byte* to, const TakeLock& take, WindowValues* values = nullptr) const;

  /// The number of writes to the buffer since it was last read.
  [[nodiscard]] std::int64_t version(std::size_t index) const noexcept {
    return buffer_head(index).version.load(std::memory_order_relaxed);
  }
  /// The stamp of the last of them; 0 while there was none.
  [[nodiscard]] std::int64_t stamp(std::size_t index) const noexcept {
    return buffer_head(index).stamp.load(std::memory_order_relaxed);
  }
  void set_stamp(std::size_t index, std::int64_t stamp) const noexcept {
    buffer_head(index).stamp.store(stamp, std::memory_order_relaxed);
  }

  /// A source's buffer and the weight that it gets in an update.
  struct Term {
    std::size_t index = 0;
    double weight = 1.0;
  };
  enum class After : std::uint8_t { Keep, Zero };
  /// This rank's own value, and its place among the terms by rising rank.
  struct OwnTerm {
    const std::byte* data = nullptr;
    double weight = 1.0;
    std::size_t place = 0;
  };
  /// out ← own.weight · own + Σ weight · buffer over `terms`, rising by index, as `weighted_sum`;
  /// sets this rank's associated weight in the same way where `mass` is On. All buffers are held
  /// meanwhile.
  enum class Mass : std::uint8_t { Off, On };
  void combine(std::byte* out, const OwnTerm& own, std::span<const Term> terms, After after,
               Mass mass, const TakeLock& take, WindowValues* values = nullptr) const;

 private:
  struct alignas(64) Head {
    shm::RobustLock mutex;
    std::atomic<double> mass;
    std::atomic<bool> is_freed;
  };
  struct alignas(64) BufferHead {
    shm::RobustLock lock;
    std::atomic<std::int64_t> version;
    std::atomic<std::int64_t> stamp;
    /// Guarded by `lock`, as the buffer is.
    double mass;
  };

  [[nodiscard]] Head& head() const noexcept { return *reinterpret_cast<Head*>(block_); }
  [[nodiscard]] BufferHead& buffer_head(std::size_t index) const noexcept {
    return reinterpret_cast<BufferHead*>(block_ + sizeof(Head))[index];
  }
  [[nodiscard]] std::byte* buffer(std::size_t index) const noexcept;
  void fill_buffer(std::size_t index, const std::byte* value, WindowValues* values) const;
  void mark_empty(std::size_t index) const noexcept;
  void mark_written(std::size_t index, const WeightedBytes& value) const noexcept;
  void copy(std::byte* to, const std::byte* from, WindowValues* values) const;
  void sum(std::byte* out, std::span<const Operand> operands, WindowValues* values) const;
  void zero(std::byte* data, WindowValues* values) const;
  void combine_mass(const OwnTerm& own, std::span<const Term> terms) const;

  std::byte* block_;
  std::byte* buffers_;
  Shape shape_;
};

}  // namespace bluefog::ops
