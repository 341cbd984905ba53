#include "bluefog_cpp/engine/records/given_up.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "bluefog_cpp/error.hpp"

namespace bluefog {

const std::string* GivenUp::why(int rank) const noexcept {
  const auto found = std::ranges::find(ranks_, rank, &std::pair<int, std::string>::first);
  return found == ranks_.end() ? nullptr : &found->second;
}

std::optional<Revocation::Reason> GivenUp::reason_of(int rank) const {
  const std::string* const cause = why(rank);
  return cause == nullptr || revocation_.is_known() ? std::nullopt
                                                    : revocation_.by_the_gone(rank, *cause);
}

std::optional<Revocation::Reason> GivenUp::reason_of(const std::exception_ptr& error) const {
  if (ranks_.empty()) {
    return std::nullopt;
  }
  const int first = ranks_.front().first;
  try {
    std::rethrow_exception(error);
  } catch (const MismatchError&) {
    return reason_of(first);
  } catch (const PeerFailure& failure) {
    return failure.rank() == first ? reason_of(first) : std::nullopt;
  } catch (...) {
    return std::nullopt;
  }
}

std::optional<std::string> GivenUp::cause(int rank, std::optional<std::string> seen) const {
  const std::string* const said = seen ? why(rank) : nullptr;
  if (said != nullptr) {
    return fmt::format("it has left, as its program could not go on: {}", *said);
  }
  return seen;
}

}  // namespace bluefog
