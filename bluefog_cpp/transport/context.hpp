#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "bluefog_cpp/base/log.hpp"
#include "bluefog_cpp/base/machine_layout.hpp"
#include "bluefog_cpp/base/settings.hpp"
#include "bluefog_cpp/base/trace.hpp"
#include "bluefog_cpp/transport/bootstrap.hpp"
#include "bluefog_cpp/transport/engine.hpp"

namespace bluefog {

class DeviceChannel;
class OneSided;

namespace gpu {
struct Libraries;
}

namespace shm {
class HostMemory;
}

/// A group of ranks that communicate: all state of the runtime hangs from it.
///
/// Ranks make the same calls in the same order on a context. A program that
/// communicates from several threads gives each its own: `duplicate`. Several
/// contexts, also in one process (threads as ranks), do not disturb each
/// other. A fork of the process is no rank: its calls are StateErrors, and its end is silent. Held by
/// `shared_ptr`; work in flight does not keep it, but fails when it ends.
class Context : public std::enable_shared_from_this<Context> {
 public:
  /// Collective. The ranks of this launch (`bfrun`, `mpirun`, `srun`), or this
  /// process alone when no launcher started it. Settings come from the environment.
  /// @throws InvalidArgument for a malformed setting, UnsupportedError if a launcher started
  ///   several ranks and MPI is not built in, TransportError, TimeoutError.
  static std::shared_ptr<Context> create();
  static std::shared_ptr<Context> create(const Settings& settings);

  /// Collective over the ranks of `bootstrap`. Settings may differ between
  /// ranks only in what concerns one rank (log, host identity).
  /// @throws InvalidArgument for settings that differ, on all ranks; for a timeline or flight record
  ///   that cannot be written, on the ranks that have it, PeerFailure on the others.
  static std::shared_ptr<Context> create(std::shared_ptr<Bootstrap> bootstrap,
                                         const Settings& settings);

  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return size_; }

  /// Ranks by host: which ones share memory.
  [[nodiscard]] const MachineLayout& hosts() const noexcept { return hosts_; }
  /// Ranks by machine: hosts, or parts of them under `BLUEFOG_NODES_PER_MACHINE`.
  [[nodiscard]] const MachineLayout& machines() const noexcept { return machines_; }
  [[nodiscard]] int local_rank() const { return machines_.local_rank_of(rank()); }
  [[nodiscard]] int local_size() const;

  /// Name of the transport to `peer`: "shm", "mpi"; "self" for this rank.
  [[nodiscard]] std::string_view transport_to(int peer) const;

  /// Whether some ranks reach each other over a network, or as if.
  [[nodiscard]] bool uses_network() const noexcept;

  /// Collective, a call in the order of this context's others. An independent context over the same
  /// ranks, for another thread.
  /// @throws StateError after `close`. @throws UnsupportedError where ranks use MPI that was
  /// initialised for one thread at a time. @throws MismatchError, PeerFailure or TimeoutError where
  /// not all ranks come to it; this context stays usable as after other calls.
  [[nodiscard]] std::shared_ptr<Context> duplicate();

  /// Collective, a call in the order of this context's others. From now on calls of this context take
  /// buffers on that CUDA device, each rank's own, beside those on the CPU. Copies of a context do not
  /// take it over.
  /// @param libraries what to call CUDA and NCCL through; null: this machine's, loaded now.
  /// @throws StateError after `close` or a second time. @throws UnsupportedError where this build or
  /// machine has no CUDA, InvalidArgument for a device that is not there, CudaError; on the other
  /// ranks PeerFailure. The context stays usable without a device. Where NCCL is missing or refuses, or
  /// the device cannot run the kernels, calls go another way, which rank 0 logs (docs/gpu.md).
  void use_device(int device, const gpu::Libraries* libraries = nullptr);
  /// Null before `use_device`.
  [[nodiscard]] const std::shared_ptr<DeviceChannel>& device() const noexcept { return device_; }

  /// Called about every 50 ms by threads that wait in this context; an
  /// exception from it ends the wait (Ctrl-C in interpreters).
  void set_interrupt_check(std::function<void()> check);

  /// Leaves the group: calls in flight fail here, peers that wait for this
  /// rank are told. Idempotent; the destructor does the same, and so does
  /// MPI_Finalize, by whomever it is called (at `std::exit` too).
  void close() noexcept;

  [[nodiscard]] Engine& engine() noexcept { return *engine_; }
  [[nodiscard]] const Settings& settings() const noexcept { return settings_; }
  [[nodiscard]] const Logger& log() const noexcept { return log_; }
  /// Null when no timeline is written.
  [[nodiscard]] Timeline* timeline() const noexcept { return timeline_.get(); }
  /// Null when no flight record is kept.
  [[nodiscard]] FlightRecorder* flight_recorder() const noexcept { return recorder_.get(); }
  [[nodiscard]] Bootstrap& bootstrap() noexcept { return *bootstrap_; }

  /// Zeroed memory for a buffer that the other ranks of this host reach: sums in it, in place, take
  /// no copies (docs/ops.md). Ordinary memory where this rank shares none. Lives as long as a copy of
  /// the pointer, also after the context. A fork of the process shares it: what one writes the other
  /// one sees. @throws TransportError when memory is short.
  [[nodiscard]] std::shared_ptr<std::byte> allocate_shared(std::size_t bytes);
  /// What it comes from; null where this rank shares no memory with others.
  [[nodiscard]] const std::shared_ptr<shm::HostMemory>& shared_memory() const noexcept {
    return shared_memory_;
  }

  /// What windows stand on. Collective the first time.
  [[nodiscard]] OneSided& one_sided();

 private:
  Context(std::shared_ptr<Bootstrap> bootstrap, const Settings& settings);
  /// @throws InvalidArgument for one that cannot be written.
  void open_files();
  /// Collective. @param problem why this rank cannot take part; empty if it can.
  void connect(const std::string& problem);

  std::shared_ptr<Bootstrap> bootstrap_;
  int rank_;
  int size_;
  Settings settings_;
  Logger log_;
  MachineLayout hosts_;
  MachineLayout machines_;
  std::shared_ptr<Timeline> timeline_;
  std::shared_ptr<FlightRecorder> recorder_;
  /// Shared with all copies.
  std::shared_ptr<Relatives> relatives_;
  std::shared_ptr<Engine> engine_;
  std::shared_ptr<shm::HostMemory> shared_memory_;
  std::shared_ptr<OneSided> one_sided_;
  std::shared_ptr<DeviceChannel> device_;
  std::shared_ptr<void> shutdown_guard_;
};

}  // namespace bluefog
