#include "bluefog_cpp/base/fork_guard.hpp"

#include <pthread.h>

#include <atomic>

namespace bluefog {
namespace {

std::atomic<std::uint64_t> forks{0};

}  // namespace

std::uint64_t ForkGuard::current() noexcept {
  static const int registered = ::pthread_atfork(nullptr, nullptr, [] { ++forks; });
  static_cast<void>(registered);
  return forks.load(std::memory_order_relaxed);
}

}  // namespace bluefog
