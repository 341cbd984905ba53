#pragma once

#include <unistd.h>

#include <utility>

namespace bluefog::bfrun {

/// The owner of a file descriptor.
class Descriptor {
 public:
  explicit Descriptor(int value = -1) : value_(value) {}
  Descriptor(Descriptor&& other) noexcept : value_(other.release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    reset();
    value_ = other.release();
    return *this;
  }
  ~Descriptor() { reset(); }

  [[nodiscard]] int get() const { return value_; }
  void reset() {
    if (value_ >= 0) close(value_);
    value_ = -1;
  }

 private:
  int release() { return std::exchange(value_, -1); }
  int value_;
};

}  // namespace bluefog::bfrun
