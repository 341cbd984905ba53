// The kernels of weighted and plain sums: ops/sums/cuda/sum_loop.hpp on a device.
#include "ops/sums/cuda/sum_loop.hpp"

using namespace bluefog::ops::cuda;

#define BF_SUM_KERNEL(name, share)                                                     \
  extern "C" __global__ void __launch_bounds__(256)                                    \
      name(const __grid_constant__ SumArguments arguments) {                           \
    share(arguments, static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x, \
          static_cast<std::int64_t>(gridDim.x) * blockDim.x);                          \
  }

BF_SUM_KERNEL(bluefog_weighted_sum_float16, weighted_share<Float16>)
BF_SUM_KERNEL(bluefog_weighted_sum_bfloat16, weighted_share<BFloat16>)
BF_SUM_KERNEL(bluefog_weighted_sum_float32, weighted_share<Plain<float>>)
BF_SUM_KERNEL(bluefog_weighted_sum_float64, weighted_share<Plain<double>>)

BF_SUM_KERNEL(bluefog_plain_sum_float16, plain_share<Float16>)
BF_SUM_KERNEL(bluefog_plain_sum_bfloat16, plain_share<BFloat16>)
BF_SUM_KERNEL(bluefog_plain_sum_float32, plain_share<Plain<float>>)
BF_SUM_KERNEL(bluefog_plain_sum_float64, plain_share<Plain<double>>)
BF_SUM_KERNEL(bluefog_plain_sum_1, plain_share<Plain<std::uint8_t>>)
BF_SUM_KERNEL(bluefog_plain_sum_2, plain_share<Plain<std::uint16_t>>)
BF_SUM_KERNEL(bluefog_plain_sum_4, plain_share<Plain<std::uint32_t>>)
BF_SUM_KERNEL(bluefog_plain_sum_8, plain_share<Plain<std::uint64_t>>)
