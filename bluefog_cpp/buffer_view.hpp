#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "bluefog_cpp/dtype.hpp"

namespace bluefog {

/// The kinds of memory that a call can read and write.
enum class DeviceKind : std::uint8_t {
  Cpu = 0,   ///< the host's memory, page-locked or not
  Cuda = 1,  ///< the memory of a GPU under CUDA
};

/// The kind and number of the device on which memory lies.
struct Device {
  DeviceKind kind = DeviceKind::Cpu;  ///< whose memory it is
  int index = 0;                      ///< CUDA's number of the device; 0 for the CPU

  /// Memberwise.
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
  void* data = nullptr;                 ///< the first element; may be null where `count` is 0
  std::int64_t count = 0;               ///< elements, not bytes; at least 0
  Dtype dtype = Dtype::Float32;         ///< the type of each element
  Device device{};                      ///< where `data` lies; default: the CPU
  void* stream = nullptr;               ///< the stream that orders the memory; unused on the CPU
  std::shared_ptr<const void> owner{};  ///< keeps the memory alive; null: the caller does

  /// The size of the memory: `count` times the size of an element.
  [[nodiscard]] std::size_t bytes() const noexcept {
    return static_cast<std::size_t>(count) * size_of(dtype);
  }
};

/// A `BufferView` for memory that an operation only reads.
struct ConstBufferView {
  const void* data = nullptr;           ///< the first element; may be null where `count` is 0
  std::int64_t count = 0;               ///< elements, not bytes; at least 0
  Dtype dtype = Dtype::Float32;         ///< the type of each element
  Device device{};                      ///< where `data` lies; default: the CPU
  void* stream = nullptr;               ///< the stream that orders the memory; unused on the CPU
  std::shared_ptr<const void> owner{};  ///< keeps the memory alive; null: the caller does

  ConstBufferView() = default;
  /// `count_in` elements at `data_in` on the CPU, which the caller keeps alive.
  ConstBufferView(const void* data_in, std::int64_t count_in, Dtype dtype_in)
      : data(data_in), count(count_in), dtype(dtype_in) {}
  /// The same memory, device, stream and owner as `view`.
  ConstBufferView(const BufferView& view)  // NOLINT: a writable view reads as well
      : data(view.data),
        count(view.count),
        dtype(view.dtype),
        device(view.device),
        stream(view.stream),
        owner(view.owner) {}

  /// The size of the memory: `count` times the size of an element.
  [[nodiscard]] std::size_t bytes() const noexcept {
    return static_cast<std::size_t>(count) * size_of(dtype);
  }
};

}  // namespace bluefog
