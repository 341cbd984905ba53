#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "bluefog_cpp/dtype.hpp"

namespace bluefog {

enum class DeviceKind : std::uint8_t { Cpu = 0, Cuda = 1 };

/// The kind and number of the device on which memory lies.
struct Device {
  DeviceKind kind = DeviceKind::Cpu;
  int index = 0;

  friend bool operator==(const Device&, const Device&) = default;
};

/// `count` contiguous elements of `dtype` at `data`, that an operation may write.
///
/// `owner` keeps the memory alive while an operation uses it; leave it null
/// when the caller guarantees that. Its last copy may go in a thread of the
/// runtime and under a lock of it: its deleter calls nothing of a context. `stream` is the device
/// stream (a `cudaStream_t` or `CUstream`) that the memory is ordered on; null is the
/// device's default stream. The CPU has none.
struct BufferView {
  void* data = nullptr;
  std::int64_t count = 0;
  Dtype dtype = Dtype::Float32;
  Device device{};
  void* stream = nullptr;
  std::shared_ptr<const void> owner{};

  [[nodiscard]] std::size_t bytes() const noexcept {
    return static_cast<std::size_t>(count) * size_of(dtype);
  }
};

/// A `BufferView` for memory that an operation only reads.
struct ConstBufferView {
  const void* data = nullptr;
  std::int64_t count = 0;
  Dtype dtype = Dtype::Float32;
  Device device{};
  void* stream = nullptr;
  std::shared_ptr<const void> owner{};

  ConstBufferView() = default;
  ConstBufferView(const void* data_in, std::int64_t count_in, Dtype dtype_in)
      : data(data_in), count(count_in), dtype(dtype_in) {}
  ConstBufferView(const BufferView& view)  // NOLINT: a writable view reads as well
      : data(view.data),
        count(view.count),
        dtype(view.dtype),
        device(view.device),
        stream(view.stream),
        owner(view.owner) {}

  [[nodiscard]] std::size_t bytes() const noexcept {
    return static_cast<std::size_t>(count) * size_of(dtype);
  }
};

}  // namespace bluefog
