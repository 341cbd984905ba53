#pragma once

#include <cstddef>
#include <memory>
#include <memory_resource>
#include <utility>

namespace bluefog {

/// Takes memory from a resource that it keeps alive, so that an object made of it may outlive all
/// others who know the resource. For std::allocate_shared.
template <typename T>
class PooledAllocator {
 public:
  using value_type = T;

  explicit PooledAllocator(std::shared_ptr<std::pmr::memory_resource> pool) noexcept
      : pool_(std::move(pool)) {}
  template <typename U>
  PooledAllocator(const PooledAllocator<U>& other) noexcept  // NOLINT: as allocators are
      : pool_(other.pool()) {}

  [[nodiscard]] T* allocate(std::size_t count) {
    return static_cast<T*>(pool_->allocate(count * sizeof(T), alignof(T)));
  }
  void deallocate(T* place, std::size_t count) noexcept {
    pool_->deallocate(place, count * sizeof(T), alignof(T));
  }

  [[nodiscard]] const std::shared_ptr<std::pmr::memory_resource>& pool() const noexcept {
    return pool_;
  }
  template <typename U>
  friend bool operator==(const PooledAllocator& a, const PooledAllocator<U>& b) noexcept {
    return a.pool() == b.pool();
  }

 private:
  std::shared_ptr<std::pmr::memory_resource> pool_;
};

}  // namespace bluefog
