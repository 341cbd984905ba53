#pragma once

#include <utility>

namespace bluefog {

/// Owns one handle of a C library: movable, not copyable, null when moved from.
///
/// `Traits` names the type `Handle`, its value `null()`, and `free(handle)`,
/// which must not throw.
template <typename Traits>
class UniqueHandle {
 public:
  using Handle = typename Traits::Handle;

  UniqueHandle() noexcept : handle_(Traits::null()) {}
  explicit UniqueHandle(Handle handle) noexcept : handle_(handle) {}
  UniqueHandle(UniqueHandle&& other) noexcept : handle_(other.release()) {}
  UniqueHandle& operator=(UniqueHandle&& other) noexcept {
    reset(other.release());
    return *this;
  }
  UniqueHandle(const UniqueHandle&) = delete;
  UniqueHandle& operator=(const UniqueHandle&) = delete;
  ~UniqueHandle() { reset(); }

  [[nodiscard]] Handle get() const noexcept { return handle_; }
  explicit operator bool() const noexcept { return handle_ != Traits::null(); }

  /// Gives the handle up without freeing it.
  [[nodiscard]] Handle release() noexcept { return std::exchange(handle_, Traits::null()); }

  /// Frees the handle, if any, and takes `handle`.
  void reset(Handle handle = Traits::null()) noexcept {
    const Handle old = std::exchange(handle_, handle);
    if (old != Traits::null() && old != handle) {
      Traits::free(old);
    }
  }

 private:
  Handle handle_;
};

}  // namespace bluefog
