#pragma once

#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <exception>
#include <string>

#include "bluefog_cpp/error.hpp"
#include "optimizers/local_step.hpp"

namespace bluefog::optimizers {

/// Refuses an empty closure: the other ranks get the text in their step.
/// @throws InvalidArgument for one.
template <typename Refuse>
void require_closure(const Closure& closure, int rank, const Refuse& refuse) {
  if (!closure) {
    const std::string reason = fmt::format(
        "rank {}, step: expected a closure that evaluates the model, found an empty one", rank);
    refuse(reason);
    throw InvalidArgument(reason);
  }
}

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
