#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

namespace bluefog::python {

/// Keeps the memory that the tensor has now, also where the tensor is resized or its storage is
/// given other memory (`resize_`, `untyped_storage().resize_`): to hold the storage is not enough
/// then.
/// @return what to hold.
[[nodiscard]] std::shared_ptr<const void> lasting_memory(const at::Tensor& tensor);

}  // namespace bluefog::python
