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

template <typename Element>
constexpr Kernel weighted() {
  return {weighted_share<Element>, sizeof(typename Element::Stored)};
}
template <typename Element>
constexpr Kernel plain() {
  return {plain_share<Element>, sizeof(typename Element::Stored)};
}

const std::map<std::string_view, Kernel> kKernels{
    {"bluefog_weighted_sum_float16", weighted<Float16>()},
    {"bluefog_weighted_sum_bfloat16", weighted<BFloat16>()},
    {"bluefog_weighted_sum_float32", weighted<Plain<float>>()},
    {"bluefog_weighted_sum_float64", weighted<Plain<double>>()},
    {"bluefog_plain_sum_float16", plain<Float16>()},
    {"bluefog_plain_sum_bfloat16", plain<BFloat16>()},
    {"bluefog_plain_sum_float32", plain<Plain<float>>()},
    {"bluefog_plain_sum_float64", plain<Plain<double>>()},
    {"bluefog_plain_sum_1", plain<Plain<std::uint8_t>>()},
    {"bluefog_plain_sum_2", plain<Plain<std::uint16_t>>()},
    {"bluefog_plain_sum_4", plain<Plain<std::uint32_t>>()},
    {"bluefog_plain_sum_8", plain<Plain<std::uint64_t>>()},
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
