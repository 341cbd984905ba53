#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bluefog_cpp/bootstrap.hpp"
#include "bluefog_cpp/deadline.hpp"
#include "bluefog_cpp/one_sided/memory_reader.hpp"
#include "bluefog_cpp/one_sided/task_queue.hpp"
#include "bluefog_cpp/one_sided/window_server.hpp"
#include "bluefog_cpp/settings.hpp"
#include "bluefog_cpp/transport/host_memory.hpp"

namespace bluefog {

class DeviceChannel;
class Engine;
class MachineLayout;
class PeerMemory;

/// The parts of a context that `OneSided` uses.
struct OneSidedParts {
  Bootstrap& bootstrap;
  std::shared_ptr<Engine> engine;
  const MachineLayout& hosts;
  const Settings& settings;
  /// The memory that the ranks of this host share; null where they share none.
  std::shared_ptr<shm::HostArena> arena{};
};

/// The look of waits outside the engine: for the user's interrupts, and for the end of the context.
/// Thread-safe.
class WaitCheck {
 public:
  WaitCheck(std::shared_ptr<Engine> engine, int rank) : engine_(std::move(engine)), rank_(rank) {}

  /// @throws what the user's check throws; StateError once the context waits no longer.
  void look() const;
  /// From that moment on the context waits no longer.
  void end_at(Deadline::Clock::time_point when) noexcept { end_.store(when); }

 private:
  std::shared_ptr<Engine> engine_;
  int rank_;
  std::atomic<Deadline::Clock::time_point> end_{Deadline::Clock::time_point::max()};
};

/// The memory, server and thread that windows of a context use: memory that ranks of a host share,
/// a server for the other ranks, and a thread for calls that nobody waits for.
class OneSided {
 public:
  /// Collective over the ranks of the bootstrap.
  /// @throws UnsupportedError where some ranks share no memory and MPI may not be used from a
  ///   thread.
  static std::shared_ptr<OneSided> connect(const OneSidedParts& parts);

  OneSided(const OneSided&) = delete;
  OneSided& operator=(const OneSided&) = delete;
  ~OneSided();

  [[nodiscard]] shm::HostMemory& memory() noexcept { return *memory_; }
  [[nodiscard]] const MemoryReader& reader() const noexcept { return *reader_; }
  [[nodiscard]] TaskQueue& tasks() noexcept { return *tasks_; }
  /// Device memory that ranks of this host share. Null before `make_peer_memory`.
  [[nodiscard]] PeerMemory* peer_memory() noexcept { return peer_memory_.get(); }
  /// @param channel the context's. @throws CudaError, TransportError.
  PeerMemory& make_peer_memory(DeviceChannel& channel);
  /// Why no rank tries to share device memory with the others any more; empty at first.
  [[nodiscard]] const std::string& peer_obstacle() const noexcept { return peer_obstacle_; }
  void note_peer_obstacle(std::string obstacle) { peer_obstacle_ = std::move(obstacle); }
  /// The server; null where every rank reaches every other one's memory.
  [[nodiscard]] WindowServer* server() noexcept { return server_.get(); }

  /// The next window's number, the same on all ranks: windows are created together.
  [[nodiscard]] std::uint32_t take_window_number() noexcept { return next_window_++; }

  [[nodiscard]] Deadline deadline() const;
  /// The look of a wait: `WaitCheck::look`.
  void check_interrupt() const { check_->look(); }
  /// The reason why `rank` will not come any more, or nothing while it lives. Looks now and then.
  [[nodiscard]] std::optional<std::string> cause_of_death(int rank);

  /// Ends calls under way: those that nobody waits for have `linger::kWindowCalls` for it.
  void close() noexcept;
  /// Gives device memory back, after `close`, when the other ranks know that this one leaves.
  void leave_devices() noexcept;

 private:
  OneSided() = default;

  int rank_ = 0;
  std::chrono::nanoseconds timeout_{};
  std::shared_ptr<Engine> engine_;
  std::shared_ptr<WaitCheck> check_;
  std::unique_ptr<shm::HostMemory> memory_;
  std::unique_ptr<MemoryReader> reader_;
  std::unique_ptr<WindowServer> server_;
  std::unique_ptr<TaskQueue> tasks_;
  std::unique_ptr<PeerMemory> peer_memory_;
  std::string peer_obstacle_;
  std::uint32_t next_window_ = 1;

  std::mutex mutex_;
  /// Whether a rank lives, as it was last looked at.
  struct Look {
    Deadline::Clock::time_point next{};
    /// Set for good: a rank that is gone does not come back.
    std::optional<std::string> cause_of_death{};
  };
  std::vector<Look> looks_;
};

}  // namespace bluefog
