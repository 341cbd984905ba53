#include "bluefog_cpp/device/rank_problems.hpp"

#include <fmt/format.h>

#include <span>
#include <vector>

#include "bluefog_cpp/base/message_of.hpp"
#include "bluefog_cpp/bootstrap/own_problem.hpp"

namespace bluefog {
namespace {

std::string text_of(const std::exception_ptr& own) { return own ? message_of(own) : std::string(); }

RankProblem first_of(const std::vector<Bootstrap::Blob>& texts) {
  for (std::size_t rank = 0; rank < texts.size(); ++rank) {
    if (!texts[rank].empty()) {
      return {.rank = static_cast<int>(rank),
              .text = {reinterpret_cast<const char*>(texts[rank].data()), texts[rank].size()}};
    }
  }
  return {};
}

}  // namespace

RankProblem first_problem(Bootstrap& bootstrap, const std::exception_ptr& own, Deadline deadline) {
  const std::string text = text_of(own);
  return first_of(bootstrap.allgather(std::as_bytes(std::span(text)), deadline));
}

void agree_on_problem(Bootstrap& bootstrap, std::string_view call, const std::exception_ptr& own,
                      Deadline deadline) {
  const std::string text = text_of(own);
  const RankProblem problem =
      first_of(allgather_unless(own, bootstrap, std::as_bytes(std::span(text)), deadline));
  if (problem.rank >= 0) {
    throw PeerFailure(problem.rank,
                      fmt::format("rank {}, {}: rank {} could not: {}", bootstrap.rank(), call,
                                  problem.rank, problem.text));
  }
}

}  // namespace bluefog
