#include "bluefog_cpp/transport/robust_lock.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <thread>

#include "bluefog_cpp/error.hpp"
#include "bluefog_cpp/transport/robust_mutex.hpp"

namespace bluefog::shm {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

/// The wait after which others give way.
constexpr milliseconds kPatience{1};
/// The time that a request counts without being renewed: the rank that waits may have ended.
constexpr milliseconds kRequestLasts{5};
constexpr microseconds kLookAgain{50};

using Clock = std::chrono::steady_clock;

std::uint32_t now_us() {
  const auto now = std::chrono::duration_cast<microseconds>(Clock::now().time_since_epoch());
  return static_cast<std::uint32_t>(now.count());
}

#if defined(__SANITIZE_THREAD__)
// ThreadSanitizer does not see pthread_mutex_clocklock.
constexpr clockid_t kClock = CLOCK_REALTIME;
int lock_until(pthread_mutex_t& mutex, const timespec& until) {
  return pthread_mutex_timedlock(&mutex, &until);
}
#else
constexpr clockid_t kClock = CLOCK_MONOTONIC;
int lock_until(pthread_mutex_t& mutex, const timespec& until) {
  return pthread_mutex_clocklock(&mutex, kClock, &until);
}
#endif

int lock_for(pthread_mutex_t& mutex, std::chrono::nanoseconds longest) {
  constexpr std::int64_t kSecond = 1'000'000'000;
  timespec until{};
  clock_gettime(kClock, &until);
  const std::int64_t nanoseconds = until.tv_nsec + longest.count();
  until.tv_sec += nanoseconds / kSecond;
  until.tv_nsec = nanoseconds % kSecond;
  return lock_until(mutex, until);
}

}  // namespace

void RobustLock::initialize() {
  // A thread that takes the mutex twice would wait for itself.
  initialize_robust(mutex_, PTHREAD_MUTEX_ERRORCHECK);
  holder_.store(-1, std::memory_order_relaxed);
  request_.store({.at = 0, .asker = Asker::Nobody}, std::memory_order_relaxed);
}

RobustLock::Outcome RobustLock::take(int rank, milliseconds longest) {
  const Asker self = this_thread();
  const auto end = Clock::now() + longest;
  for (const auto own_turn = Clock::now() + kRequestLasts;
       is_another_first(self) && Clock::now() < std::min(own_turn, end);) {
    std::this_thread::sleep_for(kLookAgain);
  }
  Outcome outcome = lock_now(rank);
  if (outcome != Outcome::Busy) {
    return outcome;
  }
  for (auto left = end - Clock::now(); outcome == Outcome::Busy && left > Clock::duration::zero();
       left = end - Clock::now()) {
    outcome = accept(lock_for(mutex_, std::min<Clock::duration>(left, kPatience)), rank);
    if (outcome == Outcome::Busy) {
      ask_for_way(self);
    }
  }
  if (outcome != Outcome::Busy) {
    withdraw_request(self);
  }
  return outcome;
}

RobustLock::Outcome RobustLock::try_take(int rank) {
  return is_another_first(this_thread()) ? Outcome::Busy : lock_now(rank);
}

RobustLock::Outcome RobustLock::poll(int rank) {
  const auto asker = static_cast<Asker>(-1 - rank);
  const Outcome outcome = is_another_first(asker) ? Outcome::Busy : lock_now(rank);
  if (outcome == Outcome::Busy) {
    ask_for_way(asker);
  } else {
    withdraw_request(asker);
  }
  return outcome;
}

RobustLock::Outcome RobustLock::lock_now(int rank) {
  return accept(pthread_mutex_trylock(&mutex_), rank);
}

RobustLock::Asker RobustLock::this_thread() noexcept {
  thread_local const auto number = static_cast<Asker>(::gettid());
  return number;
}

bool RobustLock::is_another_first(Asker asker) const noexcept {
  const Request request = request_.load(std::memory_order_relaxed);
  return request.asker != Asker::Nobody && request.asker != asker &&
         now_us() - request.at < microseconds(kRequestLasts).count();
}

// The first that asks is the first that others give way to.
void RobustLock::ask_for_way(Asker asker) noexcept {
  if (!is_another_first(asker)) {
    request_.store({.at = now_us(), .asker = asker}, std::memory_order_relaxed);
  }
}

void RobustLock::withdraw_request(Asker asker) noexcept {
  if (request_.load(std::memory_order_relaxed).asker == asker) {
    request_.store({.at = 0, .asker = Asker::Nobody}, std::memory_order_relaxed);
  }
}

RobustLock::Outcome RobustLock::accept(int code, int rank) {
  if (code == EBUSY || code == ETIMEDOUT) {
    return Outcome::Busy;
  }
  if (code == EDEADLK) {
    throw StateError("this thread holds that lock already");
  }
  if (code == EOWNERDEAD) {
    check_lock(pthread_mutex_consistent(&mutex_), "pthread_mutex_consistent");
  } else {
    check_lock(code, "taking it");
  }
  holder_.store(rank, std::memory_order_relaxed);
  return code == EOWNERDEAD ? Outcome::Inherited : Outcome::Taken;
}

bool RobustLock::release() noexcept {
  const int holder = holder_.exchange(-1, std::memory_order_relaxed);
  if (pthread_mutex_unlock(&mutex_) == 0) {
    return true;
  }
  holder_.store(holder, std::memory_order_relaxed);
  return false;
}

}  // namespace bluefog::shm
