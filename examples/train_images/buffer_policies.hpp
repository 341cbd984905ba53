#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "optimizers/buffer_policy.hpp"

namespace bluefog::examples {

/// The names that `buffer_policy_of` knows: local, average, average-every-round, broadcast.
[[nodiscard]] const std::vector<std::string>& buffer_policy_names();

/// @throws InvalidArgument if `name` is unknown; lists the known ones.
[[nodiscard]] optimizers::BufferPolicy buffer_policy_of(std::string_view name);

}  // namespace bluefog::examples
