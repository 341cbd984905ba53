#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace bluefog::ops {

/// The memory in which a rank writes down the results of a block before it writes them into the
/// buffers of others: sums in place overwrite what they were formed from, so that after the end of
/// its process they could not be formed again. It lies in the rank's shared memory.
///
/// What a call has written is known from its progress p: with p odd, the results of block p / 2 are
/// here in full, and may be in the buffers in part; with p even, those of p / 2 blocks are in the
/// buffers, and nothing else is.
class ResultLog {
 public:
  /// @param memory `bytes_for(most)` bytes, on a cache line.
  explicit ResultLog(std::byte* memory) noexcept : memory_(memory) {}

  [[nodiscard]] static constexpr std::size_t bytes_for(std::size_t results) noexcept {
    return kHead + results;
  }
  /// Where the results of a block go.
  [[nodiscard]] std::byte* results() const noexcept { return memory_ + kHead; }

  void begin(std::uint64_t call) noexcept {
    head().call.store(0, std::memory_order_relaxed);
    head().progress.store(0, std::memory_order_release);
    head().call.store(call, std::memory_order_release);
    progress_ = 0;
  }
  /// The results of the next block are here.
  void note_formed() noexcept { note(); }
  /// They are in the buffers. Later results may take their place.
  void note_written() noexcept { note(); }

 private:
  static constexpr std::size_t kHead = 64;
  struct Head {
    std::atomic<std::uint64_t> call;
    std::atomic<std::uint64_t> progress;
  };

  [[nodiscard]] Head& head() const noexcept { return *reinterpret_cast<Head*>(memory_); }
  // What was stored before is seen before: no store of these blocks goes around the cache.
  void note() noexcept { head().progress.store(++progress_, std::memory_order_release); }

  std::byte* memory_;
  std::uint64_t progress_ = 0;
};

}  // namespace bluefog::ops
