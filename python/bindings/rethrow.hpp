#pragma once

#include <exception>

namespace bluefog::python {

/// Throws `thrown`, an error in a backward pass, as what torch's engine carries to Python with its
/// class: of other exceptions it keeps the text alone. Returns for LibTorch's own errors.
/// @throws python_error, or `thrown` where it is no error of the core's.
void rethrow_through_torch(const std::exception_ptr& thrown);

}  // namespace bluefog::python
