#pragma once

#include <cstddef>
#include <span>

#include "bluefog_cpp/dtype.hpp"
#include "ops/sums/combine.hpp"

namespace bluefog::ops {

/// Forms the values of a window's buffers that are not on the host, for one call: one after the
/// other, while the host goes on.
class WindowValues {
 public:
  WindowValues() = default;
  WindowValues(const WindowValues&) = delete;
  WindowValues& operator=(const WindowValues&) = delete;
  virtual ~WindowValues() = default;

  virtual void copy(std::byte* to, const std::byte* from, std::size_t bytes) = 0;
  /// Does the work of the function `weighted_sum`.
  virtual void weighted_sum(Dtype dtype, std::byte* out, std::span<const Operand> operands,
                            std::size_t bytes) = 0;
  virtual void zero(std::byte* data, std::size_t bytes) = 0;

  /// Returns when all values are formed, before a lock is released. @throws TimeoutError,
  /// CudaError.
  virtual void settle() = 0;
  /// Does what it can of `settle` for a call that has failed. Nothing is waited for twice.
  virtual void settle_quietly() noexcept = 0;
};

}  // namespace bluefog::ops
