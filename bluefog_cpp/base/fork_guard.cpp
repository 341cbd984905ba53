#include "bluefog_cpp/base/fork_guard.hpp"

#include <pthread.h>

namespace bluefog {

ForkGuard::ForkGuard() : generation_(forks_.load(std::memory_order_relaxed)) {
  static const int registered = ::pthread_atfork(nullptr, nullptr, [] { ++forks_; });
  static_cast<void>(registered);
}

}  // namespace bluefog
