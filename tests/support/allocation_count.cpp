#include "tests/support/allocation_count.hpp"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {

std::atomic<std::size_t> of_all{0};
thread_local std::size_t of_this = 0;

void* counted(std::size_t bytes, std::size_t alignment) {
  of_all.fetch_add(1, std::memory_order_relaxed);
  ++of_this;
  const std::size_t whole = (bytes + alignment - 1) / alignment * alignment;
  void* const place = alignment <= alignof(std::max_align_t)
                          ? std::malloc(bytes == 0 ? 1 : bytes)
                          : std::aligned_alloc(alignment, whole == 0 ? alignment : whole);
  if (place == nullptr) {
    throw std::bad_alloc();
  }
  return place;
}

}  // namespace

// The array and nothrow forms call these.
void* operator new(std::size_t bytes) { return counted(bytes, alignof(std::max_align_t)); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return counted(bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* place) noexcept { std::free(place); }
void operator delete(void* place, std::size_t /*bytes*/) noexcept { std::free(place); }
void operator delete(void* place, std::align_val_t /*alignment*/) noexcept { std::free(place); }
void operator delete(void* place, std::size_t /*bytes*/, std::align_val_t /*alignment*/) noexcept {
  std::free(place);
}

namespace bluefog::testing {

std::size_t allocations_of_this_thread() noexcept { return of_this; }

std::size_t allocations_of_all_threads() noexcept { return of_all.load(std::memory_order_relaxed); }

}  // namespace bluefog::testing
