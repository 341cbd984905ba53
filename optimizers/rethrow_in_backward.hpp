#pragma once

#include <exception>
#include <functional>

namespace bluefog::optimizers {

/// Throws what is to leave a backward pass in the place of the error that it is given; that error
/// leaves if it returns. Empty: each error itself.
using RethrowInBackward = std::function<void(const std::exception_ptr&)>;

}  // namespace bluefog::optimizers
