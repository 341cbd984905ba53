// What configure compiles to know that this nvcc takes the kernels' headers: one short kernel, where
// all of them take ten times as long.
#include "ops/sums/cuda/sum_loop.hpp"

using namespace bluefog::ops::cuda;

extern "C" __global__ void __launch_bounds__(256)
    nvcc_check(const __grid_constant__ SumArguments arguments) {
  plain_share<Plain<std::uint8_t>>(arguments, threadIdx.x, blockDim.x);
}
