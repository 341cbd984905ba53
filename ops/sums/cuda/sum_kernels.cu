// The kernels of weighted and plain sums: ops/sums/cuda/sum_loop.hpp on a device.
#include "ops/sums/cuda/sum_loop.hpp"

using namespace bluefog::ops::cuda;

#define BF_SUM_KERNEL(name, Element, Rule)                                                     \
  extern "C" __global__ void __launch_bounds__(256)                                            \
      name(const __grid_constant__ SumArguments arguments) {                                   \
    sum_share<Element, Rule>(arguments,                                                        \
                             static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x, \
                             static_cast<std::int64_t>(gridDim.x) * blockDim.x);               \
  }

BF_SUM_KERNEL(bluefog_weighted_sum_float16, Float16, Weighted)
BF_SUM_KERNEL(bluefog_weighted_sum_bfloat16, BFloat16, Weighted)
BF_SUM_KERNEL(bluefog_weighted_sum_float32, Plain<float>, Weighted)
BF_SUM_KERNEL(bluefog_weighted_sum_float64, Plain<double>, Weighted)

BF_SUM_KERNEL(bluefog_plain_sum_float16, Float16, Unweighted)
BF_SUM_KERNEL(bluefog_plain_sum_bfloat16, BFloat16, Unweighted)
BF_SUM_KERNEL(bluefog_plain_sum_float32, Plain<float>, Unweighted)
BF_SUM_KERNEL(bluefog_plain_sum_float64, Plain<double>, Unweighted)
BF_SUM_KERNEL(bluefog_plain_sum_1, Plain<std::uint8_t>, Unweighted)
BF_SUM_KERNEL(bluefog_plain_sum_2, Plain<std::uint16_t>, Unweighted)
BF_SUM_KERNEL(bluefog_plain_sum_4, Plain<std::uint32_t>, Unweighted)
BF_SUM_KERNEL(bluefog_plain_sum_8, Plain<std::uint64_t>, Unweighted)
