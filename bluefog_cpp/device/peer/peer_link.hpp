#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bluefog_cpp/bootstrap.hpp"
#include "bluefog_cpp/deadline.hpp"
#include "bluefog_cpp/device/device_link.hpp"
#include "bluefog_cpp/device/host_staging.hpp"
#include "bluefog_cpp/device/peer/mailbox.hpp"
#include "bluefog_cpp/device/peer/peer_imports.hpp"
#include "bluefog_cpp/device/rank_problems.hpp"
#include "bluefog_cpp/transport/host_memory.hpp"

namespace bluefog {

/// Copies between the devices' memories of ranks on one host, by CUDA IPC between processes; ranks
/// may share a device.
///
/// A payload is copied once, into a slot of the sender's `Mailbox`, before the sender states to its
/// neighbours what it sends: whoever knows of the payload knows that the slot's event was recorded,
/// which a wait for an event of another process asks for. Readers read the slot itself, and record
/// an event of theirs, which the sender's stream waits for before the slot is filled again.
class PeerLink final : public DeviceLink {
 public:
  struct Parts {
    std::shared_ptr<gpu::CudaApi> cuda{};
    std::shared_ptr<gpu::HostStaging> staging{};
    /// The stream of the channel.
    gpu::StreamHandle stream = nullptr;
    int device = 0;
    /// The memory that all ranks share; null on all of them where they have none yet.
    std::shared_ptr<shm::HostArena> arena{};
    std::chrono::nanoseconds timeout{};
  };

  /// Collective over ranks of one host. Every rank shows its part to the others and reads a word of
  /// theirs, so that a link which does not work is found here.
  /// @return null where some rank could not, on all ranks; `problem` then says which, and why.
  static std::unique_ptr<PeerLink> connect(Bootstrap& bootstrap, const Parts& parts,
                                           Deadline deadline, RankProblem& problem);
  ~PeerLink() override;

  [[nodiscard]] DeviceWay way() const noexcept override { return DeviceWay::Peer; }
  [[nodiscard]] bool offers() const noexcept override { return true; }
  void offer(std::uint64_t call, std::span<DeviceSend> sends) override;
  void transfer(std::span<const DeviceSend> sends, std::span<DeviceReceive> receives) override;
  void note_read(std::uint64_t call) override;
  [[nodiscard]] bool has_delivered(int rank) const override;
  [[nodiscard]] std::optional<std::string> error() override { return std::nullopt; }
  /// Does nothing: what is under way ends when the ranks that it waits for have done their part.
  void abort() override {}
  void close(bool is_idle) override;

 private:
  PeerLink(Bootstrap& bootstrap, const Parts& parts);

  // The steps by which all ranks connect, one after the other.
  void show();
  void open();
  void greet();
  /// Waits for the event, and keeps `word`, which the device uses until then. @param read where not
  /// null, gets the word.
  void keep_until_happened(gpu::MemoryBlock word, gpu::EventHandle event,
                           std::uint64_t* read = nullptr);

  /// The test of a slot: whether all readers of its payload have put their reads on their streams.
  [[nodiscard]] std::function<bool(const Mailbox::Slot&)> is_read() const;
  void let_go();
  void free_own();
  [[nodiscard]] bool have_all_left() const;

  Parts parts_;
  int rank_;
  int size_;
  std::unique_ptr<shm::HostMemory> shared_;
  PeerBoard* board_ = nullptr;
  std::unique_ptr<Mailbox> mailbox_;
  /// The events of this rank's reads, by call modulo their number.
  std::vector<gpu::EventHandle> read_;
  bool has_read_ = false;
  /// The other ranks' mailboxes by rank; null for this one.
  std::vector<std::unique_ptr<PeerImports>> others_;
};

}  // namespace bluefog
