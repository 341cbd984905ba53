#include "bluefog_cpp/bootstrap/store/applicant.hpp"

#include <fmt/format.h>

#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <utility>

#include "bluefog_cpp/base/version.hpp"
#include "bluefog_cpp/bootstrap/store/words.hpp"
#include "bluefog_cpp/error.hpp"

namespace bluefog {
namespace {

constexpr std::chrono::milliseconds kPlaceLook(10);
constexpr std::chrono::milliseconds kBeat(200);
/// A rank whose number does not matter here.
constexpr int kSomebody = -2;

/// Counts up a number in the store until it is told to stop.
void beat(const std::stop_token& stop, Store& store, const std::string& key) {
  std::mutex mutex;
  std::condition_variable_any changed;
  std::unique_lock lock(mutex);
  try {
    while (!stop.stop_requested()) {
      store.add(key, 1, Deadline::never());
      changed.wait_for(lock, stop, kBeat, [] { return false; });
    }
  } catch (const std::exception&) {
    // The store is gone, and the calls of this rank that need it say so.
  }
}

}  // namespace

Applicant::Applicant(Regrouping::Place place)
    : place_(std::move(place)),
      keys_(place_.root),
      id_(place_.store->add(keys_.count(), 1, Deadline::never())) {}

Applicant::~Applicant() = default;

Applicant::Admission Applicant::wait(const std::atomic<bool>& is_over) {
  Store& store = *place_.store;
  if (answered_.empty()) {
    store.set(keys_.ready(id_), bytes_of(own_version()), Deadline::never());
  }
  while (!is_over) {
    if (const auto words = store.get(keys_.place(id_), Deadline::after(kPlaceLook))) {
      const auto seat = Regrouping::Seat::from(words_of(*words));
      if (seat.group > group_) {
        group_ = seat.group;
        Regrouping::Place meeting = place_;
        meeting.prefix = seat.meeting;
        meeting.rank = -1;
        Regrouping::Verdict verdict{.group = seat.group, .ranks = {}, .joined = {}, .lost = {}};
        verdict.ranks.resize(static_cast<std::size_t>(seat.size), kSomebody);
        return {.rank = seat.rank,
                .verdict = std::move(verdict),
                .meeting = std::make_shared<Regrouping>(meeting, seat.attempt)};
      }
    }
    answer();
    check_hope();
  }
  throw TimeoutError("nobody waits for the ranks that take this one in any more");
}

Bootstrap::Regrouped taken_in(Bootstrap::Regrouped group, std::function<void()> then) {
  group.joined = 1;
  group.settle = [settle = std::move(group.settle), then = std::move(then)](bool is_ready,
                                                                            Deadline until) {
    const bool have_settled = settle(is_ready, until);
    if (have_settled) {
      then();
    }
    return have_settled;
  };
  return group;
}

void Applicant::answer() {
  const auto question = place_.store->get(keys_.ping(id_), at_once());
  if (!question || words_of(*question) == answered_) {
    return;
  }
  answered_ = words_of(*question);
  if (!pulse_.joinable()) {
    pulse_ = std::jthread([store = place_.store, key = keys_.beat(id_)](
                              const std::stop_token& stop) { beat(stop, *store, key); });
  }
  place_.store->set(keys_.pong(id_), bytes_of(answered_), Deadline::never());
}

void Applicant::check_hope() const {
  if (const auto why = place_.store->get(keys_.over(id_), at_once())) {
    throw StateError(fmt::format("the ranks have not taken this process in: {}", words_of(*why)));
  }
  if (place_.store->get(keys_.ended(), at_once())) {
    throw StateError("the ranks have all left before they took this process in");
  }
}

}  // namespace bluefog
