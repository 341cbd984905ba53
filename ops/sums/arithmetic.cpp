#include "ops/sums/arithmetic.hpp"

#include <fmt/format.h>

#include <cstring>

#include "bluefog_cpp/context/context_core.hpp"
#include "bluefog_cpp/error.hpp"
#include "ops/sums/average.hpp"
#include "ops/sums/cuda/device_arithmetic.hpp"
#include "ops/sums/plain_sum.hpp"

namespace bluefog::ops {
namespace {

class CpuArithmetic final : public Arithmetic {
 public:
  void weighted_sum(Dtype dtype, std::byte* out, std::span<const Operand> operands,
                    std::size_t bytes) const override {
    ops::weighted_sum(dtype, out, operands, bytes);
  }
  void plain_sum(Dtype dtype, std::byte* out, std::span<const std::byte* const> operands,
                 std::size_t bytes) const override {
    ops::plain_sum(dtype, out, operands, bytes);
  }
  void mean(Dtype dtype, std::byte* out, std::span<const std::byte* const> operands,
            std::size_t bytes) const override {
    ops::mean(dtype, out, operands, bytes);
  }
  void fold_other(Fold rule, Dtype dtype, std::byte* out,
                  std::span<const std::byte* const> operands, std::size_t bytes) const override {
    ops::fold(rule, dtype, out, operands, bytes);
  }
  void copy(std::byte* to, const std::byte* from, std::size_t bytes) const override {
    std::memmove(to, from, bytes);
  }
};

}  // namespace

void Arithmetic::fold_other(Fold rule, Dtype /*dtype*/, std::byte* /*out*/,
                            std::span<const std::byte* const> /*operands*/,
                            std::size_t /*bytes*/) const {
  throw UnsupportedError(
      fmt::format("expected a sum or a mean on a device, found {}", name_of(rule)));
}

ArithmeticHandle arithmetic_on(const Context& context, const Device& device) {
  static const CpuArithmetic kCpu;
  if (device.kind == DeviceKind::Cpu) {
    return {std::shared_ptr<void>(), &kCpu};  // owns nothing
  }
  return std::make_shared<cuda::DeviceArithmetic>(context.core().device());
}

}  // namespace bluefog::ops
