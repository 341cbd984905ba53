#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace bluefog::benchmarks {

/// The least that two ranks of one host can do for x ← ½ x + ½ y: each of two threads copies its
/// buffer chunk by chunk to where the other sees it, sets a flag, and adds the other's flagged
/// chunks in place. No messages, checks, waiting policy or choice of path: a limit for exchanges
/// through shared memory, on the cores and caches that the machine gives at this moment.
class BareLoop {
 public:
  /// @param bytes of each side's buffer, float32.
  /// @param chunk_bytes copied before each flag.
  BareLoop(std::size_t bytes, std::size_t chunk_bytes);

  /// Microseconds from the moment both threads have rewritten their buffers until both have their
  /// sum. The caller is one of the two threads.
  double time_us();

 private:
  static constexpr std::size_t kSlots = 4;

  /// The memory that one thread writes and the other reads; flags on lines of their own.
  struct Side {
    std::vector<float> x;
    std::vector<float> slots;
    alignas(64) std::atomic<std::uint64_t> published{0};
    alignas(64) std::atomic<std::uint64_t> consumed{0};
    alignas(64) std::atomic<std::uint64_t> rounds{0};
  };

  void take_part(std::size_t own_side, std::uint64_t round);
  void exchange(Side& own, Side& other);

  std::size_t chunk_floats_;
  std::uint64_t round_ = 0;
  std::array<Side, 2> sides_;
};

}  // namespace bluefog::benchmarks
