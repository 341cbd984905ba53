#pragma once

#include <cstddef>
#include <exception>
#include <utility>
#include <vector>

#include "bluefog_cpp/base/error.hpp"
#include "bluefog_cpp/transport/context.hpp"
#include "bluefog_cpp/transport/work.hpp"

namespace bluefog::optimizers {

/// Runs the calls of one round. If `body` fails before all `call_count` calls were issued, the
/// others count as refused: peers that wait for them are told why, and ranks stay in step.
/// @param body takes a counter that it increments before each call.
template <typename Body>
void run_round(Context& context, std::size_t call_count, Body&& body) {
  std::size_t issued = 0;
  try {
    std::forward<Body>(body)(issued);
  } catch (const std::exception& error) {
    for (; issued < call_count; ++issued) {
      context.engine().refuse(error.what());
    }
    throw;
  }
}

/// Waits for all of `works` and empties them. Errors of the first one that fails are thrown once
/// the others have ended; after a timeout the others are left to themselves.
inline void wait_all(std::vector<Work>& works) {
  std::exception_ptr first_error;
  bool timed_out = false;
  for (Work& work : works) {
    const Work mine = std::exchange(work, Work());
    try {
      if (!timed_out) {
        mine.wait();
      }
    } catch (const TimeoutError&) {
      timed_out = true;
      first_error = first_error ? first_error : std::current_exception();
    } catch (...) {
      first_error = first_error ? first_error : std::current_exception();
    }
  }
  if (first_error) {
    std::rethrow_exception(first_error);
  }
}

}  // namespace bluefog::optimizers
