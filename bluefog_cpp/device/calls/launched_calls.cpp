#include "bluefog_cpp/device/calls/launched_calls.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "bluefog_cpp/base/linger.hpp"
#include "bluefog_cpp/deadline.hpp"
#include "bluefog_cpp/error.hpp"

namespace bluefog {
namespace {

/// A rank reports to the others the first so many calls that it has ended: who waits for a later
/// one alone finds out by `BLUEFOG_TIMEOUT`.
constexpr std::size_t kMostReported = 64;

}  // namespace

void LaunchedCalls::add(LaunchedCall call) {
  if (calls_.empty()) {
    moved_ = Clock::now();
  }
  calls_.push_back(std::move(call));
  note_state();
}

void LaunchedCalls::note_state() {
  bool is_quiet = true;
  bool is_stuck = false;
  for (const LaunchedCall& call : calls_) {
    is_quiet = is_quiet && call.cut_short == nullptr;
    is_stuck = is_stuck || (call.cut_short != nullptr && call.cut_short->load());
  }
  is_quiet_->store(is_quiet);
  is_stuck_->store(is_stuck);
}

bool LaunchedCalls::take_finished() {
  bool moved = false;
  while (!calls_.empty() && cuda_->has_happened(calls_.front().done)) {
    calls_.pop_front();
    death_ = nullptr;
    moved = true;
  }
  if (moved) {
    moved_ = Clock::now();
    note_state();
  }
  return moved;
}

void LaunchedCalls::wait(std::chrono::nanoseconds longest) {
  const Deadline deadline = Deadline::after(longest);
  while (!calls_.empty() && !deadline.expired()) {
    if (!take_finished()) {
      std::this_thread::sleep_for(kLookPeriod);
    }
  }
}

bool LaunchedCalls::is_due(Clock::time_point now) {
  if (calls_.empty() || now - last_look_ < kLookPeriod) {
    return false;
  }
  last_look_ = now;
  return true;
}

void LaunchedCalls::check(DeviceLink& link, Clock::time_point now) {
  const LaunchedCall& first = calls_.front();
  if (const auto error = link.error()) {
    throw NcclError(0,
                    fmt::format("rank {}, call {}, {}: {}", rank_, first.call, first.text, *error));
  }
  if (death_ && link.has_delivered(dead_rank_)) {
    death_ = nullptr;
  }
  if (death_ && now - death_noted_at_ >= linger::kLastBytes) {
    std::rethrow_exception(death_);
  }
  if (timeout_.count() != 0 && now - moved_ >= timeout_) {
    throw TimeoutError(fmt::format(
        "rank {}, call {}, {}: launched, and not done on the device after {:.1f} s "
        "(BLUEFOG_TIMEOUT)",
        rank_, first.call, first.text, std::chrono::duration<double>(timeout_).count()));
  }
}

std::vector<int> LaunchedCalls::awaited_ranks() const {
  return calls_.empty() || death_ ? std::vector<int>{} : calls_.front().partners;
}

void LaunchedCalls::note_death(int rank, const std::string& cause_of_death) {
  const LaunchedCall& first = calls_.front();
  death_noted_at_ = Clock::now();
  dead_rank_ = rank;
  death_ = std::make_exception_ptr(
      PeerFailure(rank, fmt::format("rank {}, call {}, {}: launched, but {}", rank_, first.call,
                                    first.text, cause_of_death)));
}

std::exception_ptr LaunchedCalls::failure_by(int rank, std::uint64_t call,
                                             const std::string& reason, bool is_over) const {
  // A call is there with each of its exchanges, and only the later ones may be with that rank.
  const auto of_call = std::ranges::find_if(calls_, [&](const LaunchedCall& launched) {
    return launched.call == call && (is_over || launched.is_whole) &&
           std::ranges::find(launched.partners, rank) != launched.partners.end();
  });
  if (of_call == calls_.end()) {
    return nullptr;
  }
  return std::make_exception_ptr(PeerFailure(
      rank, fmt::format("rank {}, call {}, {}: launched, and rank {} ended it with an error: {}",
                        rank_, call, of_call->text, rank, reason)));
}

void LaunchedCalls::cut_short(const std::string& cause, Notify notify) {
  for (const LaunchedCall& call : calls_) {
    if (call.cut_short == nullptr) {
      continue;
    }
    call.cut_short->store(true, std::memory_order_release);
    // Its partners' devices may wait for this one's, and their hosts know of nothing.
    const bool is_reported = !news_.empty() && news_.back().call == call.call;
    if (notify == Notify::OtherRanks && !is_reported && news_.size() < kMostReported) {
      news_.push_back({call.call, cause});
    }
  }
  note_state();
}

void LaunchedCalls::give_up() noexcept {
  if (!calls_.empty()) {
    is_quiet_->store(false);
    is_stuck_->store(true);
  }
}

}  // namespace bluefog
