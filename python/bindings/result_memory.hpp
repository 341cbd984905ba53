#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>
#include <c10/util/ArrayRef.h>

#include <cstdint>

namespace bluefog::python {

/// A tensor on the CPU for a call's result, its elements not set.
///
/// A large one gets the memory of an earlier result that is no longer in use, if there is one: the
/// system takes several times as long to hand out new pages as an average takes to fill them. At
/// most `BLUEFOG_RESULT_CACHE` bytes are kept for this.
[[nodiscard]] at::Tensor fresh_tensor(c10::IntArrayRef shape, c10::ScalarType dtype);

/// A fresh tensor of the shape and dtype of `tensor`, contiguous. A `tensor` that is not a dense
/// one on the CPU or a GPU is returned as it is.
[[nodiscard]] at::Tensor fresh_like(const at::Tensor& tensor);

}  // namespace bluefog::python
