#include "ops/sums/cuda/sum_kernels.hpp"

// Made by bluefog_add_kernels.
extern "C" const std::byte bluefog_sum_kernels[];
extern "C" const std::byte bluefog_sum_kernels_end[];

namespace bluefog::ops::cuda {

std::span<const std::byte> sum_kernels_image() noexcept {
  return {static_cast<const std::byte*>(bluefog_sum_kernels),
          static_cast<const std::byte*>(bluefog_sum_kernels_end)};
}

}  // namespace bluefog::ops::cuda
