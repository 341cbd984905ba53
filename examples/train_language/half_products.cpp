#include "examples/train_language/half_products.hpp"

#include <ATen/autocast_mode.h>

namespace bluefog::examples {

HalfProducts::HalfProducts(Wanted wanted) : wanted_(wanted) {
  if (wanted_ == Wanted::Yes) {
    at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
    at::autocast::set_autocast_enabled(at::kCPU, true);
  }
}

HalfProducts::~HalfProducts() {
  if (wanted_ == Wanted::Yes) {
    at::autocast::set_autocast_enabled(at::kCPU, false);
    at::autocast::clear_cache();  // copies of parameters that the step will change
  }
}

}  // namespace bluefog::examples
