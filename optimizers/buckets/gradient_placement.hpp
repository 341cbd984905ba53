#pragma once

#include <cstddef>
#include <string_view>

#include "optimizers/bucket.hpp"

namespace bluefog::optimizers {

/// Whether the gradient of the bucket's parameter `i`, which has one, lies in the bucket.
[[nodiscard]] bool is_placed(const Bucket& bucket, std::size_t i);

/// Makes the gradient of the bucket's parameter `i` lie in the bucket (`Bucket::add_gradients`),
/// where it is not there yet: one copy.
/// @param where rank and algorithm, for the message.
/// @throws UnsupportedError naming the parameter unless the gradient is dense.
void place_gradient(Bucket& bucket, std::size_t i, std::string_view where);

}  // namespace bluefog::optimizers
