#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "bluefog_cpp/log.hpp"

namespace bluefog {

/// The transports that an edge may use (`BLUEFOG_TRANSPORT`).
enum class TransportChoice {
  Auto,  ///< shared memory inside a host, the network between hosts
  Mpi,   ///< the network (`NetworkChoice`) everywhere, also inside a host
};

/// The network that moves bytes where ranks share no memory (`BLUEFOG_NETWORK`).
enum class NetworkChoice {
  Auto,  ///< MPI where it started the ranks, TCP elsewhere
  Mpi,   ///< MPI's messages
  Tcp,   ///< connections of this library's own
};

/// The ways that calls with buffers on a device may go (`BLUEFOG_DEVICE_WAY`).
enum class DeviceWayChoice {
  /// NCCL, else from device to device on one host, else through the host's memory.
  Auto,
  Nccl,  ///< NCCL, else through the host's memory
  Peer,  ///< from device to device on one host, else through the host's memory
  Host,  ///< through the host's memory, as the calls on the CPU
};

/// Whom a neighbour all-reduce in place waits for (`BLUEFOG_SYNCHRONISATION`).
enum class SynchronisationChoice {
  Auto,  ///< `Component`, unless the ranks' own times show that waiting costs more than it saves
  /// All ranks that the step ties together, where each forms its share of all results in the
  /// buffers, as far as these lie in memory that all of them reach.
  Component,
  Neighbors,  ///< the ranks it hears alone, by messages
};

/// The end of a rank, for the others (`BLUEFOG_ON_FAILURE`).
enum class OnFailure {
  Raise,   ///< calls that need it raise `PeerFailure`
  Shrink,  ///< all calls raise `RankLostError`, and optimizers go on without it (`Context::shrink`)
};

/// The way in which payload is written to shared memory (`BLUEFOG_SHM_COPY`).
enum class ShmCopy {
  Auto,    ///< whichever is measured to be faster
  Cache,   ///< through the writer's cache
  Stream,  ///< around the writer's cache
};

/// The settings from the environment: each `BLUEFOG_*` variable, parsed once.
///
/// A value without ties to the process: make one, change fields, hand it to a
/// context. Fields are named after their variables; `setting_table()` says what
/// each means.
struct Settings {
  std::chrono::nanoseconds timeout = std::chrono::seconds(600);  ///< longest wait; zero: for ever
  std::string_view timeout_name = "BLUEFOG_TIMEOUT";             ///< what sets it, for messages
  /// A longer wait is logged; zero: never.
  std::chrono::nanoseconds stall_warning = std::chrono::seconds(60);
  OnFailure on_failure = OnFailure::Raise;  ///< when a rank is lost; equal on all ranks
  bool joins = false;                       ///< asks ranks that run to be taken in
  std::chrono::nanoseconds heartbeat{0};    ///< longest silence of a process; zero: any; equal
  LogLevel log_level = LogLevel::Warning;   ///< lower ones are not shown
  bool log_hide_time = false;               ///< leaves the time out of log lines
  std::string timeline;                     ///< file name prefix; empty: no timeline
  std::string flight_recorder;              ///< file name prefix; empty: no flight record
  std::int64_t fusion_threshold_bytes = 25 << 20;  ///< most of a bucket; zero: one per parameter
  int expect_size = 0;        ///< number of ranks that the start must find; zero: any
  std::string host_id;        ///< ranks of other names share no memory; empty: found out
  int nodes_per_machine = 0;  ///< splits hosts into machines of so many ranks; zero: no
  TransportChoice transport = TransportChoice::Auto;  ///< between any two ranks
  NetworkChoice network = NetworkChoice::Auto;        ///< equal on all ranks
  std::string tcp_interface;                          ///< empty: all
  int tcp_first_port = 0;                             ///< of those to listen on; zero to zero: any
  int tcp_last_port = 0;                              ///< likewise, itself among them
  int tcp_socket_bytes = 0;                           ///< zero: as the system has it
  /// A host that answers nothing for so long counts as gone.
  std::chrono::nanoseconds tcp_silence = std::chrono::seconds(20);
  std::int64_t shm_chunk_bytes = 128 << 10;  ///< a slot of shared memory; equal on all ranks
  int shm_slots = 16;                        ///< slots of each rank in shared memory
  ShmCopy shm_copy = ShmCopy::Auto;          ///< how payload gets into a slot
  /// A message of MPI; equal on all ranks. Below 64 KiB together with its head: up to that size
  /// Open MPI sends over TCP at once. A longer message waits for the reader's answer, which waits
  /// behind what the reader sends.
  std::int64_t mpi_chunk_bytes = 60 << 10;
  int mpi_depth = 32;  ///< messages under way per pair of ranks and direction; equal on all ranks
  /// The time between looks of the thread that serves windows at a quiet network.
  std::chrono::nanoseconds poll_period = std::chrono::milliseconds(1);
  bool shared_buckets = true;  ///< optimizers' buckets lie in memory that a host's ranks share
  SynchronisationChoice synchronisation = SynchronisationChoice::Auto;  ///< this rank's own
  std::int64_t result_cache_bytes = 256 << 20;  ///< most that Python keeps of unused results
  bool ops_on_cpu = false;  ///< calls on a device go through the host; equal on all ranks
  DeviceWayChoice device_way = DeviceWayChoice::Auto;  ///< equal on all ranks
  /// @name One operation's `ops_on_cpu`
  /// @{

  /// True has that operation's calls on a device go through the host; equal on all ranks.
  bool allgather_by_mpi = false;
  bool allreduce_by_mpi = false;
  bool broadcast_by_mpi = false;
  bool hierarchical_neighbor_allreduce_by_mpi = false;
  bool neighbor_allgather_by_mpi = false;
  bool neighbor_allreduce_by_mpi = false;
  /// @}
  bool win_on_cpu = false;      ///< windows of tensors on a device have their buffers on the host
  bool win_ops_by_mpi = false;  ///< likewise

  /// Notes for the user about the variables that were read: those without meaning here, and unknown
  /// ones with the nearest known name. One sentence each; the context logs them once, on rank 0.
  std::vector<std::string> notices;

  /// What is wrong with variables that could not be read; empty: nothing. A start with such settings
  /// fails on all ranks, and names this one.
  std::string problem;

  /// Reads this process's environment.
  /// @throws InvalidArgument that names variable, value and what was expected.
  [[nodiscard]] static Settings from_environment();

  /// The same for a start, of whose failure the other ranks have to hear: variables that cannot be
  /// read stay at their defaults and are told in `problem`.
  [[nodiscard]] static Settings for_start();

  /// Reads `variables` (name → value) in place of the environment; names that
  /// do not start with `BLUEFOG_` are skipped, empty values count as unset.
  /// @throws InvalidArgument as above.
  [[nodiscard]] static Settings from_variables(const std::map<std::string, std::string>& variables);
};

/// One variable of the table from which the documentation is made.
struct SettingInfo {
  std::string_view name;  ///< with BLUEFOG_ in front
  std::string_view type;  ///< "number", "integer", "flag", "text", or the words to choose from
  std::string_view unit;  ///< empty if it has none
  std::string_view default_value;  ///< as it would be written; empty: unset
  std::string_view meaning;        ///< in sentences
};

/// Every variable that `Settings` understands, in the order of its fields.
[[nodiscard]] std::vector<SettingInfo> setting_table();

/// BlueFog's variables that are accepted here and have no effect.
[[nodiscard]] std::vector<std::string_view> ignored_variables();

/// The page docs/settings.md.
[[nodiscard]] std::string settings_markdown();

}  // namespace bluefog
