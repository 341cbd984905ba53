#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

namespace bluefog::python {

/// Keeps the memory that the tensor has now, even if the tensor is resized or its storage is given
/// other memory (`resize_`, `untyped_storage().resize_`): holding the storage is not enough then.
/// @return the object to hold.
[[nodiscard]] std::shared_ptr<const void> lasting_memory(const at::Tensor& tensor);

}  // namespace bluefog::python
