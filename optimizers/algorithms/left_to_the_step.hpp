#pragma once

#include <exception>

#include "bluefog_cpp/context.hpp"
#include "bluefog_cpp/error.hpp"

namespace bluefog::optimizers {

/// Whether a backward pass ends without this error: the step after it goes on without the rank that
/// is lost.
[[nodiscard]] inline bool is_left_to_the_step(const Context& context, const std::exception& error) {
  return context.settings().on_failure == OnFailure::Shrink &&
         dynamic_cast<const RankLostError*>(&error) != nullptr;
}

}  // namespace bluefog::optimizers
