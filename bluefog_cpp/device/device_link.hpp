#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "bluefog_cpp/device/cuda/cuda_api.hpp"
#include "bluefog_cpp/error.hpp"

namespace bluefog {

/// The ways in which calls with buffers on a device are carried out.
enum class DeviceWay : std::uint8_t {
  /// From device to device, by NCCL.
  Nccl,
  /// From device to device, by copies between ranks of one host.
  Peer,
  /// Through page-locked memory of the host, by the transports of calls on the CPU.
  Host,
};

/// The place of a payload that its sender offers. Travels in messages between neighbours.
struct DeviceOffer {
  std::uint64_t offset = 0;
  std::uint64_t slot = 0;
};

/// Bytes of this rank's device for another rank.
struct DeviceSend {
  const std::byte* data = nullptr;
  std::size_t bytes = 0;
  int reader = 0;
  /// Set by `DeviceLink::offer`.
  DeviceOffer offer{};
};

/// Bytes of another rank for this one's device.
struct DeviceReceive {
  /// The target of the bytes; null with a link that offers: they are read where they are.
  std::byte* place = nullptr;
  std::size_t bytes = 0;
  int source = 0;
  /// The offer that the source has sent.
  DeviceOffer offer{};
  /// Set by `DeviceLink::transfer`: the place where later work on the stream finds the bytes.
  const std::byte* data = nullptr;
};

/// Takes bytes from device to device for a `DeviceChannel`: on its stream, between neighbours that
/// have agreed.
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

  /// Whether the link's work on the stream is right when a graph replays it without the hosts.
  [[nodiscard]] virtual bool can_be_replayed() const noexcept { return false; }

  /// Whether payloads are offered before neighbours agree on an exchange. Neighbours then agree in
  /// each exchange, and send each other where the payloads lie.
  [[nodiscard]] virtual bool offers() const noexcept { return false; }

  /// Puts the payloads of an exchange of that call where their readers find them. In `sends` the
  /// same bytes for several readers stand one after the other. All exchanges of earlier calls have
  /// been launched, or never will be.
  /// @throws TransportError: no neighbour knows of the offer.
  virtual void offer(std::uint64_t /*call*/, std::span<DeviceSend> /*sends*/) {}

  /// Sends and receives at the same time. @throws TransportError: what neighbours launch may then
  /// never end.
  virtual void transfer(std::span<const DeviceSend> sends, std::span<DeviceReceive> receives) = 0;

  /// Notes that the reads of what the call's last `transfer` brought are on the stream by now.
  virtual void note_read(std::uint64_t /*call*/) {}

  /// Whether the transfers under way come to their end although that rank has left.
  [[nodiscard]] virtual bool has_delivered(int /*rank*/) const { return false; }

  /// Does the work of `transfer` on a stream that captures, for a link that `can_be_replayed`. From
  /// then on `abort` and `close` may block for as long as there are graphs with what was captured.
  virtual void capture(gpu::StreamHandle /*stream*/, std::span<const DeviceSend> /*sends*/,
                       std::span<DeviceReceive> /*receives*/) {
    throw InternalError("expected a link whose transfers can be captured");
  }

  /// Whether `abort` and `close` wait until other ranks end their links.
  [[nodiscard]] virtual bool ends_with_others() const noexcept { return false; }

  /// The error that arose outside any call, if there is one: "NCCL reports: …".
  [[nodiscard]] virtual std::optional<std::string> error() = 0;

  /// Ends the link, and its work under way where that can be ended. Once. @throws TransportError.
  virtual void abort() = 0;

  /// Gives everything back. At the end, also after `abort`. @param is_idle whether nothing that
  /// was launched is under way. @throws TransportError.
  virtual void close(bool is_idle) = 0;
};

}  // namespace bluefog
