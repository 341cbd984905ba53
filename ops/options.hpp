#pragma once

#include <string>

/// Operations on plain memory: averages with neighbours, collectives, messages, windows.
namespace bluefog::ops {

/// The kind of values that a call in place finds in its buffer.
enum class BufferUse {
  Values,  ///< the caller's only values: ranks of which some have changed them do not find back
  Copy,    ///< a copy of them, which may be lost (`Context::resync`)
};

/// The options of every operation besides its data.
struct OpOptions {
  /// A name for the tensor, for messages, the timeline, and to check that all ranks mean the same
  /// one. Empty: none.
  std::string name{};
  BufferUse buffer = BufferUse::Values;  ///< of operations in place
};

}  // namespace bluefog::ops
