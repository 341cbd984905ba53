#pragma once

#include <cstddef>
#include <memory>

#include "bluefog_cpp/base/unique_fd.hpp"

namespace bluefog::shm {

/// Memory without a name that several processes map.
///
/// A large range of addresses is reserved at once; memory behind it is
/// reserved as it is needed, and only by the owner, so that a mapping never
/// moves and a shortage is an error instead of a signal.
class SharedRegion {
 public:
  /// A new region of this process, with `bytes` of memory behind it.
  /// @throws TransportError when the system refuses, with its reason.
  static std::shared_ptr<SharedRegion> create(std::size_t bytes);

  /// Maps the region of another process.
  static std::shared_ptr<SharedRegion> map(UniqueFd fd);

  SharedRegion(const SharedRegion&) = delete;
  SharedRegion& operator=(const SharedRegion&) = delete;
  ~SharedRegion();

  /// Puts memory behind the first `bytes` bytes. @throws TransportError.
  void grow(std::size_t bytes);
  /// Puts memory behind `bytes` bytes from `begin` on, a page's. @throws TransportError.
  void back(std::size_t begin, std::size_t bytes);
  /// Gives the memory behind these bytes back to the system; a write to them puts new memory there.
  void give_back(std::size_t begin, std::size_t bytes) noexcept;

  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t reserved() const noexcept { return reserved_; }
  [[nodiscard]] int fd() const noexcept { return fd_.get(); }

 private:
  SharedRegion(UniqueFd fd, std::byte* data, std::size_t reserved)
      : fd_(std::move(fd)), data_(data), reserved_(reserved) {}
  static std::shared_ptr<SharedRegion> map_reserved(UniqueFd fd);

  UniqueFd fd_;
  std::byte* data_;
  std::size_t reserved_;
  std::size_t bytes_ = 0;
};

}  // namespace bluefog::shm
