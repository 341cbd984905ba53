#include "bluefog_cpp/transport/shm/call_status.hpp"

#include <fmt/format.h>

namespace bluefog::shm {
namespace {

// The integers of a status: a number of a call, and a kind or one more than a rank behind it.
constexpr unsigned kKindBits = 8;
constexpr std::uint64_t kKindMask = (std::uint64_t{1} << kKindBits) - 1;
constexpr unsigned kRankBits = 16;
constexpr std::uint64_t kRankMask = (std::uint64_t{1} << kRankBits) - 1;

}  // namespace

void CallStatus::note_call(CallId id, OpKind kind) noexcept {
  const auto bits = static_cast<std::uint64_t>(kind);
  status_.begun.store(id.call() << kKindBits | bits, std::memory_order_release);
}

void CallStatus::note_wait(Transport::Wait wait) noexcept {
  const auto rank = static_cast<std::uint64_t>(wait.rank + 1);
  const bool fits = rank <= kRankMask && !is_pair_call(wait.call);
  status_.wait.store(fits ? wait.call << kRankBits | rank : 0, std::memory_order_release);
}

Transport::SeenCall CallStatus::last_call() const noexcept {
  const std::uint64_t begun = status_.begun.load(std::memory_order_acquire);
  return {.call = begun >> kKindBits, .kind = static_cast<OpKind>(begun & kKindMask)};
}

std::string CallStatus::last_seen() const {
  const auto [call, kind] = last_call();
  return call == 0 ? "it has made no call yet"
                   : fmt::format("last seen in {}, {}", call_text(call), text_of(kind));
}

Transport::Standing CallStatus::standing() const noexcept {
  Transport::Standing standing;
  const std::uint64_t wait = status_.wait.load(std::memory_order_acquire);
  standing.wait = {.call = wait >> kRankBits, .rank = static_cast<int>(wait & kRankMask) - 1};
  standing.first_under_way = status_.first_under_way.load(std::memory_order_acquire);
  standing.begun = last_call();
  return standing;
}

}  // namespace bluefog::shm
