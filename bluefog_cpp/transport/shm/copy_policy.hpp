#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "bluefog_cpp/settings.hpp"
#include "bluefog_cpp/transport/message.hpp"

namespace bluefog::shm {

/// The ways in which a writer copies payload into shared memory.
enum class CopyPath : std::uint8_t {
  /// Through the writer's cache: best where the reader shares a cache with the writer.
  Cached = 0,
  /// Around the writer's cache, into memory: best where the reader shares none.
  Streamed = 1,
};
inline constexpr std::size_t kCopyPaths = 2;

/// The number of classes of messages by size: the best path of one need not be that of another.
inline constexpr std::size_t kCopyClasses = 4;
[[nodiscard]] constexpr std::size_t copy_class(Lane lane, std::size_t message_bytes) noexcept {
  constexpr std::size_t kMedium = std::size_t{512} << 10U;
  constexpr std::size_t kLarge = std::size_t{8} << 20U;
  if (is_deep(lane)) {
    return 3;
  }
  return message_bytes < kMedium ? 0 : message_bytes < kLarge ? 1 : 2;
}

/// The least measured chunk: shorter ones say little about the cost of a byte.
inline constexpr std::size_t kLeastMeasured = 4096;

/// Moving average of a cost, deaf to single outliers; 0 while nothing is known.
[[nodiscard]] constexpr float updated_cost(float average, float sample) noexcept {
  if (average == 0) {
    return sample;
  }
  return average + (std::min(sample, 4 * average) - average) / 4;
}

/// Chooses the path of each chunk by the costs of the paths: the writer's time for the copy and the
/// slowest reader's time for using it, in ticks per byte.
///
/// The cores that share a cache cannot be found out everywhere (a virtual machine may move), so the
/// costs are measured while running: now and then a chunk takes the other path.
class CopyPolicy {
 public:
  explicit CopyPolicy(ShmCopy choice) noexcept : choice_(choice) {}

  /// Path of the next chunk of a message of class `index`.
  /// `read_cost(path)` is the slowest reader's cost, 0 while unknown; asked now and then.
  template <typename ReadCost>
  [[nodiscard]] CopyPath next(std::size_t index, const ReadCost& read_cost) {
    if (choice_ != ShmCopy::Auto) {
      return choice_ == ShmCopy::Stream ? CopyPath::Streamed : CopyPath::Cached;
    }
    Class& c = classes_[index];
    const std::uint32_t chunk = c.chunks++;
    if (chunk % kDecide == kDecide - 1) {
      decide(c, read_cost);
    }
    const std::uint32_t period = chunk < kEarly ? kEarlyTry : kTry;
    return chunk % period == period - 1 ? other(c.path) : c.path;
  }

  /// Notes the writer's cost of a copy.
  void wrote(std::size_t index, CopyPath path, float ticks_per_byte) noexcept {
    float& cost = classes_[index].write_cost[static_cast<std::size_t>(path)];
    cost = updated_cost(cost, ticks_per_byte);
  }

 private:
  /// Chunks between two decisions, and between two tries of the other path.
  static constexpr std::uint32_t kDecide = 8;
  static constexpr std::uint32_t kTry = 64;
  /// Tries are frequent at first.
  static constexpr std::uint32_t kEarly = 64;
  static constexpr std::uint32_t kEarlyTry = 4;
  /// The other path must be better by this factor.
  static constexpr float kBetter = 0.9F;

  struct Class {
    std::uint32_t chunks = 0;
    CopyPath path = CopyPath::Cached;
    std::array<float, kCopyPaths> write_cost{};
  };

  static constexpr CopyPath other(CopyPath path) noexcept {
    return path == CopyPath::Cached ? CopyPath::Streamed : CopyPath::Cached;
  }

  template <typename ReadCost>
  static void decide(Class& c, const ReadCost& read_cost) {
    const auto cost_of = [&](CopyPath path) {
      const float write = c.write_cost[static_cast<std::size_t>(path)];
      const float read = read_cost(path);
      return write == 0 || read == 0 ? 0 : write + read;
    };
    const float now = cost_of(c.path);
    const float then = cost_of(other(c.path));
    if (now != 0 && then != 0 && then < kBetter * now) {
      c.path = other(c.path);
    }
  }

  ShmCopy choice_;
  std::array<Class, kCopyClasses> classes_{};
};

}  // namespace bluefog::shm
