#pragma once

#include <exception>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bluefog_cpp/bootstrap.hpp"
#include "bluefog_cpp/deadline.hpp"
#include "bluefog_cpp/error.hpp"

namespace bluefog {

/// The library's own error that `step` throws, or null.
template <typename Step>
[[nodiscard]] std::exception_ptr problem_of(Step&& step) {
  try {
    step();
  } catch (const Error&) {
    return std::current_exception();
  }
  return nullptr;
}

/// A rank that could not do something, and why.
struct RankProblem {
  /// −1: there is none.
  int rank = -1;
  std::string text{};

  [[nodiscard]] std::string describe() const {
    return "rank " + std::to_string(rank) + ": " + text;
  }
};

/// Collective. The first rank with a problem. @param own what this rank could not do, or null.
[[nodiscard]] RankProblem first_problem(Bootstrap& bootstrap, const std::exception_ptr& own,
                                        Deadline deadline);

/// Collective. @throws `own`, or PeerFailure where another rank could not. @param call for
/// messages.
void agree_on_problem(Bootstrap& bootstrap, std::string_view call, const std::exception_ptr& own,
                      Deadline deadline);

}  // namespace bluefog
