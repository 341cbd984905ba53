#include "optimizers/algorithms/codes/decoding.hpp"

#include <fmt/format.h>

#include <exception>
#include <string>
#include <vector>

#include "bluefog_cpp/base/message_of.hpp"
#include "bluefog_cpp/error.hpp"
#include "ops/calls/allgather_parts.hpp"

namespace bluefog::optimizers {

void try_decoding(Context& context, const ops::Compression& compression, std::string_view call,
                  const std::function<void()>& decode) {
  if (decoding_calls(compression) == 0) {
    return;
  }
  std::exception_ptr own;
  std::string problem;
  try {
    decode();
  } catch (...) {
    own = std::current_exception();
    problem = message_of(own) + '.';  // a text of some length, whatever was thrown
  }
  const std::vector<std::string> problems = ops::allgather_parts(context, call, problem);
  if (own) {
    std::rethrow_exception(own);
  }
  for (std::size_t rank = 0; rank < problems.size(); ++rank) {
    if (!problems[rank].empty()) {
      throw PeerFailure(
          static_cast<int>(rank),
          fmt::format("rank {}, {}: rank {} could not take in codes of compression {}: {}",
                      context.rank(), call, rank, compression.name(),
                      problems[rank].substr(0, problems[rank].size() - 1)));
    }
  }
}

}  // namespace bluefog::optimizers
