#pragma once

#include <boost/container/small_vector.hpp>
#include <cstddef>
#include <memory>
#include <span>

#include "bluefog_cpp/device/calls/neighbor_agreement.hpp"
#include "bluefog_cpp/device/device_channel.hpp"
#include "bluefog_cpp/device/device_link.hpp"
#include "bluefog_cpp/engine/exchange.hpp"

namespace bluefog {

/// The payloads of a call's exchange of device memory: what this rank sends, what it receives, and
/// the memory for that.
class DevicePayloads {
 public:
  /// Whether the messages of `exchange` are kept until somebody waits for the call.
  [[nodiscard]] static bool are_kept(const ExchangeSpec& exchange) noexcept {
    return exchange.consumption == Consumption::OnWait && exchange.bytes > 0;
  }

  /// Lists what `exchange` sends and to whom, as the link takes it.
  void list_sends(const ExchangeSpec& exchange);
  /// Lists what it brings and where that goes, message by message, and takes memory for it.
  /// @throws CudaError: no neighbour has agreed on the exchange yet.
  void place_receives(const ExchangeSpec& exchange, DeviceChannel& channel);
  /// Notes where the sources' payloads lie, by their terms.
  void note_offers(const NeighborAgreement& agreement);
  /// Lists the messages that have no place of their own with their weights, for the operation.
  void list_pieces(const ExchangeSpec& exchange, const NeighborAgreement& agreement);

  [[nodiscard]] std::span<DeviceSend> sends() noexcept { return {sends_.data(), sends_.size()}; }
  [[nodiscard]] std::span<DeviceReceive> receives() noexcept {
    return {receives_.data(), receives_.size()};
  }
  [[nodiscard]] std::span<const Piece> pieces() const noexcept {
    return {pieces_.data(), pieces_.size()};
  }
  /// Whether this rank sends or receives a byte.
  [[nodiscard]] bool are_any() const noexcept;

  /// Gives back what was kept: the next call may have it when `done` has happened.
  void release_kept(std::shared_ptr<const gpu::Event> done);
  /// Gives it back at once: what uses it later comes after this call anyhow.
  void release_kept() { kept_ = {}; }
  /// Leaves it to the device, which may use it for ever.
  void lose_kept() noexcept { kept_.lose(); }

 private:
  [[nodiscard]] std::byte* take_memory(const ExchangeSpec& exchange, DeviceChannel& channel,
                                       std::size_t bytes);

  boost::container::small_vector<DeviceSend, kInlineNeighbors> sends_;
  boost::container::small_vector<DeviceReceive, kInlineNeighbors> receives_;
  boost::container::small_vector<Piece, kInlineNeighbors> pieces_;
  /// Memory of the pieces, where they are kept.
  gpu::MemoryBlock kept_;
};

}  // namespace bluefog
