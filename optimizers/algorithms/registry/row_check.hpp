#pragma once

#include <string>

#include "optimizers/algorithm_row.hpp"

namespace bluefog::optimizers {

/// Why no algorithm can be registered by this row, whatever others there are: "alias: expected …,
/// found …". Empty if one can.
[[nodiscard]] std::string why_invalid(const AlgorithmRow& row);

}  // namespace bluefog::optimizers
