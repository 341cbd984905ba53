#include "bluefog_cpp/device/rank_problems.hpp"

#include <fmt/format.h>

#include <span>

#include "bluefog_cpp/base/message_of.hpp"

namespace bluefog {

RankProblem first_problem(Bootstrap& bootstrap, const std::exception_ptr& own, Deadline deadline) {
  const std::string text = own ? message_of(own) : std::string();
  const auto blobs = bootstrap.allgather(std::as_bytes(std::span(text)), deadline);
  for (std::size_t rank = 0; rank < blobs.size(); ++rank) {
    if (!blobs[rank].empty()) {
      return {.rank = static_cast<int>(rank),
              .text = {reinterpret_cast<const char*>(blobs[rank].data()), blobs[rank].size()}};
    }
  }
  return {};
}

void agree_on_problem(Bootstrap& bootstrap, std::string_view call, const std::exception_ptr& own,
                      Deadline deadline) {
  RankProblem problem;
  try {
    problem = first_problem(bootstrap, own, deadline);
  } catch (const Error&) {
    // Others that have heard of this rank's problem may have gone, and the store with them.
    if (!own) {
      throw;
    }
  }
  if (own) {
    std::rethrow_exception(own);
  }
  if (problem.rank >= 0) {
    throw PeerFailure(problem.rank,
                      fmt::format("rank {}, {}: rank {} could not: {}", bootstrap.rank(), call,
                                  problem.rank, problem.text));
  }
}

}  // namespace bluefog
