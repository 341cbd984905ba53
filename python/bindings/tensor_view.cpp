#include "python/bindings/tensor_view.hpp"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>

#include <memory>

#include "bluefog_cpp/error.hpp"
#include "optimizers/buckets/torch_dtype.hpp"
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

std::optional<c10::Stream> current_stream(const at::Tensor& tensor) {
  return tensor.is_cpu()
             ? std::nullopt
             : std::optional(
                   c10::impl::VirtualGuardImpl(tensor.device().type()).getStream(tensor.device()));
}

bool is_plain(const at::Tensor& tensor) {
  return tensor.is_cpu() && tensor.layout() == at::kStrided && tensor.is_contiguous() &&
         !tensor.is_neg() && !tensor.is_conj() && !tensor.is_nested() && !tensor.is_quantized() &&
         !tensor.unsafeGetTensorImpl()->is_python_dispatch() &&
         optimizers::dtype_named(tensor.scalar_type()).has_value();
}

std::string named(const std::string& name, const at::Tensor& tensor, std::int64_t first) {
  if (tensor.dim() <= 1) {
    return name;
  }
  const std::string shape = optimizers::shape_text(tensor.sizes().slice(first));
  return fmt::format("{}{}{}{}", name, name.empty() ? "" : " ", first == 0 ? "" : "rows of ",
                     shape);
}

void note_change(const at::Tensor& tensor) {
  if (!tensor.is_inference()) {
    tensor.unsafeGetTensorImpl()->bump_version();
  }
}

}  // namespace bluefog::python
