#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "bluefog_cpp/device/cuda/cuda_api.hpp"
#include "bluefog_cpp/error.hpp"

namespace bluefog {

/// How calls with buffers on a device are carried out.
enum class DeviceWay : std::uint8_t {
  /// From device to device, by NCCL.
  Nccl,
  /// From device to device, by copies between ranks of one host.
  Peer,
  /// Through page-locked memory of the host, by the transports of calls on the CPU.
  Host,
};

/// Where a payload lies that its sender offers. Travels in messages between neighbours.
struct DeviceOffer {
  std::uint64_t offset = 0;
  std::uint64_t slot = 0;
};

/// Bytes of this rank's device for another rank.
struct DeviceSend {
  const std::byte* data = nullptr;
  std::size_t bytes = 0;
  int reader = 0;
  /// By `DeviceLink::offer`.
  DeviceOffer offer{};
};

/// Bytes of another rank for this one's device.
struct DeviceReceive {
  /// Where they go; null, with a link that offers: they are read where they are.
  std::byte* place = nullptr;
  std::size_t bytes = 0;
  int source = 0;
  /// What the source has told.
  DeviceOffer offer{};
  /// By `DeviceLink::transfer`: where they are, for what comes later on the stream.
  const std::byte* data = nullptr;
};

/// What takes bytes from device to device, for a `DeviceChannel`: on its stream, between neighbours
/// that have agreed.
///
/// Calls are made with the channel's device entered, under the engine's mutex, and do not wait for
/// a device.
class DeviceLink {
 public:
  DeviceLink() = default;
  DeviceLink(const DeviceLink&) = delete;
  DeviceLink& operator=(const DeviceLink&) = delete;
  virtual ~DeviceLink() = default;

  [[nodiscard]] virtual DeviceWay way() const noexcept = 0;

  /// Whether what the link puts on the stream is right when a graph replays it, without the hosts.
  [[nodiscard]] virtual bool can_be_replayed() const noexcept { return false; }

  /// Whether payloads are offered before neighbours agree on an exchange. They then do so in each
  /// exchange, and tell each other where the payloads lie.
  [[nodiscard]] virtual bool offers() const noexcept { return false; }

  /// Puts what an exchange of that call sends where the readers find it; one after the other for
  /// the same bytes to several. All exchanges of earlier calls have been launched, or never will
  /// be.
  /// @throws TransportError: no neighbour has heard of it.
  virtual void offer(std::uint64_t /*call*/, std::span<DeviceSend> /*sends*/) {}

  /// Sends and receives at the same time. @throws TransportError: what neighbours launch may then
  /// never end.
  virtual void transfer(std::span<const DeviceSend> sends, std::span<DeviceReceive> receives) = 0;

  /// What is on the stream by now has read what the call's last `transfer` has brought.
  virtual void note_read(std::uint64_t /*call*/) {}

  /// Whether what is under way comes to its end although that rank has left.
  [[nodiscard]] virtual bool has_delivered(int /*rank*/) const { return false; }

  /// Where it can be replayed: as `transfer`, on a stream that captures. From then on `abort` and
  /// `close` may block for as long as there are graphs with what was captured.
  virtual void capture(gpu::StreamHandle /*stream*/, std::span<const DeviceSend> /*sends*/,
                       std::span<DeviceReceive> /*receives*/) {
    throw InternalError("expected a link whose transfers can be captured");
  }

  /// Whether `abort` and `close` wait until other ranks end theirs.
  [[nodiscard]] virtual bool ends_with_others() const noexcept { return false; }

  /// What went wrong since, beside any call: "NCCL reports: …".
  [[nodiscard]] virtual std::optional<std::string> error() = 0;

  /// Ends what is under way, where that can be, and the link. Once. @throws TransportError.
  virtual void abort() = 0;

  /// Gives everything back. At the end, also after `abort`. @param is_idle whether nothing that
  /// was launched is under way. @throws TransportError.
  virtual void close(bool is_idle) = 0;
};

}  // namespace bluefog
