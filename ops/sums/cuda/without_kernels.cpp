#include "ops/sums/cuda/sum_kernels.hpp"

namespace bluefog::ops::cuda {

std::span<const std::byte> sum_kernels_image() noexcept { return {}; }

}  // namespace bluefog::ops::cuda
