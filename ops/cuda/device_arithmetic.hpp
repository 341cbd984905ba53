#pragma once

#include <memory>

#include "bluefog_cpp/transport/nccl/device_channel.hpp"
#include "ops/arithmetic.hpp"
#include "ops/cuda/sum_kernels.hpp"
#include "ops/cuda/sum_loop.hpp"

namespace bluefog::ops::cuda {

/// Sums as kernels on the channel's stream. Called where `DeviceChannel` says.
class DeviceArithmetic final : public Arithmetic {
 public:
  explicit DeviceArithmetic(std::shared_ptr<DeviceChannel> channel)
      : channel_(std::move(channel)) {}

  void weighted_sum(Dtype dtype, std::byte* out, std::span<const Operand> operands,
                    std::size_t bytes) const override;
  void plain_sum(Dtype dtype, std::byte* out, std::span<const std::byte* const> operands,
                 std::size_t bytes, int divisor) const override;
  void copy(std::byte* to, const std::byte* from, std::size_t bytes) const override;

 private:
  void launch(SumRule rule, Dtype dtype, SumArguments& arguments, std::size_t bytes) const;

  std::shared_ptr<DeviceChannel> channel_;
};

}  // namespace bluefog::ops::cuda
