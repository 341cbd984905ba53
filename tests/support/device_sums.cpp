#include "tests/support/device_sums.hpp"

#include <map>
#include <stdexcept>
#include <string>

namespace bluefog::testing {
namespace {

using namespace ops::cuda;  // as the kernels' source

struct Kernel {
  void (*share)(const SumArguments&, std::int64_t thread, std::int64_t threads);
  std::size_t element_bytes;
};

template <typename Element, template <typename> typename Rule>
constexpr Kernel kernel() {
  return {sum_share<Element, Rule>, sizeof(typename Element::Stored)};
}

const std::map<std::string_view, Kernel> kKernels{
    {"bluefog_weighted_sum_float16", kernel<Float16, Weighted>()},
    {"bluefog_weighted_sum_bfloat16", kernel<BFloat16, Weighted>()},
    {"bluefog_weighted_sum_float32", kernel<Plain<float>, Weighted>()},
    {"bluefog_weighted_sum_float64", kernel<Plain<double>, Weighted>()},
    {"bluefog_plain_sum_float16", kernel<Float16, Unweighted>()},
    {"bluefog_plain_sum_bfloat16", kernel<BFloat16, Unweighted>()},
    {"bluefog_plain_sum_float32", kernel<Plain<float>, Unweighted>()},
    {"bluefog_plain_sum_float64", kernel<Plain<double>, Unweighted>()},
    {"bluefog_plain_sum_1", kernel<Plain<std::uint8_t>, Unweighted>()},
    {"bluefog_plain_sum_2", kernel<Plain<std::uint16_t>, Unweighted>()},
    {"bluefog_plain_sum_4", kernel<Plain<std::uint32_t>, Unweighted>()},
    {"bluefog_plain_sum_8", kernel<Plain<std::uint64_t>, Unweighted>()},
};

const Kernel& kernel_of(std::string_view name) {
  const auto kernel = kKernels.find(name);
  if (kernel == kKernels.end()) {
    throw std::logic_error("no such kernel: " + std::string(name));
  }
  return kernel->second;
}

}  // namespace

std::size_t sum_element_bytes(std::string_view name) { return kernel_of(name).element_bytes; }

void run_sum_kernel(std::string_view name, const SumArguments& arguments, int threads) {
  const Kernel& kernel = kernel_of(name);
  for (int thread = 0; thread < threads; ++thread) {
    kernel.share(arguments, thread, threads);
  }
}

}  // namespace bluefog::testing
