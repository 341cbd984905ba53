#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <string_view>
#include <vector>

#include "bluefog_cpp/buffer_view.hpp"
#include "bluefog_cpp/dtype.hpp"
#include "bluefog_cpp/work.hpp"

namespace torch::nn {
class Module;
}

namespace bluefog::optimizers {

/// A tensor of a model with the name under which the model knows it ("conv1.weight").
struct NamedTensor {
  std::string name;   ///< as the model writes it
  at::Tensor tensor;  ///< the model's own, not a copy
};
/// Tensors in the model's order.
using NamedTensors = std::vector<NamedTensor>;

/// The module's parameters in the order of their registration, submodules included. A parameter
/// that is registered twice (tied weights) appears once, under its first name.
[[nodiscard]] NamedTensors named_parameters(const torch::nn::Module& module);

/// The module's buffers (batch-norm statistics), in the same order and also without repeats.
[[nodiscard]] NamedTensors named_buffers(const torch::nn::Module& module);

/// Drops tensors that appeared before, and undefined ones.
[[nodiscard]] NamedTensors without_repeats(NamedTensors tensors);

/// "float32[3, 4]", "sparse complex64[2]".
[[nodiscard]] std::string describe(const at::Tensor& tensor);

/// Our name for the tensor's dtype.
/// @throws UnsupportedError for dtypes that no operation takes (complex, quantised).
[[nodiscard]] Dtype dtype_of(const at::Tensor& tensor);

/// Why the tensor cannot take part in weighted averages, or an empty string: it is sparse, not of a
/// floating type, or neither on the CPU nor on a CUDA device.
[[nodiscard]] std::string why_not_averaged(const at::Tensor& tensor);

/// The same for averages on the CPU alone.
[[nodiscard]] std::string why_unsupported(const at::Tensor& tensor);

/// The device of the tensor. @throws UnsupportedError off the CPU and CUDA devices.
[[nodiscard]] Device device_holding(const at::Tensor& tensor);

/// The tensor's elements as they lie in memory. The view keeps that memory alive; on a device it is
/// ordered by the stream that is current in this thread.
/// @param tensor dense and without overlap: contiguous in some order of its dimensions.
[[nodiscard]] BufferView view_of(const at::Tensor& tensor);

/// The same view, ordered by the stream that is current in this thread now.
[[nodiscard]] BufferView on_current_stream(BufferView view);

/// Waits as `work.wait()`; a call on a device is waited for also on this thread's current stream.
void wait_on_current_stream(const Work& work);

/// "[3, 4]".
[[nodiscard]] std::string shape_text(at::IntArrayRef sizes);

}  // namespace bluefog::optimizers
