#include "ops/window/window_memory.hpp"

#include <array>
#include <boost/container/small_vector.hpp>
#include <cstring>
#include <new>

#include "bluefog_cpp/base/alignment.hpp"
#include "bluefog_cpp/base/copy.hpp"
#include "bluefog_cpp/engine/exchange.hpp"
#include "ops/sums/combine.hpp"

namespace bluefog::ops {
namespace {

/// Holds locks that have been taken.
class HeldLocks {
 public:
  HeldLocks() = default;
  HeldLocks(const HeldLocks&) = delete;
  HeldLocks& operator=(const HeldLocks&) = delete;
  ~HeldLocks() {
    for (shm::RobustLock* const lock : taken_) {
      lock->release();
    }
  }

  void add(shm::RobustLock& lock, const TakeLock& take) {
    take(lock);
    taken_.push_back(&lock);
  }

 private:
  boost::container::small_vector<shm::RobustLock*, kInlineNeighbors> taken_;
};

/// Makes sure, inside the locks' scope, that what a call has begun on a device is done when the
/// locks are released, also where the call fails.
class Settled {
 public:
  explicit Settled(WindowValues* values) : values_(values) {}
  Settled(const Settled&) = delete;
  Settled& operator=(const Settled&) = delete;
  ~Settled() {
    if (values_ != nullptr) {
      values_->settle_quietly();
    }
  }

  void now() {
    if (values_ != nullptr) {
      values_->settle();
      values_ = nullptr;
    }
  }

 private:
  WindowValues* values_;
};

}  // namespace

std::size_t WindowMemory::size_of_heads(const Shape& shape) noexcept {
  return round_up(sizeof(Head) + shape.slots() * sizeof(BufferHead), kPage);
}

std::size_t WindowMemory::size_of_buffers(const Shape& shape) noexcept {
  return shape.slots() * round_up(shape.bytes, kPage);
}

std::byte* WindowMemory::buffer(std::size_t index) const noexcept {
  return buffers_ + index * round_up(shape_.bytes, kPage);
}

void WindowMemory::copy(std::byte* to, const std::byte* from, WindowValues* values) const {
  if (values != nullptr) {
    values->copy(to, from, shape_.bytes);
  } else {
    copy_bytes(to, from, shape_.bytes);
  }
}

void WindowMemory::sum(std::byte* out, std::span<const Operand> operands,
                       WindowValues* values) const {
  if (values != nullptr) {
    values->weighted_sum(shape_.dtype, out, operands, shape_.bytes);
  } else {
    weighted_sum(shape_.dtype, out, operands, shape_.bytes);
  }
}

void WindowMemory::zero(std::byte* data, WindowValues* values) const {
  if (values != nullptr) {
    values->zero(data, shape_.bytes);
  } else {
    std::memset(data, 0, shape_.bytes);
  }
}

void WindowMemory::initialize(const std::byte* value, const std::byte* own_value,
                              WindowValues* values) {
  Head& own = *new (block_) Head;
  own.mutex.initialize();
  own.mass.store(1.0);
  own.is_freed.store(false);
  Settled settled(values);
  for (std::size_t index = 0; index < shape_.slots(); ++index) {
    BufferHead& of_buffer = *new (&buffer_head(index)) BufferHead;
    of_buffer.lock.initialize();
    fill_buffer(index, index < shape_.sources ? value : own_value, values);
    mark_empty(index);
  }
  settled.now();
}

void WindowMemory::fill_buffer(std::size_t index, const std::byte* value,
                               WindowValues* values) const {
  if (value != nullptr) {
    copy(buffer(index), value, values);
  } else {
    zero(buffer(index), values);
  }
}

void WindowMemory::mark_empty(std::size_t index) const noexcept {
  buffer_head(index).version.store(0);
  buffer_head(index).stamp.store(0);
  buffer_head(index).mass = 0.0;
}

void WindowMemory::mark_written(std::size_t index, const WeightedBytes& value) const noexcept {
  buffer_head(index).stamp.store(value.stamp, std::memory_order_relaxed);
  buffer_head(index).version.fetch_add(1, std::memory_order_relaxed);
}

void WindowMemory::fill(const std::byte* value, const TakeLock& take, WindowValues* values) const {
  for (std::size_t index = 0; index < shape_.sources; ++index) {
    HeldLocks held;
    held.add(buffer_head(index).lock, take);
    Settled settled(values);
    fill_buffer(index, value, values);
    settled.now();
    mark_empty(index);
  }
}

void WindowMemory::store(std::size_t index, StoreMode mode, const WeightedBytes& value,
                         const TakeLock& take, WindowValues* values) const {
  BufferHead& of_source = buffer_head(index);
  std::byte* const to = buffer(index);
  HeldLocks held;
  held.add(of_source.lock, take);
  Settled settled(values);
  if (mode == StoreMode::Add) {
    const std::array operands{Operand{.data = to},
                              Operand{.data = value.data, .weight = value.weight}};
    sum(to, operands, values);
    settled.now();
    of_source.mass += value.mass;
  } else {
    if (value.weight == 1.0) {
      copy(to, value.data, values);
    } else {
      const Operand operand{.data = value.data, .weight = value.weight};
      sum(to, {&operand, 1}, values);
    }
    settled.now();
    of_source.mass = value.mass;
  }
  mark_written(index, value);
}

void WindowMemory::store_read(std::size_t index, const WeightedBytes& value,
                              const std::function<void(std::byte* to)>& read, const TakeLock& take,
                              WindowValues* values) const {
  BufferHead& of_source = buffer_head(index);
  std::byte* const to = buffer(index);
  HeldLocks held;
  held.add(of_source.lock, take);
  Settled settled(values);
  read(to);
  if (value.weight != 1.0) {
    const Operand operand{.data = to, .weight = value.weight};
    sum(to, {&operand, 1}, values);
  }
  settled.now();
  of_source.mass = value.mass;
  mark_written(index, value);
}

void WindowMemory::publish(const std::byte* value, const TakeLock& take,
                           WindowValues* values) const {
  HeldLocks held;
  held.add(buffer_head(shape_.sources).lock, take);
  Settled settled(values);
  copy(buffer(shape_.sources), value, values);
  settled.now();
}

void WindowMemory::copy_published(std::byte* to, const TakeLock& take, WindowValues* values) const {
  HeldLocks held;
  held.add(buffer_head(shape_.sources).lock, take);
  Settled settled(values);
  copy(to, buffer(shape_.sources), values);
  settled.now();
}

void WindowMemory::combine(std::byte* out, const OwnTerm& own, std::span<const Term> terms,
                           After after, Mass mass, const TakeLock& take,
                           WindowValues* values) const {
  HeldLocks held;
  boost::container::small_vector<Operand, 1 + kInlineNeighbors> operands;
  for (const Term& term : terms) {
    held.add(buffer_head(term.index).lock, take);
    operands.push_back({.data = buffer(term.index), .weight = term.weight});
  }
  operands.insert(operands.begin() + static_cast<std::ptrdiff_t>(own.place),
                  {.data = own.data, .weight = own.weight});
  Settled settled(values);
  sum(out, {operands.data(), operands.size()}, values);
  if (after == After::Zero) {
    for (const Term& term : terms) {
      zero(buffer(term.index), values);
    }
  }
  settled.now();
  if (mass == Mass::On) {
    combine_mass(own, terms);
  }
  for (const Term& term : terms) {
    BufferHead& of_source = buffer_head(term.index);
    of_source.version.store(0, std::memory_order_relaxed);
    if (after == After::Zero) {
      of_source.mass = 0.0;
    }
  }
}

// A sum of one element: masses of 1 stay 1 where values that are equal stay what they are.
void WindowMemory::combine_mass(const OwnTerm& own, std::span<const Term> terms) const {
  double own_mass = head().mass.load();
  const auto bytes_of = [](const double& value) {
    return reinterpret_cast<const std::byte*>(&value);
  };
  boost::container::small_vector<Operand, 1 + kInlineNeighbors> operands;
  for (const Term& term : terms) {
    operands.push_back({.data = bytes_of(buffer_head(term.index).mass), .weight = term.weight});
  }
  operands.insert(operands.begin() + static_cast<std::ptrdiff_t>(own.place),
                  {.data = bytes_of(own_mass), .weight = own.weight});
  double result = 0.0;
  do {
    weighted_sum(Dtype::Float64, reinterpret_cast<std::byte*>(&result),
                 {operands.data(), operands.size()}, sizeof result);
  } while (!head().mass.compare_exchange_weak(own_mass, result));
}

}  // namespace bluefog::ops
