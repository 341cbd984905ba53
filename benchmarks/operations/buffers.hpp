#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "benchmarks/operations/contestant.hpp"

namespace bluefog::benchmarks {

/// The buffers of a size that calls take in turn, each rewritten before, as a training step does:
/// 16 of them, or fewer of together 64 MiB. Each begins on a page.
class Buffers {
 public:
  Buffers(const Setting& setting, bool are_shared);

  /// Bytes of all buffers together.
  [[nodiscard]] static double bytes_of(const Setting& setting);

  /// The next buffer, rewritten.
  [[nodiscard]] BufferView next();

  /// One that `next` has not given last: the one that was rewritten longest ago.
  [[nodiscard]] BufferView other();

 private:
  [[nodiscard]] std::shared_ptr<std::byte> allocate() const;

  Context* context_;
  bool are_shared_;
  std::int64_t count_;
  Dtype dtype_;
  std::vector<std::shared_ptr<std::byte>> memory_;
  std::shared_ptr<std::byte> spare_;  ///< of buffers so large that there is but one
  unsigned turn_ = 0;
};

}  // namespace bluefog::benchmarks
