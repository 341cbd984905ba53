#pragma once

#include <utility>

namespace bluefog::tcp {

/// Has a descriptor closed in forks of this process, as long as it lives: a child that keeps a
/// connection would keep its end from the other ranks once this process is gone.
class ForkClosed {
 public:
  ForkClosed() = default;
  /// @param fd stays the caller's.
  explicit ForkClosed(int fd);
  ForkClosed(ForkClosed&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  ForkClosed& operator=(ForkClosed&& other) noexcept {
    std::swap(fd_, other.fd_);  // the other one lets go of what this one had
    return *this;
  }
  ~ForkClosed();

 private:
  int fd_ = -1;
};

}  // namespace bluefog::tcp
