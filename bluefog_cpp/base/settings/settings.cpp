#include "bluefog_cpp/settings.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <limits>
#include <tuple>
#include <utility>

#include "bluefog_cpp/base/nearest_name.hpp"
#include "bluefog_cpp/base/settings/setting_values.hpp"
#include "bluefog_cpp/error.hpp"

namespace bluefog {

namespace {

constexpr std::string_view kPrefix = "BLUEFOG_";

// One row per variable: what the documentation says, and how its value is read.
struct Row {
  SettingInfo info;
  void (*read)(Settings&, std::string_view name, std::string_view value);
};

template <bool Settings::*kFlag>
void read_flag(Settings& settings, std::string_view name, std::string_view value) {
  settings.*kFlag = parse_flag(name, value);
}

constexpr std::chrono::nanoseconds kSecond = std::chrono::seconds(1);
constexpr std::chrono::nanoseconds kMillisecond = std::chrono::milliseconds(1);
constexpr int kMaxCount = 1 << 20;

constexpr std::array kRows{
    Row{{"BLUEFOG_TIMEOUT", "number", "s", "600",
         "A blocking wait that lasts longer ends in a TimeoutError, also the start of all ranks, for "
         "which 1 s is too short on a busy machine. 0 is never."},
        [](Settings& s, std::string_view name, std::string_view value) {
          s.timeout = parse_duration(name, value, kSecond, "seconds", 0.0);
        }},
    Row{{"BLUEFOG_STALL_WARNING", "number", "s", "60",
         "A blocking wait that lasts longer logs a warning that names the rank waited for. "
         "0 is never."},
        [](Settings& s, std::string_view name, std::string_view value) {
          s.stall_warning = parse_duration(name, value, kSecond, "seconds", 0.0);
        }},
    Row{{"BLUEFOG_ON_FAILURE", "raise, shrink", "", "raise",
         "What the end of a rank means for the others. raise: calls that need it end in a PeerFailure; "
         "shrink: all calls end in a RankLostError, and distributed optimizers go on with the ranks that "
         "are left, as programs do by `shrink()`. Equal on all ranks."},
        [](Settings& s, std::string_view name, std::string_view value) {
          s.on_failure = parse_on_failure(name, value);
        }},
    Row{{"BLUEFOG_HEARTBEAT", "number", "s", "0",
         "A process that shows no sign of life for so long while it is waited for counts as lost: it is "
         "stopped, or its host or the link to it is gone. Processes that compute, sleep or wait show "
         "some. 0: waits for such a one end by BLUEFOG_TIMEOUT and BLUEFOG_TCP_SILENCE alone. Not over "
         "MPI. Equal on all ranks."},
        [](Settings& s, std::string_view name, std::string_view value) {
          s.heartbeat = parse_duration(name, value, kSecond, "seconds", 0.0);
          constexpr auto kLeast = std::chrono::milliseconds(200);
          if (s.heartbeat.count() != 0 && s.heartbeat < kLeast) {
            throw InvalidArgument(fmt::format(
                "{}={}: expected 0, or 0.2 seconds or more, found less: a busy machine may give a "
                "process no core for so long",
                name, value));
          }
        }},
    Row{{"BLUEFOG_JOIN", "flag", "", "0",
         "This process asks ranks that are running to take it in, as `bfrun --respawn` has those do that "
         "it starts again: it is alone until then. They run with BLUEFOG_ON_FAILURE=shrink."},
        read_flag<&Settings::joins>},
    Row{{"BLUEFOG_LOG_LEVEL", "trace, debug, info, warning, error, fatal", "", "warning",
         "Lowest level of message that goes to standard error."},
        [](Settings& s, std::string_view name, std::string_view value) {
          s.log_level = parse_log_level(name, value);
        }},
    Row{{"BLUEFOG_LOG_HIDE_TIME", "flag", "", "0", "Leaves the time out of log lines."},
        read_flag<&Settings::log_hide_time>},
    Row{{"BLUEFOG_TIMELINE", "text", "", "",
         "Prefix of the timeline files: each rank writes a Chrome trace to `<prefix><rank>.json`. No "
         "context is made where one cannot."},
        [](Settings& s, std::string_view, std::string_view value) { s.timeline = value; }},
    Row{{"BLUEFOG_FLIGHT_RECORDER", "text", "", "",
         "Prefix of the flight records: a rank whose call stalls or fails writes its last calls, "
         "and whom it waits for, to `<prefix><rank>.json`; `bftrace stall` reads them. No context is "
         "made where one cannot."},
        [](Settings& s, std::string_view, std::string_view value) { s.flight_recorder = value; }},
    Row{{"BLUEFOG_FUSION_THRESHOLD", "integer", "bytes", "26214400",
         "Size up to which parameters are fused into one bucket; where buckets leave in the backward "
         "pass at most 1 MiB, of gradient all-reduce 2 MiB behind a first one of 1 MiB. The default "
         "is that of PyTorch's DistributedDataParallel, 25 MiB. 0 gives each parameter its own bucket."},
        [](Settings& s, std::string_view name, std::string_view value) {
          s.fusion_threshold_bytes =
              parse_integer<std::int64_t>(name, value, 0, std::numeric_limits<std::int64_t>::max());
        }},
    Row{{"BLUEFOG_EXPECT_SIZE", "integer", "ranks", "0",
         "Number of ranks that the start must find: another one is an error before anything is "
         "trained. 0 takes any."},
        [](Settings& s, std::string_view name, std::string_view value) {
          s.expect_size = parse_integer(name, value, 0, kMaxCount);
        }},
    Row{{"BLUEFOG_HOST_ID", "text", "", "",
         "Name of this rank's host. Ranks with different names never share memory. Unset, it is "
         "found out."},
        [](Settings& s, std::string_view, std::string_view value) { s.host_id = value; }},
    Row{{"BLUEFOG_NODES_PER_MACHINE", "integer", "ranks", "0",
         "Splits each host into virtual machines of that many ranks, a divisor of each host's number "
         "of ranks, for hierarchical runs on one host. 0 is one machine per host."},
        [](Settings& s, std::string_view name, std::string_view value) {
          s.nodes_per_machine = parse_integer(name, value, 0, kMaxCount);
        }},
    Row{{"BLUEFOG_TRANSPORT", "auto, mpi", "", "auto",
         "auto: shared memory inside a host and the network between hosts; mpi: the network everywhere, "
         "which BLUEFOG_NETWORK chooses."},
        [](Settings& s, std::string_view name, std::string_view value) {
          s.transport = parse_transport(name, value);
        }},
    Row{{"BLUEFOG_NETWORK", "auto, mpi, tcp", "", "auto",
         "What moves bytes where ranks share no memory. auto: MPI where it started the ranks, TCP "
         "elsewhere. Equal on all ranks."},
        [](Settings& s, std::string_view name, std::string_view value) {
          s.network = parse_network(name, value);
        }},
    Row{{"BLUEFOG_TCP_INTERFACE", "text", "", "",
         "Network interface, or one of its addresses, over which the TCP transport is reached. Unset, "
         "all of them."},
        [](Settings& s, std::string_view, std::string_view value) { s.tcp_interface = value; }},
    Row{{"BLUEFOG_TCP_PORTS", "port or FIRST-LAST", "", "0",
         "Ports that the TCP transport listens on: one for each rank of a host and context, and one "
         "more where there are windows. 0 is any."},
        [](Settings& s, std::string_view name, std::string_view value) {
          std::tie(s.tcp_first_port, s.tcp_last_port) = parse_ports(name, value);
        }},
    Row{{"BLUEFOG_TCP_SOCKET_BYTES", "integer", "bytes", "0",
         "What the system buffers on a connection of the TCP transport, each way. 0 is as much as it "
         "thinks right."},
        [](Settings& s, std::string_view name, std::string_view value) {
          s.tcp_socket_bytes = parse_integer(name, value, 0, 1 << 30);
        }},
    Row{{"BLUEFOG_TCP_SILENCE", "number", "s", "20",
         "A host that answers nothing for so long counts as gone. What was lost is sent again in "
         "growing intervals: an outage of up to half as long does no harm. Ranks that only rest "
         "answer."},
        [](Settings& s, std::string_view name, std::string_view value) {
          s.tcp_silence = parse_duration(name, value, kSecond, "seconds", 0.1);
        }},
    Row{{"BLUEFOG_SHM_CHUNK_BYTES", "integer", "bytes", "131072",
         "Size of one slot of the shared-memory transport. Equal on all ranks."},
        [](Settings& s, std::string_view name, std::string_view value) {
          s.shm_chunk_bytes = parse_chunk(name, value);
        }},
    Row{{"BLUEFOG_SHM_SLOTS", "integer", "slots", "16",
         "Slots that each rank owns in the shared-memory transport."},
        [](Settings& s, std::string_view name, std::string_view value) {
          s.shm_slots = parse_integer(name, value, 2, kMaxCount);
        }},
    Row{{"BLUEFOG_SHM_COPY", "auto, cache, stream", "", "auto",
         "How payload is written to shared memory. cache: through the writer's cache; stream: "
         "around it, for cores that share none; auto: what is measured to be faster."},
        [](Settings& s, std::string_view name, std::string_view value) {
          s.shm_copy = parse_shm_copy(name, value);
        }},
    Row{{"BLUEFOG_MPI_CHUNK_BYTES", "integer", "bytes", "61440",
         "Size of one message of the MPI transport. Equal on all ranks."},
        [](Settings& s, std::string_view name, std::string_view value) {
          s.mpi_chunk_bytes = parse_chunk(name, value);
        }},
    Row{{"BLUEFOG_MPI_DEPTH", "integer", "messages", "32",
         "Messages in flight per pair of ranks and direction in the MPI transport. Equal on all "
         "ranks."},
        [](Settings& s, std::string_view name, std::string_view value) {
          s.mpi_depth = parse_integer(name, value, 1, 1024);
        }},
    Row{{"BLUEFOG_POLL_PERIOD", "number", "ms", "1",
         "How often the thread that serves windows looks at the network while it is quiet."},
        [](Settings& s, std::string_view name, std::string_view value) {
          s.poll_period = parse_duration(name, value, kMillisecond, "milliseconds", 0.001);
        }},
    Row{{"BLUEFOG_SHARED_BUCKETS", "flag", "", "1",
         "Optimizers keep parameters and gradients in memory that the ranks of a host share, where "
         "sums take no copies. 0 keeps them in memory of the rank alone: a fork of the process then "
         "has parameters of its own."},
        read_flag<&Settings::shared_buckets>},
    Row{{"BLUEFOG_SYNCHRONISATION", "auto, component, neighbours", "", "auto",
         "Whom `neighbor_allreduce` in place waits for, from 128 KiB on, among more than 4 ranks from "
         "32 KiB for each. component: all ranks of a host that the step ties together, each of which "
         "forms its share of all results where the buffers lie, if these are in shared memory; "
         "neighbours: those it hears alone, by messages; auto: as component, unless these waits cost "
         "more than messages. One rank with neighbours suffices."},
        [](Settings& s, std::string_view name, std::string_view value) {
          s.synchronisation = parse_synchronisation(name, value);
        }},
    Row{{"BLUEFOG_RESULT_CACHE", "integer", "bytes", "268435456",
         "Memory of large results that are no longer in use which the Python package keeps for "
         "results to come, at most. 0 gives it back at once."},
        [](Settings& s, std::string_view name, std::string_view value) {
          s.result_cache_bytes =
              parse_integer<std::int64_t>(name, value, 0, std::numeric_limits<std::int64_t>::max());
        }},
    Row{{"BLUEFOG_OPS_ON_CPU", "flag", "", "0",
         "Calls with buffers on a GPU go through the host's memory, as those on the CPU do, even "
         "where another way is there. Equal on all ranks."},
        read_flag<&Settings::ops_on_cpu>},
    Row{{"BLUEFOG_DEVICE_WAY", "auto, nccl, peer, host", "", "auto",
         "How calls with buffers on a GPU go. auto: by NCCL, where it does not serve by copies between "
         "the GPUs of one host, else through the host's memory; nccl, peer: by NCCL or those copies "
         "alone, else through the host's memory; host: as BLUEFOG_OPS_ON_CPU. Equal on all ranks."},
        [](Settings& s, std::string_view name, std::string_view value) {
          s.device_way = parse_device_way(name, value);
        }},
    Row{{"BLUEFOG_ALLGATHER_BY_MPI", "flag", "", "0", "As BLUEFOG_OPS_ON_CPU, for `allgather`."},
        read_flag<&Settings::allgather_by_mpi>},
    Row{{"BLUEFOG_ALLREDUCE_BY_MPI", "flag", "", "0", "As BLUEFOG_OPS_ON_CPU, for `allreduce`."},
        read_flag<&Settings::allreduce_by_mpi>},
    Row{{"BLUEFOG_BROADCAST_BY_MPI", "flag", "", "0", "As BLUEFOG_OPS_ON_CPU, for `broadcast`."},
        read_flag<&Settings::broadcast_by_mpi>},
    Row{{"BLUEFOG_HIERARCHICAL_NEIGHBOR_ALLREDUCE_BY_MPI", "flag", "", "0",
         "As BLUEFOG_OPS_ON_CPU, for `hierarchical_neighbor_allreduce`."},
        read_flag<&Settings::hierarchical_neighbor_allreduce_by_mpi>},
    Row{{"BLUEFOG_NEIGHBOR_ALLGATHER_BY_MPI", "flag", "", "0",
         "As BLUEFOG_OPS_ON_CPU, for `neighbor_allgather`."},
        read_flag<&Settings::neighbor_allgather_by_mpi>},
    Row{{"BLUEFOG_NEIGHBOR_ALLREDUCE_BY_MPI", "flag", "", "0",
         "As BLUEFOG_OPS_ON_CPU, for `neighbor_allreduce`."},
        read_flag<&Settings::neighbor_allreduce_by_mpi>},
    Row{{"BLUEFOG_WIN_ON_CPU", "flag", "", "0",
         "Windows of tensors on a GPU keep their buffers on the host, even where they could lie on "
         "GPUs. Equal on all ranks."},
        read_flag<&Settings::win_on_cpu>},
    Row{{"BLUEFOG_WIN_OPS_BY_MPI", "flag", "", "0", "As BLUEFOG_WIN_ON_CPU."},
        read_flag<&Settings::win_ops_by_mpi>},
};

constexpr std::array<std::string_view, 6> kIgnored{
    "BLUEFOG_CYCLE_TIME",
    "BLUEFOG_MAX_WIN_SENT_LENGTH",
    "BLUEFOG_NUM_FINALIZER_THREADS",
    "BLUEFOG_PAIR_GOSSIP_BY_MPI",
    "BLUEFOG_SLEEP_USEC_FOR_WIN_PASSIVE",
    "BLUEFOG_WIN_ON_GPU",
};

std::string unknown_text(const std::string& name) {
  std::vector<std::string_view> known;  // without what all begin with: that is no sign of nearness
  for (const Row& row : kRows) {
    known.push_back(std::string_view(row.info.name).substr(kPrefix.size()));
  }
  const std::string_view nearest =
      nearest_name(known, std::string_view(name).substr(kPrefix.size()));
  return fmt::format("{} is not known{}", name,
                     nearest.empty() ? "" : fmt::format("; did you mean {}{}?", kPrefix, nearest));
}

/// Variables of the same family that set-up and the launcher read, not a rank.
constexpr std::array<std::string_view, 3> kOfOtherPrograms{"BLUEFOG_VENV", "BLUEFOG_TORCH_ROOT",
                                                           "BLUEFOG_MPIRUN"};

void read_variable(Settings& settings, const std::string& name, const std::string& value) {
  if (std::find(kOfOtherPrograms.begin(), kOfOtherPrograms.end(), name) != kOfOtherPrograms.end()) {
    return;
  }
  const auto row =
      std::find_if(kRows.begin(), kRows.end(), [&](const Row& r) { return r.info.name == name; });
  if (row != kRows.end()) {
    row->read(settings, name, value);
  } else if (std::find(kIgnored.begin(), kIgnored.end(), name) != kIgnored.end()) {
    settings.notices.push_back(fmt::format("{} has no meaning here and is ignored", name));
  } else {
    settings.notices.push_back(unknown_text(name));
  }
}

std::map<std::string, std::string> own_variables() {
  std::map<std::string, std::string> variables;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const std::size_t equals = text.find('=');
    if (text.starts_with(kPrefix) && equals != std::string_view::npos) {
      variables.emplace(text.substr(0, equals), text.substr(equals + 1));
    }
  }
  return variables;
}

/// @param on_problem called where a variable cannot be read, while its exception is handled.
Settings read_all(const std::map<std::string, std::string>& variables,
                  void (*on_problem)(Settings&, const InvalidArgument&)) {
  Settings settings;
  for (const auto& [name, value] : variables) {
    if (!name.starts_with(kPrefix) || value.empty()) {
      continue;
    }
    try {
      read_variable(settings, name, value);
    } catch (const InvalidArgument& error) {
      on_problem(settings, error);
    }
  }
  return settings;
}

}  // namespace

Settings Settings::from_variables(const std::map<std::string, std::string>& variables) {
  return read_all(variables, [](Settings&, const InvalidArgument&) { throw; });
}

Settings Settings::from_environment() { return from_variables(own_variables()); }

Settings Settings::for_start() {
  return read_all(own_variables(), [](Settings& settings, const InvalidArgument& error) {
    settings.problem += (settings.problem.empty() ? "" : "; ") + std::string(error.what());
  });
}

std::vector<SettingInfo> setting_table() {
  std::vector<SettingInfo> table;
  std::transform(kRows.begin(), kRows.end(), std::back_inserter(table),
                 [](const Row& row) { return row.info; });
  return table;
}

std::vector<std::string_view> ignored_variables() { return {kIgnored.begin(), kIgnored.end()}; }

std::string settings_markdown() {
  std::string page =
      "# Settings\n\n"
      "Environment variables, read once when a context is made. An empty value counts as unset.\n"
      "A value that cannot be read is an `InvalidArgument`; an unknown `BLUEFOG_*` name is a\n"
      "warning.\n\n"
      "| variable | type | unit | default | meaning |\n|---|---|---|---|---|\n";
  for (const Row& row : kRows) {
    page += fmt::format("| `{}` | {} | {} | {} | {} |\n", row.info.name, row.info.type,
                        row.info.unit, row.info.default_value, row.info.meaning);
  }
  page +=
      "\nAccepted for scripts written for BlueFog, without effect; each is said to be ignored "
      "once:\n\n";
  for (const std::string_view name : kIgnored) {
    page += fmt::format("- `{}`\n", name);
  }
  return page;
}

}  // namespace bluefog
