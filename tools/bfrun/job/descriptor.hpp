#pragma once

#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <string_view>
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
    if (value_ >= 0) {
      close(value_);
    }
    value_ = -1;
  }

 private:
  int release() { return std::exchange(value_, -1); }
  int value_;
};

/// Hands on everything that a descriptor which does not block has now, piece by piece; false at the
/// end of the stream.
template <typename Take>
bool read_available(int descriptor, Take&& take) {
  std::array<char, 16384> piece{};
  while (true) {
    const ssize_t count = read(descriptor, piece.data(), piece.size());
    if (count > 0) {
      take(std::string_view(piece.data(), static_cast<std::size_t>(count)));
    } else if (count == 0) {
      return false;
    } else if (errno != EINTR) {
      return errno == EAGAIN;
    }
  }
}

}  // namespace bluefog::bfrun
