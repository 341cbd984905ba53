#include "optimizers/checks/agreement.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <sstream>

#include "bluefog_cpp/error.hpp"
#include "ops/calls/allgather_parts.hpp"
#include "optimizers/checks/digest.hpp"

namespace bluefog::optimizers {
namespace {

struct Summary {
  std::uint64_t hash = 0;
  std::uint64_t has_problem = 0;
};

std::uint64_t hash_of(std::string_view text) {
  Digest digest;
  digest.add(text);
  return digest.value();
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    lines.push_back(line);
  }
  return lines;
}

[[noreturn]] void throw_first_difference(std::string_view subject,
                                         const std::vector<std::string>& texts) {
  const std::vector<std::string> expected = split(texts.front());
  for (std::size_t rank = 1; rank < texts.size(); ++rank) {
    if (texts[rank] == texts.front()) {
      continue;
    }
    const std::vector<std::string> found = split(texts[rank]);
    for (std::size_t i = 0; i < std::max(expected.size(), found.size()); ++i) {
      const std::string_view left = i < expected.size() ? expected[i] : std::string_view("nothing");
      const std::string_view right = i < found.size() ? found[i] : std::string_view("nothing");
      if (left != right) {
        throw MismatchError(
            fmt::format("{}: expected the same on all ranks; rank 0 has {}, rank {} "
                        "has {}",
                        subject, left, rank, right));
      }
    }
  }
  throw InternalError(fmt::format("{}: digests differ and texts do not", subject));
}

}  // namespace

void check_ranks_agree(Context& context, std::string_view subject, const Statement& statement) {
  const auto gather = [&](const std::string& said) {
    return ops::allgather_parts(context, subject, said);
  };
  const std::string text = fmt::format("{}", fmt::join(statement.lines, "\n"));
  const Summary mine{.hash = hash_of(text), .has_problem = statement.problem.empty() ? 0U : 1U};
  bool all_equal = true;
  bool any_problem = false;
  const std::string own(reinterpret_cast<const char*>(&mine), sizeof mine);
  for (const std::string& blob : gather(own)) {
    Summary theirs;
    if (blob.size() != sizeof theirs) {
      throw MismatchError(
          fmt::format("rank {}, {}: another rank made a different call", context.rank(), subject));
    }
    std::memcpy(&theirs, blob.data(), sizeof theirs);
    all_equal = all_equal && theirs.hash == mine.hash;
    any_problem = any_problem || theirs.has_problem != 0;
  }
  if (any_problem) {
    const std::vector<std::string> problems = gather(statement.problem);
    if (!statement.problem.empty()) {
      throw InvalidArgument(
          fmt::format("rank {}, {}: {}", context.rank(), subject, statement.problem));
    }
    for (std::size_t rank = 0; rank < problems.size(); ++rank) {
      if (!problems[rank].empty()) {
        throw PeerFailure(static_cast<int>(rank),
                          fmt::format("rank {}, {}: rank {} refused: {}", context.rank(), subject,
                                      rank, problems[rank]));
      }
    }
  }
  if (!all_equal) {
    throw_first_difference(subject, gather(text));
  }
}

}  // namespace bluefog::optimizers
