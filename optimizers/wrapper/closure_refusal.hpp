#pragma once

#include <c10/core/GradMode.h>

#include <exception>

#include "optimizers/local_step.hpp"

namespace bluefog::optimizers {

/// The loss that `closure` returns, with gradients on. Its error goes to `refuse` as a text, which
/// the other ranks get in their step, and then to the caller.
template <typename Refuse>
at::Tensor loss_or_refusal(const Closure& closure, const Refuse& refuse) {
  const c10::AutoGradMode grad_mode(true);
  try {
    return closure();
  } catch (const std::exception& error) {
    refuse(error.what());
    throw;
  } catch (...) {
    refuse("an exception of an unknown type");
    throw;
  }
}

}  // namespace bluefog::optimizers
