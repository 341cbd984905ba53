#include "bluefog_cpp/engine/records/revocation.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <utility>

#include "bluefog_cpp/error.hpp"

namespace bluefog {

std::exception_ptr Revocation::error(std::string_view where) const {
  return std::make_exception_ptr(RankLostError(
      reason_->lost, fmt::format("rank {}, {}: {}; shrink() goes on with the ranks that are left",
                                 peers_.rank(), where, reason_->text)));
}

void Revocation::hear(Reason reason) {
  if (!reason_) {
    reason_ = std::move(reason);
  }
}

void Revocation::begin(Reason reason) {
  if (!reason_) {
    peers_.report({.call = static_cast<std::uint64_t>(reason.lost)}, reason.text,
                  ControlMessage::Kind::Revocation);
  }
  hear(std::move(reason));
}

std::optional<Revocation::Reason> Revocation::by_the_dead() {
  for (int rank = 0; by_losses_ && rank < peers_.size(); ++rank) {
    if (peers_.has_died(rank)) {
      return Reason{.lost = rank,
                    .text = fmt::format("rank {} is lost: {}", rank,
                                        peers_.cause_of_death(rank).value_or(""))};
    }
  }
  return std::nullopt;
}

std::optional<Revocation::Reason> Revocation::by_the_gone(int rank, std::string_view cause) const {
  return by_losses_ ? std::optional(Reason{.lost = rank,
                                           .text = fmt::format("rank {} is gone: {}", rank, cause)})
                    : std::nullopt;
}

std::optional<Revocation::Reason> Revocation::by_the_late(const Exchange& exchange,
                                                          std::string_view why) const {
  for (const auto& ranks : {exchange.awaited_sources(), exchange.awaited_readers()}) {
    if (by_losses_ && ranks.begin() != ranks.end()) {
      const int rank = *ranks.begin();
      return Reason{.lost = rank, .text = fmt::format("rank {} does not come: {}", rank, why)};
    }
  }
  return std::nullopt;
}

Revocation::Reason Revocation::by_this_rank(std::string_view why) {
  for (int rank = 0; rank < peers_.size(); ++rank) {
    if (const auto cause = peers_.cause_of_death(rank)) {
      return {.lost = rank, .text = fmt::format("rank {} is gone: {}", rank, *cause)};
    }
  }
  return {.lost = peers_.rank(), .text = std::string(why)};
}

}  // namespace bluefog
