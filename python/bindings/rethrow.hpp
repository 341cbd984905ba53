#pragma once

#include <exception>

namespace bluefog::python {

/// Throws `thrown`, an error in a backward pass, as an exception that torch's engine carries to
/// Python with its class: it keeps only the text of others. Returns for LibTorch's own errors.
/// @throws python_error, or `thrown` if it is no error of the core's.
void rethrow_through_torch(const std::exception_ptr& thrown);

}  // namespace bluefog::python
