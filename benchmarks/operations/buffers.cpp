#include "benchmarks/operations/buffers.hpp"

#include <algorithm>
#include <cstdlib>
#include <new>

namespace bluefog::benchmarks {
namespace {

/// Buffers take turns until so many bytes have been touched.
constexpr std::int64_t kRotatedBytes = std::int64_t{64} << 20;
constexpr std::int64_t kMostBuffers = 16;
constexpr std::size_t kPage = 4096;

template <typename T>
void fill(const BufferView& buffer, T value) {
  std::fill_n(static_cast<T*>(buffer.data), buffer.count, value);
}

/// Numbers between 1 and 2, which no average of theirs makes subnormal.
void rewrite(const BufferView& buffer, unsigned turn) {
  const auto step = static_cast<std::uint16_t>(turn % 8);
  switch (buffer.dtype) {
    case Dtype::Float16:
      fill(buffer, static_cast<std::uint16_t>(0x3c00U + step));
      break;
    case Dtype::BFloat16:
      fill(buffer, static_cast<std::uint16_t>(0x3f80U + step));
      break;
    case Dtype::Float32:
      fill(buffer, 1.0F + static_cast<float>(step) / 8);
      break;
    default:
      fill(buffer, 1.0 + static_cast<double>(step) / 8);
  }
}

std::size_t many_of(std::size_t bytes) {
  const auto many = kRotatedBytes / static_cast<std::int64_t>(std::max<std::size_t>(bytes, 1));
  return static_cast<std::size_t>(std::clamp(many, std::int64_t{1}, kMostBuffers));
}

}  // namespace

Buffers::Buffers(const Setting& setting, bool are_shared)
    : context_(&setting.context),
      are_shared_(are_shared),
      count_(setting.count),
      dtype_(setting.dtype),
      memory_(many_of(static_cast<std::size_t>(count_) * size_of(dtype_))) {
  for (auto& memory : memory_) {
    memory = allocate();
  }
}

std::shared_ptr<std::byte> Buffers::allocate() const {
  const std::size_t bytes = static_cast<std::size_t>(count_) * size_of(dtype_);
  if (are_shared_) {
    return context_->allocate_shared(bytes);
  }
  const std::size_t whole_pages = (bytes + kPage - 1) / kPage * kPage;
  const std::shared_ptr<std::byte> memory(
      static_cast<std::byte*>(std::aligned_alloc(kPage, whole_pages)), std::free);
  if (!memory) {
    throw std::bad_alloc();
  }
  return memory;
}

double Buffers::bytes_of(const Setting& setting) {
  const std::size_t bytes = static_cast<std::size_t>(setting.count) * size_of(setting.dtype);
  return static_cast<double>(bytes * many_of(bytes));
}

BufferView Buffers::next() {
  BufferView buffer{
      .data = memory_[turn_++ % memory_.size()].get(), .count = count_, .dtype = dtype_};
  rewrite(buffer, turn_);
  return buffer;
}

BufferView Buffers::other() {
  if (memory_.size() == 1 && !spare_) {
    spare_ = allocate();
  }
  const auto& memory = memory_.size() == 1 ? spare_ : memory_[turn_ % memory_.size()];
  return {.data = memory.get(), .count = count_, .dtype = dtype_};
}

}  // namespace bluefog::benchmarks
