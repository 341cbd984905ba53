#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>

#include "bluefog_cpp/log.hpp"
#include "bluefog_cpp/machine_layout.hpp"
#include "bluefog_cpp/membership.hpp"
#include "bluefog_cpp/settings.hpp"

/// The runtime: ranks that find each other, the memory and calls by which they exchange values, and
/// the matrices of weights by which they average.
namespace bluefog {

class Bootstrap;
class ContextCore;
class Store;
struct StorePlace;

/// A group of ranks that communicate: all state of the runtime hangs from it.
///
/// Ranks make the same calls in the same order on a context. A program that
/// communicates from several threads gives each its own: `duplicate`. Several
/// contexts, also in one process (threads as ranks), do not disturb each
/// other. A fork of the process is no rank: its calls are StateErrors, and its end is silent. Held
/// by `shared_ptr`; work in flight does not keep it, but fails when it ends.
class Context : public std::enable_shared_from_this<Context> {
 public:
  /// Collective. The ranks of this launch, or this process alone when no launcher started it: by
  /// `bfrun`'s own marker, else Open MPI's or PMIx's variables (`mpirun`, `srun --mpi=pmix`), else
  /// RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, else Slurm's. Two that name different ranks are
  /// an error. torchrun's processes need a store that is handed over, as below. Settings come from
  /// the environment.
  /// @param interrupt_check called about every 50 ms while this rank waits for the others to start;
  ///   its exception ends that wait. The first start of a process may then be waited for again, by
  ///   another call, as after a TimeoutError.
  /// @throws InvalidArgument for a malformed setting, UnsupportedError for several ranks that
  ///   cannot be joined (MPI is not built in, or does not know their launcher), StateError in a
  ///   fork of a rank and in programs that a rank has started, TransportError, TimeoutError.
  static std::shared_ptr<Context> create();
  /// @copydoc create()
  static std::shared_ptr<Context> create(std::function<void()> interrupt_check);
  /// @copydoc create()
  /// @param settings in place of those from the environment.
  static std::shared_ptr<Context> create(const Settings& settings,
                                         std::function<void()> interrupt_check = {});

  /// Collective over the ranks of `bootstrap`. Settings may differ between
  /// ranks only in what concerns one rank (log, host identity).
  /// @throws InvalidArgument for settings that differ, on all ranks; for a timeline or flight
  ///   record that cannot be written or another number of ranks than BLUEFOG_EXPECT_SIZE, on the
  ///   ranks that have it, PeerFailure on the others.
  static std::shared_ptr<Context> create(std::shared_ptr<Bootstrap> bootstrap,
                                         const Settings& settings);

  /// Collective over the ranks of `place.size` processes that meet in `store`
  /// (bluefog_cpp/store.hpp), without MPI. Ranks on several hosts reach each other over TCP.
  /// @param interrupt_check as above.
  /// @throws as `make_store_bootstrap` (bluefog_cpp/store_bootstrap.hpp) and as above;
  ///   UnsupportedError where a launcher's variables (bfrun's, torchrun's or RANK and WORLD_SIZE, Open
  ///   MPI's, PMI's) name another rank or size.
  static std::shared_ptr<Context> create(std::shared_ptr<Store> store, const StorePlace& place,
                                         const Settings& settings,
                                         std::function<void()> interrupt_check = {});

  /// Does as `close` where that has not been called.
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  /// This rank's number, 0 to size() - 1.
  [[nodiscard]] int rank() const noexcept { return rank_; }
  /// The number of ranks of this context, on all machines together.
  [[nodiscard]] int size() const noexcept { return size_; }

  /// Ranks by host: which ones share memory.
  [[nodiscard]] const MachineLayout& hosts() const noexcept;
  /// Ranks by machine: hosts, or parts of them under `BLUEFOG_NODES_PER_MACHINE`.
  [[nodiscard]] const MachineLayout& machines() const noexcept;
  /// This rank's place among those of its machine (`machines`), 0 to local_size() - 1.
  [[nodiscard]] int local_rank() const;
  /// The number of ranks of this rank's machine (`machines`).
  [[nodiscard]] int local_size() const;

  /// Name of the transport to `peer`: "shm", "mpi", "tcp"; "self" for this rank.
  /// @throws InvalidArgument if `peer` is no rank.
  [[nodiscard]] std::string_view transport_to(int peer) const;

  /// Whether some ranks reach each other over a network, or as if.
  [[nodiscard]] bool uses_network() const noexcept;

  /// The settings that the context was made with, on this rank.
  [[nodiscard]] const Settings& settings() const noexcept;
  /// The logger of this rank's messages, by `Settings::log_level`; its lines name the rank.
  [[nodiscard]] const Logger& log() const noexcept;

  /// Collective, a call in the order of this context's others. An independent context over the same
  /// ranks, for another thread.
  /// @throws StateError after `close`. @throws UnsupportedError where ranks use MPI that was
  /// initialised for one thread at a time. @throws MismatchError, PeerFailure or TimeoutError where
  /// not all ranks come to it; this context stays usable as after other calls.
  [[nodiscard]] std::shared_ptr<Context> duplicate();

  /// Collective, in no order with this context's calls: all ranks make it after one of them has
  /// left a call out, in which others have timed out. Calls in flight end with a StateError, and
  /// all ranks go on with the same call, behind the one that the furthest of them would make next.
  /// Ranks that wait for one that has come here get PeerFailure. Copies of this context are not
  /// touched. Cost: one all-gather of the start-up.
  /// @throws StateError on all ranks where a call that only some of them have made has changed a
  ///   buffer of its caller in place, which it names: their values differ. Ranks stay
  ///   apart then: make a new context. Also after `close`.
  /// @throws PeerFailure where a rank has left or died, some 2 s later. @throws TimeoutError where
  ///   not all ranks come to it within BLUEFOG_TIMEOUT and a minute at least. It cannot be called
  ///   again then.
  void resync();

  /// Collective over the ranks that live, in no order with calls: a new context over them, numbered
  /// anew in the same order, after one of them has been lost (`RankLostError`) or a link between
  /// some. This context, and all copies of it, end here and on the others, which have a second for
  /// the calls they are in where no rank is lost: calls in flight and to come are RankLostErrors,
  /// windows are gone, memory of `allocate_shared` stays as long as its pointers but is no longer
  /// shared; make copies, windows and such memory anew. The new one has no device.
  ///
  /// Ranks whose process has ended, whose host or link is lost, or who have left are not waited
  /// for; the others for `BLUEFOG_TIMEOUT`, or a tenth of it where calls have waited for them until
  /// then, after which they are left out. A rank that is lost meanwhile is left out as well. What
  /// an interrupted call has made of its callers' buffers is theirs to mend: other ranks may have
  /// seen it to its end.
  /// Cost: a start without the launcher's part, some 10 ms on one host.
  /// @throws UnsupportedError where ranks cannot go on without one of them: over MPI, and over a
  ///   store that ends with a rank. @throws StateError on a rank that the others have left out
  ///   (it was stopped, say), and after `close`. @throws TransportError where the store fails.
  [[nodiscard]] std::shared_ptr<Context> shrink();
  /// `shrink` at a place at which all ranks are, that takes in the processes which wait to join:
  /// they have the last numbers. Without one it is a `shrink`; a process that cannot join (other
  /// settings, an end on the way) is turned away, and the others go on without it. A new rank finds
  /// nothing of what the others have: `optimizers::DistributedOptimizer` gives it all it needs.
  ///
  /// On a process that waits (`is_applicant`): returns when the others have taken it in, however
  /// long that takes.
  /// @throws as `shrink`. @throws StateError on a process that the ranks turn away, or when they
  ///   have left.
  [[nodiscard]] std::shared_ptr<Context> regroup();
  /// Whether processes wait to join. Local. Cost: some messages to the store in which ranks met.
  [[nodiscard]] bool has_applicants();
  /// Whether this process waits to join (`BLUEFOG_JOIN`): it is rank 0 of 1 until `regroup`.
  [[nodiscard]] bool is_applicant() const noexcept;
  /// The numbers that this context's ranks had in the launch, and the ranks that were lost.
  [[nodiscard]] const Membership& membership() const noexcept;

  /// Collective, a call in the order of this context's others. From now on calls of this context
  /// take buffers on that CUDA device, each rank's own, beside those on the CPU. Copies of a
  /// context do not take the device over. Calls go another way, which rank 0 logs, where NCCL is
  /// missing or refuses, or the device cannot run the kernels (docs/gpu.md).
  /// @throws StateError after `close` or a second time. @throws UnsupportedError where this build
  ///   or machine has no CUDA, InvalidArgument for a device that is not there, CudaError; on the
  ///   other ranks PeerFailure. The context stays usable without a device.
  void use_device(int device);
  /// The device of `use_device`; nothing before.
  [[nodiscard]] std::optional<int> device() const noexcept;

  /// Called about every 50 ms by threads that wait in this context; an
  /// exception from it ends the wait (Ctrl-C in interpreters).
  void set_interrupt_check(std::function<void()> check);

  /// Zeroed memory for a buffer that the other ranks of this host reach: sums in it, in place, take
  /// no copies (docs/ops.md). Ordinary memory where this rank shares none. Lives as long as a copy
  /// of the pointer, also after the context. A fork of the process shares it: what one writes the
  /// other one sees. @throws TransportError when memory is short.
  [[nodiscard]] std::shared_ptr<std::byte> allocate_shared(std::size_t bytes);

  /// Leaves the group: calls in flight fail here, peers that wait for this
  /// rank are told. Idempotent; the destructor does the same, and so does
  /// MPI_Finalize, by whomever it is called (at `std::exit` too).
  void close() noexcept;

  /// The part that operations stand on (bluefog_cpp/context/context_core.hpp); programs need none
  /// of it.
  [[nodiscard]] ContextCore& core() const noexcept { return *core_; }

 private:
  explicit Context(std::unique_ptr<ContextCore> core);
  /// Collective. @param problem why this rank cannot take part; empty if it can.
  void connect(const std::string& problem);
  /// Does `shrink`, and `regroup`, which `admits` processes that wait.
  [[nodiscard]] std::shared_ptr<Context> among_the_living(bool admits);

  std::unique_ptr<ContextCore> core_;
  int rank_;
  int size_;
  std::shared_ptr<void> shutdown_guard_;
};

}  // namespace bluefog
