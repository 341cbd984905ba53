#pragma once

#include <cstddef>

namespace bluefog::ops {

/// One operand of a weighted sum.
struct Operand {
  const std::byte* data = nullptr;
  double weight = 1.0;
};

}  // namespace bluefog::ops
