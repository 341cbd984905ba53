#pragma once

#include <memory>

#include "bluefog_cpp/device/device_channel.hpp"
#include "ops/sums/arithmetic.hpp"
#include "ops/sums/cuda/sum_kernels.hpp"
#include "ops/sums/cuda/sum_loop.hpp"

namespace bluefog::ops::cuda {

/// Puts `weighted_sum` on `stream`; none of it for 0 bytes. The device has been entered.
/// @param kernel that of `SumRule::Weighted` and the dtype, or null for 0 bytes.
/// @throws UnsupportedError for more than `kMostSumOperands` operands, CudaError.
void launch_weighted_sum(gpu::CudaApi& cuda, gpu::FunctionHandle kernel, Dtype dtype,
                         std::byte* out, std::span<const Operand> operands, std::size_t bytes,
                         gpu::StreamHandle stream);

/// Sums as kernels on the channel's stream. Called where `DeviceChannel` says.
class DeviceArithmetic final : public Arithmetic {
 public:
  explicit DeviceArithmetic(std::shared_ptr<DeviceChannel> channel)
      : channel_(std::move(channel)) {}

  void weighted_sum(Dtype dtype, std::byte* out, std::span<const Operand> operands,
                    std::size_t bytes) const override;
  void plain_sum(Dtype dtype, std::byte* out, std::span<const std::byte* const> operands,
                 std::size_t bytes) const override;
  void mean(Dtype dtype, std::byte* out, std::span<const std::byte* const> operands,
            std::size_t bytes) const override;
  void copy(std::byte* to, const std::byte* from, std::size_t bytes) const override;

 private:
  void launch_plain(SumForm form, Dtype dtype, std::byte* out,
                    std::span<const std::byte* const> operands, std::size_t bytes) const;
  /// Null for 0 bytes.
  [[nodiscard]] gpu::FunctionHandle kernel(SumRule rule, Dtype dtype, std::size_t bytes) const;

  std::shared_ptr<DeviceChannel> channel_;
};

}  // namespace bluefog::ops::cuda
