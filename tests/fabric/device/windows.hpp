#pragma once

#include <memory>
#include <string>

#include "ops/window.hpp"
#include "tests/fabric/device/plans.hpp"

namespace bluefog::testing {

/// A window over a ring.
inline std::shared_ptr<Window> window_of(DeviceRank& rank, const BufferView& tensor,
                                         const std::string& name = "w") {
  return Window::create(rank.context, tensor, *ring(rank.context), {.name = name});
}

}  // namespace bluefog::testing
