#include "python/bindings/tensor_view.hpp"

#include <fmt/format.h>

#include <memory>

#include "bluefog_cpp/error.hpp"
#include "optimizers/parameter.hpp"

namespace bluefog::python {

BufferView view_of(const at::Tensor& tensor) {
  if (tensor.layout() != at::kStrided || (!tensor.is_cpu() && !tensor.is_cuda())) {
    throw UnsupportedError(
        fmt::format("expected a dense tensor on the CPU or a CUDA device, found {}",
                    optimizers::describe(tensor)));
  }
  if (!tensor.is_contiguous()) {
    throw InvalidArgument(fmt::format("expected a contiguous tensor, found {} with strides {}",
                                      optimizers::describe(tensor),
                                      optimizers::shape_text(tensor.strides())));
  }
  return optimizers::on_current_stream(
      {.data = tensor.mutable_data_ptr(),
       .count = tensor.numel(),
       .dtype = optimizers::dtype_of(tensor),
       .device = optimizers::device_holding(tensor),
       .stream = nullptr,
       .owner = std::make_shared<const c10::Storage>(tensor.storage())});
}

}  // namespace bluefog::python
