#include "ops/sums/cuda/sum_kernels.hpp"

#include <fmt/format.h>

#include <vector>

#include "bluefog_cpp/device/kernel_images.hpp"
#include "bluefog_cpp/error.hpp"

namespace bluefog::ops::cuda {
namespace {

std::vector<const char*> all_names() {
  std::vector<const char*> names;
  for (const Dtype dtype : {Dtype::Float16, Dtype::BFloat16, Dtype::Float32, Dtype::Float64}) {
    names.push_back(sum_kernel_name(SumRule::Weighted, dtype));
    names.push_back(sum_kernel_name(SumRule::Plain, dtype));
  }
  for (const Dtype dtype : {Dtype::Int8, Dtype::Int16, Dtype::Int32, Dtype::Int64}) {
    names.push_back(sum_kernel_name(SumRule::Plain, dtype));
  }
  return names;
}

[[maybe_unused]] const bool kIsRegistered =
    gpu::register_kernels({.image = sum_kernels_image(), .names = all_names()});

}  // namespace

const char* sum_kernel_name(SumRule rule, Dtype dtype) {
  const bool is_weighted = rule == SumRule::Weighted;
  switch (dtype) {
    case Dtype::Float16:
      return is_weighted ? "bluefog_weighted_sum_float16" : "bluefog_plain_sum_float16";
    case Dtype::BFloat16:
      return is_weighted ? "bluefog_weighted_sum_bfloat16" : "bluefog_plain_sum_bfloat16";
    case Dtype::Float32:
      return is_weighted ? "bluefog_weighted_sum_float32" : "bluefog_plain_sum_float32";
    case Dtype::Float64:
      return is_weighted ? "bluefog_weighted_sum_float64" : "bluefog_plain_sum_float64";
    default:
      break;
  }
  if (is_weighted || dtype >= Dtype::Bool) {
    throw UnsupportedError(fmt::format(
        "{} on a GPU: expected {}, found {}", is_weighted ? "weighted_sum" : "plain_sum",
        is_weighted ? "a floating dtype" : "a numeric dtype", name_of(dtype)));
  }
  // Unsigned sums wrap around; two's complement makes them the signed ones too.
  switch (size_of(dtype)) {
    case 1:
      return "bluefog_plain_sum_1";
    case 2:
      return "bluefog_plain_sum_2";
    case 4:
      return "bluefog_plain_sum_4";
    default:
      return "bluefog_plain_sum_8";
  }
}

}  // namespace bluefog::ops::cuda
