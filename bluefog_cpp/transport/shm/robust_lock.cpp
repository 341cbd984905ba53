#include "bluefog_cpp/transport/shm/robust_lock.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <ctime>

#include "bluefog_cpp/base/error.hpp"

namespace bluefog::shm {
namespace {

void check_lock(int code, const char* what) {
  if (code != 0) {
    throw TransportError(fmt::format("lock in shared memory: {}: {}", what, std::strerror(code)));
  }
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

struct MutexAttributes {
  pthread_mutexattr_t value{};
  MutexAttributes() { check_lock(pthread_mutexattr_init(&value), "pthread_mutexattr_init"); }
  MutexAttributes(const MutexAttributes&) = delete;
  MutexAttributes& operator=(const MutexAttributes&) = delete;
  ~MutexAttributes() { pthread_mutexattr_destroy(&value); }
};

}  // namespace

void RobustLock::initialize() {
  MutexAttributes attributes;
  check_lock(pthread_mutexattr_setpshared(&attributes.value, PTHREAD_PROCESS_SHARED), "sharing");
  check_lock(pthread_mutexattr_setrobust(&attributes.value, PTHREAD_MUTEX_ROBUST), "robustness");
  // A thread that takes it twice would wait for itself.
  check_lock(pthread_mutexattr_settype(&attributes.value, PTHREAD_MUTEX_ERRORCHECK), "its type");
  check_lock(pthread_mutex_init(&mutex_, &attributes.value), "pthread_mutex_init");
  holder_.store(-1, std::memory_order_relaxed);
}

RobustLock::Outcome RobustLock::take(int rank, std::chrono::milliseconds longest) {
  const Outcome first = try_take(rank);
  if (first != Outcome::Busy || longest.count() <= 0) {
    return first;
  }
  timespec until{};
  clock_gettime(kClock, &until);
  const std::int64_t nanoseconds = until.tv_nsec + longest.count() % 1000 * 1'000'000;
  until.tv_sec += longest.count() / 1000 + nanoseconds / 1'000'000'000;
  until.tv_nsec = nanoseconds % 1'000'000'000;
  return accept(lock_until(mutex_, until), rank);
}

RobustLock::Outcome RobustLock::try_take(int rank) {
  return accept(pthread_mutex_trylock(&mutex_), rank);
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
