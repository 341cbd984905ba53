#pragma once

#include <ATen/core/Tensor.h>

#include "bluefog_cpp/base/buffer_view.hpp"

namespace bluefog::python {

/// The elements of a contiguous tensor on the CPU, for an operation. The view keeps their memory
/// alive, but not the tensor: that may belong to Python, and the engine's threads are to go without
/// the interpreter's lock.
/// @throws InvalidArgument for a tensor that is not contiguous, UnsupportedError for one that is
/// not
///   on the CPU, not dense, or of a dtype that no operation takes.
[[nodiscard]] BufferView view_of(const at::Tensor& tensor);

}  // namespace bluefog::python
