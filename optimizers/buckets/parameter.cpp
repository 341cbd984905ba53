#include "optimizers/parameter.hpp"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/torch.h>

#include <unordered_set>
#include <utility>

#include "bluefog_cpp/error.hpp"
#include "optimizers/buckets/torch_dtype.hpp"

namespace bluefog::optimizers {
namespace {

NamedTensors collect(const torch::OrderedDict<std::string, at::Tensor>& dict) {
  NamedTensors tensors;
  for (const auto& item : dict) {
    tensors.push_back({item.key(), item.value()});
  }
  return without_repeats(std::move(tensors));
}

// Through torch's table of devices: a build against torch for the CPU serves CUDA's as well.
void* current_stream_of(const Device& device) {
  const c10::impl::VirtualGuardImpl cuda(c10::DeviceType::CUDA);
  return cuda.getStreamNativeHandle(
      cuda.getStream({c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(device.index)}));
}

}  // namespace

NamedTensors named_parameters(const torch::nn::Module& module) {
  return collect(module.named_parameters());
}

NamedTensors named_buffers(const torch::nn::Module& module) {
  return collect(module.named_buffers());
}

NamedTensors without_repeats(NamedTensors tensors) {
  std::unordered_set<const at::TensorImpl*> seen;
  std::erase_if(tensors, [&](const NamedTensor& item) {
    return !item.tensor.defined() || !seen.insert(item.tensor.unsafeGetTensorImpl()).second;
  });
  return tensors;
}

std::string shape_text(at::IntArrayRef sizes) {
  return fmt::format("[{}]", fmt::join(sizes, ", "));
}

std::string describe(const at::Tensor& tensor) {
  if (!tensor.defined()) {
    return "undefined";
  }
  if (tensor.is_nested()) {
    return "nested";  // has no shape
  }
  std::string dtype = c10::toString(tensor.scalar_type());
  if (const auto known = dtype_named(tensor.scalar_type())) {
    dtype = name_of(*known);
  }
  return fmt::format("{}{}{}{}", tensor.layout() == at::kStrided ? "" : "sparse ", dtype,
                     shape_text(tensor.sizes()),
                     tensor.is_cpu() ? "" : fmt::format(" on {}", tensor.device().str()));
}

Dtype dtype_of(const at::Tensor& tensor) {
  if (const auto dtype = dtype_named(tensor.scalar_type())) {
    return *dtype;
  }
  throw UnsupportedError(fmt::format("expected a real tensor, found one of dtype {}",
                                     c10::toString(tensor.scalar_type())));
}

std::string why_not_averaged(const at::Tensor& tensor) {
  if (tensor.is_nested() || tensor.key_set().has(c10::DispatchKey::Python)) {
    return fmt::format("expected a dense tensor with elements of its own, found {}",
                       tensor.is_nested() ? "a nested one" : "one that stands for others");
  }
  if (tensor.layout() != at::kStrided) {
    return fmt::format("expected a dense tensor, found {}", describe(tensor));
  }
  switch (tensor.scalar_type()) {
    case at::kHalf:
    case at::kBFloat16:
    case at::kFloat:
    case at::kDouble:
      break;
    default:
      return fmt::format("expected float16, bfloat16, float32 or float64, found {}",
                         describe(tensor));
  }
  if (!tensor.is_cpu() && !tensor.is_cuda()) {
    return fmt::format("expected a tensor on the CPU or a CUDA device, found {}", describe(tensor));
  }
  return {};
}

std::string why_unsupported(const at::Tensor& tensor) {
  std::string why = why_not_averaged(tensor);
  return why.empty() && !tensor.is_cpu()
             ? fmt::format("expected a tensor on the CPU, found {}", describe(tensor))
             : why;
}

Device device_holding(const at::Tensor& tensor) {
  if (tensor.is_cuda()) {
    return {.kind = DeviceKind::Cuda, .index = tensor.device().index()};
  }
  if (!tensor.is_cpu()) {
    throw UnsupportedError(
        fmt::format("expected a tensor on the CPU or a CUDA device, found {}", describe(tensor)));
  }
  return {};
}

BufferView view_of(const at::Tensor& tensor) {
  return on_current_stream({.data = tensor.data_ptr(),
                            .count = tensor.numel(),
                            .dtype = dtype_of(tensor),
                            .device = device_holding(tensor),
                            .stream = nullptr,
                            .owner = std::make_shared<const at::Tensor>(tensor)});
}

BufferView on_current_stream(BufferView view) {
  if (view.device.kind == DeviceKind::Cuda) {
    view.stream = current_stream_of(view.device);
  }
  return view;
}

void wait_on_current_stream(const Work& work) {
  if (const Device device = work.device(); device.kind == DeviceKind::Cuda) {
    work.wait(current_stream_of(device));
  } else {
    work.wait();
  }
}

}  // namespace bluefog::optimizers
