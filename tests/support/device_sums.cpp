#include "tests/support/device_sums.hpp"

#include <map>
#include <stdexcept>
#include <string>

namespace bluefog::testing {
namespace {

using namespace ops::cuda;  // as the kernels' source

using Share = void (*)(const SumArguments&, std::int64_t, std::int64_t);

const std::map<std::string_view, Share> kKernels{
    {"bluefog_weighted_sum_float16", sum_share<Float16, Weighted>},
    {"bluefog_weighted_sum_bfloat16", sum_share<BFloat16, Weighted>},
    {"bluefog_weighted_sum_float32", sum_share<Plain<float>, Weighted>},
    {"bluefog_weighted_sum_float64", sum_share<Plain<double>, Weighted>},
    {"bluefog_plain_sum_float16", sum_share<Float16, Unweighted>},
    {"bluefog_plain_sum_bfloat16", sum_share<BFloat16, Unweighted>},
    {"bluefog_plain_sum_float32", sum_share<Plain<float>, Unweighted>},
    {"bluefog_plain_sum_float64", sum_share<Plain<double>, Unweighted>},
    {"bluefog_plain_sum_1", sum_share<Plain<std::uint8_t>, Unweighted>},
    {"bluefog_plain_sum_2", sum_share<Plain<std::uint16_t>, Unweighted>},
    {"bluefog_plain_sum_4", sum_share<Plain<std::uint32_t>, Unweighted>},
    {"bluefog_plain_sum_8", sum_share<Plain<std::uint64_t>, Unweighted>},
};

}  // namespace

void run_sum_kernel(std::string_view name, const SumArguments& arguments, int threads) {
  const auto kernel = kKernels.find(name);
  if (kernel == kKernels.end()) {
    throw std::logic_error("no such kernel: " + std::string(name));
  }
  for (int thread = 0; thread < threads; ++thread) {
    kernel->second(arguments, thread, threads);
  }
}

}  // namespace bluefog::testing
