#include "optimizers/buckets/gradient_placement.hpp"

#include <fmt/format.h>
#include <torch/torch.h>

#include "bluefog_cpp/error.hpp"

namespace bluefog::optimizers {

bool is_placed(const Bucket& bucket, std::size_t i) {
  const at::Tensor& gradient = bucket.segments()[i].parameter.grad();
  return gradient.layout() == at::kStrided && gradient.numel() > 0 &&
         gradient.const_data_ptr() == bucket.gradient(i).const_data_ptr();
}

void place_gradient(Bucket& bucket, std::size_t i, std::string_view where) {
  const Segment& segment = bucket.segments()[i];
  const at::Tensor& place = bucket.gradient(i);
  at::Tensor& gradient = segment.parameter.mutable_grad();
  if (gradient.layout() != at::kStrided) {
    throw UnsupportedError(fmt::format("{}, parameter '{}': expected a dense gradient, found {}",
                                       where, segment.name, describe(gradient)));
  }
  if (!is_placed(bucket, i)) {
    const torch::NoGradGuard no_grad;
    place.copy_(gradient);
    gradient = place;
  }
}

}  // namespace bluefog::optimizers
