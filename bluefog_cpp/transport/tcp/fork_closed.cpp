#include "bluefog_cpp/transport/tcp/fork_closed.hpp"

#include <pthread.h>
#include <unistd.h>

#include <mutex>
#include <set>

namespace bluefog::tcp {
namespace {

/// The process's own, as forks are: a fork knows of no object.
struct Descriptors {
  std::mutex mutex;
  std::set<int> open;

  static Descriptors& all() {
    static Descriptors& descriptors = *new Descriptors;  // handlers may run after static objects go
    return descriptors;
  }

  Descriptors() {
    ::pthread_atfork([] { all().mutex.lock(); }, [] { all().mutex.unlock(); },
                     [] {
                       for (const int fd : all().open) {
                         ::close(fd);
                       }
                       all().open.clear();
                       all().mutex.unlock();
                     });
  }
};

}  // namespace

ForkClosed::ForkClosed(int fd) : fd_(fd) {
  Descriptors& descriptors = Descriptors::all();
  const std::lock_guard lock(descriptors.mutex);
  descriptors.open.insert(fd);
}

ForkClosed::~ForkClosed() {
  if (fd_ >= 0) {
    Descriptors& descriptors = Descriptors::all();
    const std::lock_guard lock(descriptors.mutex);
    descriptors.open.erase(fd_);
  }
}

}  // namespace bluefog::tcp
