#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include <cstdint>
#include <optional>
#include <string>

#include "bluefog_cpp/buffer_view.hpp"

namespace bluefog::python {

/// The elements of a contiguous tensor, for an operation; on a device ordered by the stream that is
/// current in this thread. The view keeps their memory alive, but not the tensor: that may belong
/// to Python, and the engine's threads are to go without the interpreter's lock.
/// @throws InvalidArgument for a tensor that is not contiguous, UnsupportedError for one that is not
///   on the CPU or a CUDA device, not dense, or of a dtype that no operation takes.
[[nodiscard]] BufferView view_of(const at::Tensor& tensor);

/// The stream of the tensor's device that is current in this thread; none on the CPU.
[[nodiscard]] std::optional<c10::Stream> current_stream(const at::Tensor& tensor);

/// Whether calls take the tensor as it is, a quick look: dense and contiguous elements of a dtype
/// that ranks exchange, on the CPU, which are what they show. Of others `view_of` may know why not.
[[nodiscard]] bool is_plain(const at::Tensor& tensor);

/// The name of a call with the tensor. Shapes are compared as part of it: the core knows flat
/// buffers. @param first 1 where the first dimension may differ.
[[nodiscard]] std::string named(const std::string& name, const at::Tensor& tensor,
                                std::int64_t first = 0);

/// Tells autograd that the tensor's values have changed.
void note_change(const at::Tensor& tensor);

}  // namespace bluefog::python
