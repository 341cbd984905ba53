#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "bluefog_cpp/device/cuda/cuda_api.hpp"

namespace bluefog {

/// Memory or an event of a device, as its owner shows it to the other ranks of its host.
struct SharedHandle {
  /// The pointer itself, for ranks of the same process.
  void* here = nullptr;
  /// The handle, for ranks of other processes.
  gpu::IpcHandle handle{};
};

/// A slot of a mailbox: one payload, which all of its readers read.
struct SharedSlot {
  SharedHandle memory{};
  /// Event: the payload is there.
  SharedHandle filled{};
};

/// The part of a `PeerLink` that a rank shows the others. It lies in memory that the ranks of a
/// host share, and its owner alone writes it. Fields that others read before a message, or a
/// meeting of all, allows it are atomic.
struct PeerBoard {
  static constexpr std::size_t kMostSlots = 512;
  static constexpr std::size_t kReadEvents = 8;

  /// All calls up to this one have put their reads of mailboxes on the stream, or never will.
  /// Stored when the next call offers its payloads: before its neighbours know of the offer.
  std::atomic<std::uint64_t> over{0};
  /// The owner reads nobody's mailbox any more, and has given back what it had opened.
  std::atomic<std::uint32_t> has_left{0};
  int device = 0;
  /// The owner's process, as `CudaApi::process` names it.
  std::uint64_t process = 0;
  /// The word in the owner's first slot when all ranks try whether they reach it.
  std::uint64_t greeting = 0;
  /// The events of calls, in turns: the call's reads of mailboxes are done.
  std::array<SharedHandle, kReadEvents> read{};
  std::array<SharedSlot, kMostSlots> slots{};
};

}  // namespace bluefog
