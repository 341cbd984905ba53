#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "bluefog_cpp/device/cuda/cuda_api.hpp"

namespace bluefog {

/// Memory or an event of a device, as its owner shows it to the other ranks of its host.
struct SharedHandle {
  /// For ranks of the same process, as it is.
  void* here = nullptr;
  /// For those of others.
  gpu::IpcHandle handle{};
};

/// Part of a mailbox: a payload, which all of its readers read.
struct SharedSlot {
  SharedHandle memory{};
  /// Event: the payload is there.
  SharedHandle filled{};
};

/// What a rank shows the others of its part in a `PeerLink`. Lies in memory that the ranks of a
/// host share; its owner alone writes it, and what others look for in it before they are told of it
/// by a message or all together is atomic.
struct PeerBoard {
  static constexpr std::size_t kMostSlots = 512;
  static constexpr std::size_t kReadEvents = 8;

  /// All calls up to this one have put their reading of mailboxes on the stream, or never will.
  /// Known when the next one offers what it sends: before its neighbours hear of that.
  std::atomic<std::uint64_t> over{0};
  /// The owner reads nobody's mailbox any more, and has given back what it had opened.
  std::atomic<std::uint32_t> has_left{0};
  int device = 0;
  /// As `CudaApi::process` says.
  std::uint64_t process = 0;
  /// What the owner's first slot holds when all try whether they reach it.
  std::uint64_t greeting = 0;
  /// Events, call after call: what a call reads in mailboxes has been read.
  std::array<SharedHandle, kReadEvents> read{};
  std::array<SharedSlot, kMostSlots> slots{};
};

}  // namespace bluefog
