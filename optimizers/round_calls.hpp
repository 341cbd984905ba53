#pragma once

#include <algorithm>
#include <cstddef>
#include <exception>
#include <string_view>
#include <utility>
#include <vector>

#include "bluefog_cpp/context.hpp"
#include "bluefog_cpp/error.hpp"
#include "bluefog_cpp/work.hpp"
#include "optimizers/parameter.hpp"

namespace bluefog::optimizers {

/// Counts `count` calls as made and failed: the ranks that wait for them hear `reason`.
void refuse_calls(Context& context, std::size_t count, std::string_view reason);

/// Runs the calls of one round. If `body` fails before all `call_count` calls were issued, the
/// others count as refused: peers that wait for them are told why, and ranks stay in step.
/// @param body takes a counter that it increments before each call.
template <typename Body>
void run_round(Context& context, std::size_t call_count, Body&& body) {
  std::size_t issued = 0;
  try {
    std::forward<Body>(body)(issued);
  } catch (const std::exception& error) {
    refuse_calls(context, call_count - std::min(issued, call_count), error.what());
    throw;
  } catch (...) {
    refuse_calls(context, call_count - std::min(issued, call_count),
                 "an exception of an unknown type");
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
        wait_on_current_stream(mine);
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

/// `wait_all` for callers that have an earlier error, which is the one that counts.
inline void end_all(std::vector<Work>& works) noexcept {
  try {
    wait_all(works);
  } catch (...) {  // NOLINT: as said
  }
}

/// `run_round` for calls that go on when `body` has ended: returns when all of `works` have. If
/// `body` fails they are waited for too, so that none writes into the caller's memory after that.
template <typename Body>
void run_overlapped_round(Context& context, std::size_t call_count, std::vector<Work>& works,
                          Body&& body) {
  run_round(context, call_count, [&](std::size_t& issued) {
    try {
      body(issued);
    } catch (...) {
      end_all(works);
      throw;
    }
    wait_all(works);
  });
}

}  // namespace bluefog::optimizers
