#include "bluefog_cpp/transport/robust_mutex.hpp"

#include <fmt/format.h>

#include <cstring>

#include "bluefog_cpp/error.hpp"

namespace bluefog::shm {
namespace {

struct MutexAttributes {
  pthread_mutexattr_t value{};
  MutexAttributes() { check_lock(pthread_mutexattr_init(&value), "pthread_mutexattr_init"); }
  MutexAttributes(const MutexAttributes&) = delete;
  MutexAttributes& operator=(const MutexAttributes&) = delete;
  ~MutexAttributes() { pthread_mutexattr_destroy(&value); }
};

}  // namespace

void check_lock(int code, const char* what) {
  if (code != 0) {
    throw TransportError(fmt::format("lock in shared memory: {}: {}", what, std::strerror(code)));
  }
}

void initialize_robust(pthread_mutex_t& mutex, int type) {
  MutexAttributes attributes;
  check_lock(pthread_mutexattr_setpshared(&attributes.value, PTHREAD_PROCESS_SHARED), "sharing");
  check_lock(pthread_mutexattr_setrobust(&attributes.value, PTHREAD_MUTEX_ROBUST), "robustness");
  check_lock(pthread_mutexattr_settype(&attributes.value, type), "its type");
  check_lock(pthread_mutex_init(&mutex, &attributes.value), "pthread_mutex_init");
}

}  // namespace bluefog::shm
