#include "bluefog_cpp/transport/life_lock.hpp"

#include <cerrno>

#include "bluefog_cpp/transport/robust_mutex.hpp"

namespace bluefog::shm {

void LifeLock::initialize() {
  // The plain type: another one compares the numbers of threads, which two PID namespaces may
  // share.
  initialize_robust(mutex_, PTHREAD_MUTEX_NORMAL);
  was_held_.store(false, std::memory_order_relaxed);
}

void LifeLock::hold() {
  check_lock(pthread_mutex_lock(&mutex_), "taking it");
  was_held_.store(true, std::memory_order_release);
}

void LifeLock::let_go() noexcept { pthread_mutex_unlock(&mutex_); }

bool LifeLock::is_over() noexcept {
  if (!was_held_.load(std::memory_order_acquire)) {
    return false;
  }
  const int code = pthread_mutex_trylock(&mutex_);
  if (code == EOWNERDEAD) {
    pthread_mutex_consistent(&mutex_);  // so that others can take it: one that is lost stays busy
  } else if (code != 0) {
    return false;  // it is held, or another rank asks at this moment
  }
  pthread_mutex_unlock(&mutex_);
  return true;
}

}  // namespace bluefog::shm
