#include "ops/sums/cuda/device_arithmetic.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "bluefog_cpp/base/alignment.hpp"
#include "bluefog_cpp/error.hpp"
#include "ops/sums/average.hpp"

namespace bluefog::ops::cuda {
namespace {

static_assert(kPackBytes == kDevicePack, "payloads lie as kernels read them");
constexpr unsigned kThreads = 256;
/// The most blocks of a launch: enough to fill any GPU of today. The kernel's loop does the rest.
constexpr std::size_t kMostBlocks = 8192;

gpu::Grid grid_for(std::size_t bytes) {
  const std::size_t packs = (bytes + kPackBytes - 1) / kPackBytes;
  const std::size_t blocks =
      std::clamp<std::size_t>((packs + kThreads - 1) / kThreads, 1, kMostBlocks);
  return {.blocks = static_cast<unsigned>(blocks), .threads = kThreads};
}

void check_count(std::size_t operands) {
  if (operands > static_cast<std::size_t>(kMostSumOperands)) {
    throw UnsupportedError(fmt::format("a sum on a GPU: expected at most {} operands, found {}",
                                       kMostSumOperands, operands));
  }
}

void launch(gpu::CudaApi& cuda, gpu::FunctionHandle kernel, Dtype dtype, SumArguments& arguments,
            std::size_t bytes, gpu::StreamHandle stream) {
  arguments.count = static_cast<std::int64_t>(bytes / size_of(dtype));
  if (arguments.count > 0) {
    cuda.launch(kernel, grid_for(bytes), std::as_bytes(std::span(&arguments, 1)), stream);
  }
}

}  // namespace

void launch_weighted_sum(gpu::CudaApi& cuda, gpu::FunctionHandle kernel, Dtype dtype,
                         std::byte* out, std::span<const Operand> operands, std::size_t bytes,
                         gpu::StreamHandle stream) {
  check_count(operands.size());
  const auto base = base_of(operands);
  SumArguments arguments;
  arguments.out = out;
  arguments.form = base ? SumForm::Average : SumForm::Products;
  arguments.operand_count = static_cast<std::int32_t>(operands.size());
  for (std::size_t s = 0; s < operands.size(); ++s) {
    const Operand& operand = operands[base ? from_base(*base, s) : s];
    arguments.operands[s] = {.data = operand.data, .weight = operand.weight};
  }
  launch(cuda, kernel, dtype, arguments, bytes, stream);
}

gpu::FunctionHandle DeviceArithmetic::kernel(SumRule rule, Dtype dtype, std::size_t bytes) const {
  return bytes == 0 ? nullptr : channel_->kernel(sum_kernels_image(), sum_kernel_name(rule, dtype));
}

void DeviceArithmetic::weighted_sum(Dtype dtype, std::byte* out, std::span<const Operand> operands,
                                    std::size_t bytes) const {
  launch_weighted_sum(channel_->cuda(), kernel(SumRule::Weighted, dtype, bytes), dtype, out,
                      operands, bytes, channel_->stream());
}

void DeviceArithmetic::plain_sum(Dtype dtype, std::byte* out,
                                 std::span<const std::byte* const> operands,
                                 std::size_t bytes) const {
  launch_plain(SumForm::Sum, dtype, out, operands, bytes);
}

void DeviceArithmetic::mean(Dtype dtype, std::byte* out, std::span<const std::byte* const> operands,
                            std::size_t bytes) const {
  launch_plain(SumForm::Mean, dtype, out, operands, bytes);
}

void DeviceArithmetic::launch_plain(SumForm form, Dtype dtype, std::byte* out,
                                    std::span<const std::byte* const> operands,
                                    std::size_t bytes) const {
  check_count(operands.size());
  SumArguments arguments;
  arguments.out = out;
  arguments.form = form;
  arguments.operand_count = static_cast<std::int32_t>(operands.size());
  std::ranges::transform(operands, arguments.operands, [](const std::byte* operand) {
    return SumOperand{.data = operand, .weight = 1.0};
  });
  launch(channel_->cuda(), kernel(SumRule::Plain, dtype, bytes), dtype, arguments, bytes,
         channel_->stream());
}

void DeviceArithmetic::copy(std::byte* to, const std::byte* from, std::size_t bytes) const {
  if (bytes > 0 && to != from) {
    channel_->cuda().copy(to, from, bytes, channel_->stream());
  }
}

}  // namespace bluefog::ops::cuda
