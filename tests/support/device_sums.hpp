#pragma once

#include <cstddef>
#include <string_view>

#include "ops/sums/cuda/sum_loop.hpp"

namespace bluefog::testing {

/// Runs the sum kernel of that name on the host's memory, with so many threads.
void run_sum_kernel(std::string_view name, const ops::cuda::SumArguments& arguments, int threads);

/// Bytes of an element of that kernel.
[[nodiscard]] std::size_t sum_element_bytes(std::string_view name);

}  // namespace bluefog::testing
