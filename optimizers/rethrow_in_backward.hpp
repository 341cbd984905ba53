#pragma once

#include <exception>
#include <functional>

namespace bluefog::optimizers {

/// Throws the error that is to leave a backward pass in place of the given one; if it returns, the
/// given one leaves. Empty: each error leaves as it is.
using RethrowInBackward = std::function<void(const std::exception_ptr&)>;

}  // namespace bluefog::optimizers
