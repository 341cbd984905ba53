#pragma once

#include <cstddef>
#include <string_view>

#include "optimizers/bucket.hpp"

namespace bluefog::optimizers {

/// Whether the gradient of the bucket's parameter `i`, which has one, lies in the bucket.
[[nodiscard]] bool is_placed(const Bucket& bucket, std::size_t i);

/// Moves the gradient of the bucket's parameter `i` into the bucket (`Bucket::add_gradients`), with
/// one copy if it is not there yet.
/// @param where rank and algorithm, for the message.
/// @throws UnsupportedError naming the parameter unless the gradient is dense.
void place_gradient(Bucket& bucket, std::size_t i, std::string_view where);

}  // namespace bluefog::optimizers
