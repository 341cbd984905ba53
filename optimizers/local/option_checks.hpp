#pragma once

#include <string_view>

namespace bluefog::optimizers {

/// @throws InvalidArgument if the value is not finite or below 0: "AccumAdam: lr: expected …".
void check_not_negative(std::string_view optimizer, std::string_view option, double value);

/// @throws InvalidArgument if the value is not from 0 to below 1.
void check_share(std::string_view optimizer, std::string_view option, double value);

}  // namespace bluefog::optimizers
