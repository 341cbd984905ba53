#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "bluefog_cpp/buffer_view.hpp"
#include "bluefog_cpp/context.hpp"
#include "bluefog_cpp/dtype.hpp"
#include "ops/sums/combine.hpp"
#include "ops/sums/fold.hpp"

namespace bluefog::ops {

/// Forms an operation's sums: on the CPU at once, or on the stream of the context's device, in the
/// same order and with the same bits.
class Arithmetic {
 public:
  Arithmetic() = default;
  Arithmetic(const Arithmetic&) = delete;
  Arithmetic& operator=(const Arithmetic&) = delete;
  virtual ~Arithmetic() = default;

  /// Does the work of the function `weighted_sum`.
  virtual void weighted_sum(Dtype dtype, std::byte* out, std::span<const Operand> operands,
                            std::size_t bytes) const = 0;
  /// Does the work of the function `plain_sum`.
  virtual void plain_sum(Dtype dtype, std::byte* out, std::span<const std::byte* const> operands,
                         std::size_t bytes) const = 0;
  /// Does the work of the function `mean`.
  virtual void mean(Dtype dtype, std::byte* out, std::span<const std::byte* const> operands,
                    std::size_t bytes) const = 0;
  /// Does the work of the function `fold`. @throws UnsupportedError on a device.
  virtual void fold_other(Fold rule, Dtype dtype, std::byte* out,
                          std::span<const std::byte* const> operands, std::size_t bytes) const;
  /// Does whichever of the three `rule` asks for.
  void fold(Fold rule, Dtype dtype, std::byte* out, std::span<const std::byte* const> operands,
            std::size_t bytes) const {
    if (rule == Fold::Sum) {
      plain_sum(dtype, out, operands, bytes);
    } else if (rule == Fold::Mean) {
      mean(dtype, out, operands, bytes);
    } else {
      fold_other(rule, dtype, out, operands, bytes);
    }
  }
  /// @param to and `from` may overlap on the CPU.
  virtual void copy(std::byte* to, const std::byte* from, std::size_t bytes) const = 0;
};

using ArithmeticHandle = std::shared_ptr<const Arithmetic>;

/// The arithmetic for buffers on `device`: the CPU, or the device that the context uses.
[[nodiscard]] ArithmeticHandle arithmetic_on(const Context& context, const Device& device);

}  // namespace bluefog::ops
