#pragma once

#include <string>

namespace bluefog::ops {

/// The options of every operation besides its data.
struct OpOptions {
  /// A name for the tensor, for messages, the timeline, and to check that all ranks mean the same
  /// one. Empty: none.
  std::string name{};
};

}  // namespace bluefog::ops
