#pragma once

#include <fcntl.h>

#include "bluefog_cpp/base/files/unique_fd.hpp"

namespace bluefog {

/// A descriptor that is kept back for a caller who finds none left, so that it can be told.
class SpareDescriptor {
 public:
  /// Takes one, where none is kept.
  void keep() noexcept {
    if (!fd_) {
      fd_ = shm::UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    }
  }
  /// Makes room for one. @return whether it was kept.
  [[nodiscard]] bool give() noexcept {
    const bool was_kept = static_cast<bool>(fd_);
    fd_.reset();
    return was_kept;
  }

 private:
  shm::UniqueFd fd_;
};

}  // namespace bluefog
