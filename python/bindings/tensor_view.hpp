#pragma once

#include <ATen/core/Tensor.h>

#include "bluefog_cpp/buffer_view.hpp"

namespace bluefog::python {

/// The elements of a contiguous tensor, for an operation; on a device ordered by the stream that is
/// current in this thread. The view keeps their memory alive, but not the tensor: that may belong
/// to Python, and the engine's threads are to go without the interpreter's lock.
/// @throws InvalidArgument for a tensor that is not contiguous, UnsupportedError for one that is
/// not
///   on the CPU or a CUDA device, not dense, or of a dtype that no operation takes.
[[nodiscard]] BufferView view_of(const at::Tensor& tensor);

}  // namespace bluefog::python
