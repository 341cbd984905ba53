#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bluefog_cpp/bootstrap.hpp"
#include "bluefog_cpp/context.hpp"
#include "bluefog_cpp/context/component_waits.hpp"
#include "bluefog_cpp/context/shared_scratch.hpp"
#include "bluefog_cpp/deadline.hpp"
#include "bluefog_cpp/engine/engine.hpp"
#include "bluefog_cpp/log.hpp"
#include "bluefog_cpp/machine_layout.hpp"
#include "bluefog_cpp/settings.hpp"

namespace bluefog {

class DeviceChannel;
class OneSided;

namespace gpu {
struct Libraries;
}

namespace shm {
class HostArena;
class HostMemory;
}  // namespace shm

/// Everything that a context consists of, and that operations, windows and optimizers stand on.
class ContextCore {
 public:
  ContextCore(std::shared_ptr<Bootstrap> bootstrap, const Settings& settings);
  ~ContextCore();
  ContextCore(const ContextCore&) = delete;
  ContextCore& operator=(const ContextCore&) = delete;

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return size_; }
  [[nodiscard]] const Settings& settings() const noexcept { return settings_; }
  [[nodiscard]] const Logger& log() const noexcept { return log_; }
  [[nodiscard]] const MachineLayout& hosts() const noexcept { return hosts_; }
  [[nodiscard]] const MachineLayout& machines() const noexcept { return machines_; }
  [[nodiscard]] bool uses_network() const noexcept;
  [[nodiscard]] const Membership& membership() const noexcept { return membership_; }
  /// The first step of optimizers from here on, for what the membership tells of losses that none
  /// of them had passed before.
  void note_first_step(std::int64_t step) noexcept {
    for (Membership::Loss& loss : membership_.lost) {
      if (loss.step < 0) {
        loss.step = step;
      }
    }
  }

  [[nodiscard]] Engine& engine() noexcept { return *engine_; }
  [[nodiscard]] Bootstrap& bootstrap() noexcept { return *bootstrap_; }
  /// Null when no timeline is written.
  [[nodiscard]] Timeline* timeline() const noexcept { return timeline_.get(); }
  /// Null when no flight record is kept.
  [[nodiscard]] FlightRecorder* flight_recorder() const noexcept { return recorder_.get(); }
  /// The memory of `Context::allocate_shared`; null where this rank shares no memory with others.
  [[nodiscard]] const std::shared_ptr<shm::HostMemory>& shared_memory() const noexcept {
    return shared_memory_;
  }
  /// What decides whether calls in place wait for all ranks that a step ties together.
  [[nodiscard]] ComponentWaits& component_waits() noexcept { return component_waits_; }
  /// Where calls of several buffers put them together.
  [[nodiscard]] SharedScratch& scratch() noexcept { return scratch_; }
  /// Null before `use_device`.
  [[nodiscard]] const std::shared_ptr<DeviceChannel>& device() const noexcept { return device_; }

  /// Does `Context::use_device`. @param libraries how to call CUDA and NCCL; null: this machine's,
  /// loaded now.
  void use_device(int device, const gpu::Libraries* libraries);

  /// The memory, server and thread that windows use. Collective the first time.
  [[nodiscard]] OneSided& one_sided();

  /// Does `Context::allocate_shared`.
  [[nodiscard]] std::shared_ptr<std::byte> allocate_shared(std::size_t bytes);

  /// Opens the timeline and the flight record where settings name them.
  /// @throws InvalidArgument for one that cannot be written.
  void open_files();
  /// Collective. @param problem why this rank cannot take part; empty if it can.
  void connect(const std::string& problem);
  /// Collective. The core of a copy of the context, which is still to be connected.
  [[nodiscard]] std::unique_ptr<ContextCore> duplicate();
  /// Does `Context::resync`.
  void resync();
  /// From now on waits of the bootstrap end where a rank is lost, if that ends all calls.
  void watch_for_losses();
  /// Collective over the ranks that live: `Bootstrap::regroup`. Ends the calls of this context and
  /// its copies, and those that others are in: where no rank is lost, after a second, or more where
  /// it admits others.
  [[nodiscard]] Bootstrap::Regrouped regroup(bool admits);
  /// Collective over those ranks. The core of their context, which is still to be connected.
  [[nodiscard]] std::unique_ptr<ContextCore> among(const Bootstrap::Regrouped& left);
  /// Collective over a group with ranks that are new: these hear who takes part, and open their
  /// files.
  void tell_newcomers(bool is_new);
  void close() noexcept;

 private:
  void watch_for_losses(Bootstrap& bootstrap) const;
  /// The phases of `connect`, in their order. Each is collective, and leaves its result in `parts`
  /// or in a member.
  void share_memory(std::vector<std::string>& host_ids, EngineParts& parts, Deadline deadline);
  void lay_out_machines(const std::vector<std::string>& host_ids);
  void reach_network(EngineParts& parts, Deadline deadline);
  [[nodiscard]] WaitPolicy choose_waits() const;
  void start_engine(EngineParts parts);

  std::shared_ptr<Bootstrap> bootstrap_;
  int rank_;
  int size_;
  Settings settings_;
  Logger log_;
  MachineLayout hosts_;
  MachineLayout machines_;
  Membership membership_;
  /// The machine of each rank in the context before, which was larger; empty in the first one.
  std::vector<int> former_machines_;
  std::shared_ptr<Timeline> timeline_;
  std::shared_ptr<FlightRecorder> recorder_;
  /// Shared with all copies.
  std::shared_ptr<ContextFamily> family_;
  std::shared_ptr<Engine> engine_;
  /// Shared with all copies; null where the ranks of this host share no memory.
  std::shared_ptr<shm::HostArena> arena_;
  std::shared_ptr<shm::HostMemory> shared_memory_;
  ComponentWaits component_waits_{};
  SharedScratch scratch_{};
  std::shared_ptr<OneSided> one_sided_;
  std::shared_ptr<DeviceChannel> device_;
};

}  // namespace bluefog
