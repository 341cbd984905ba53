#include "tools/bfrun/job/own/own_job.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bluefog_cpp/base/quoted.hpp"
#include "bluefog_cpp/base/system_limits.hpp"
#include "bluefog_cpp/store/ended_ranks.hpp"
#include "bluefog_cpp/store/store_server.hpp"
#include "tools/bfrun/elastic/far_start.hpp"
#include "tools/bfrun/elastic/host_discovery.hpp"
#include "tools/bfrun/elastic/slots.hpp"
#include "tools/bfrun/job/ears.hpp"
#include "tools/bfrun/job/monitor/job_monitor.hpp"
#include "tools/bfrun/job/own/own_launcher.hpp"
#include "tools/bfrun/job/pipe.hpp"
#include "tools/bfrun/job/process.hpp"
#include "tools/bfrun/numbers.hpp"
#include "tools/bfrun/shell_words.hpp"
#include "tools/bfrun/start/network.hpp"

namespace bluefog::bfrun {
namespace {

/// A mistyped number of ranks would fill the machine for minutes.
void check_crowd(const Options& options, int cores) {
  constexpr std::int64_t kMostRanksPerCore = 64;
  const std::int64_t most = kMostRanksPerCore * std::max(cores, 1);
  const int ranks = std::max(options.num_proc, options.max_np);
  if (options.oversubscribe || ranks <= most) {
    return;
  }
  throw UsageError(fmt::format(
      "{} {}: this machine takes at most {} ranks, {} for each of its {} core{}; --oversubscribe "
      "takes as many as you say",
      ranks > options.num_proc ? "--max-np" : "-np", ranks, most, kMostRanksPerCore, cores,
      cores == 1 ? "" : "s"));
}

constexpr const char* kLoopback = "127.0.0.1";

/// The store in which the ranks of a start without MPI meet.
/// @param hosts the addresses to listen on, of which the first that can be had is taken
std::unique_ptr<store::StoreServer> make_store_server(const std::array<const char*, 2>& hosts) {
  const std::string secret = store::draw_secret();
  try {
    return std::make_unique<store::StoreServer>(
        store::StoreAddress{.host = hosts[0], .secret = secret});
  } catch (const TransportError&) {
    try {
      return std::make_unique<store::StoreServer>(
          store::StoreAddress{.host = hosts[1], .secret = secret});
    } catch (const TransportError&) {
      // The first error is told: few machines have the loopback of IPv6 alone.
    }
    throw;
  }
}

/// Ranks of other hosts may come at any time where a program names them.
std::unique_ptr<store::StoreServer> make_store_server(bool has_discovery) {
  return has_discovery ? make_store_server({"::", "0.0.0.0"})
                       : make_store_server({kLoopback, "::1"});
}

}  // namespace

void print_placement(const Options& options, const JobPlan& plan) {
  const BindPolicy policy = plan.mpirun_binds ? BindPolicy::None : options.bind;
  const Placement placement = choose_placement_here(plan.job.ranks, policy);
  check_crowd(options, placement.cores);
  say(describe(plan.job.ranks, 1, placement, plan.job.notes));
}

namespace {

/// The address of this machine that other hosts are told.
std::string own_address(const Options& options) {
  const auto addresses = reachable_addresses(split_list(options.network_interface));
  return addresses.empty() ? host_name() : addresses.front();
}

/// How to start ranks on other hosts, which reach the store by an address of this one.
/// @param are_needed there are ranks on other hosts from the start.
FarHosts far_hosts(const Options& options, const Environment& environment, bool are_needed,
                   const store::StoreAddress& store) {
  const std::string address = own_address(options);
  FarHosts far{.shell = split_shell_words(options.remote_shell, "--remote-shell"),
               .port = options.ssh_port,
               .silence = std::chrono::seconds(options.host_silence),
               .bfrun = own_path(),
               .exported = exportable_names(environment, options.environment)};
  const std::string program = far.shell.empty() ? "" : far.shell.front();
  if (check_program(program, value_of(environment, "PATH")) != 0) {
    if (!are_needed) {
      return far;
    }
    throw UsageError(fmt::format(
        "--host-discovery names other hosts, on which ranks are started by --remote-shell: expected a "
        "program, found {}",
        bluefog::quoted(options.remote_shell)));
  }
  far.shell.front() = find_program(program, value_of(environment, "PATH"));
  far.changed[kStoreVariable] =
      store::StoreAddress{.host = address, .port = store.port, .secret = {}}.text();
  if (value_of(environment, "MASTER_ADDR") == kLoopback) {
    far.changed["MASTER_ADDR"] = address;
  }
  return far;
}

bool are_here(const std::vector<HostSlots>& hosts) {
  return std::ranges::all_of(hosts,
                             [](const HostSlots& host) { return host.name == kThisMachine; });
}

/// Tells the ranks in the store which of them have ended for good: those that wait for one of them in
/// a start end at once.
class EndedRanks {
 public:
  EndedRanks(store::StoreServer& server, const JobMonitor& monitor)
      : server_(server), monitor_(monitor) {}

  void take(int rank) {
    ends_.push_back({.rank = rank, .cause = monitor_.end_of(rank)});
    server_.set(std::string(store::kEndedRanksKey), store::text_of(ends_));
  }

 private:
  store::StoreServer& server_;
  const JobMonitor& monitor_;
  std::vector<store::EndedRank> ends_;
};

/// The ranks without which others have gone on, as these say in the store.
class LeftOutPipe {
 public:
  /// @param server ends before this object.
  void hear(store::StoreServer& server) const {
    const auto take = [out = pipe_.write_end.get()](const std::string& value) {
      const int rank = parse_int(value).value_or(-1);
      (void)!write(out, &rank, sizeof rank);
    };
    server.listen(std::string(store::kLeftOutKey), take);
  }

  [[nodiscard]] int descriptor() const { return pipe_.read_end.get(); }
  /// The next one, once the descriptor is readable.
  [[nodiscard]] int take() const {
    int rank = -1;
    return read(descriptor(), &rank, sizeof rank) == sizeof rank ? rank : -1;
  }

 private:
  Pipe pipe_ = make_pipe();
};

/// The slots of the first ranks, which are filled, and those that may be filled later.
struct Room {
  Slots slots{0};
  std::vector<Slot> first;
};

Room make_room(const Options& options, const std::vector<HostSlots>& discovered) {
  Room room{.slots = Slots(options.max_np), .first = {}};
  room.slots.set_hosts(discovered.empty() ? std::vector{HostSlots{"localhost", options.num_proc}}
                                          : discovered);
  for (auto& [rank, slot] : room.slots.fill(options.num_proc)) {
    room.first.push_back(std::move(slot));
  }
  return room;
}

/// "4 ranks on 2 hosts: 2 on this machine, 2 on b".
std::string describe_hosts(const std::vector<Slot>& slots) {
  std::map<std::string, int> counts;
  for (const Slot& slot : slots) {
    ++counts[slot.host];
  }
  std::vector<std::string> words;
  for (const auto& [host, count] : counts) {
    words.push_back(fmt::format("{} on {}", count, host == kThisMachine ? "this machine" : host));
  }
  return fmt::format("{} rank{} on {} host{}: {}", slots.size(), slots.size() == 1 ? "" : "s",
                     counts.size(), counts.size() == 1 ? "" : "s", fmt::join(words, ", "));
}

std::string names_of_joiners(const Options& options) {
  return options.is_elastic() ? fmt::format(" at first, at most {}", options.max_np) : "";
}

/// The ranks to start.
OwnRanks own_ranks(const Options& options, const JobPlan& plan) {
  OwnRanks ranks;
  ranks.count = options.num_proc;
  ranks.words = {own_path(), "--exec-rank", "--"};
  ranks.words.insert(ranks.words.end(), options.command.begin(), options.command.end());
  ranks.environment = plan.environment;
  ranks.fault_tolerant = options.fault_tolerant;
  ranks.enough = options.min_np;
  ranks.may_start_later = options.respawn > 0 || options.is_elastic();
  return ranks;
}

}  // namespace

int run_own_job(Options options, JobPlan plan) {
  check_crowd(options, choose_placement_here(options.num_proc, options.bind).cores);
  raise_descriptor_limit();
  std::optional<DiscoveryScript> script;
  std::vector<HostSlots> discovered;
  if (!options.host_discovery.empty()) {
    script.emplace(options.host_discovery, options.min_np, value_of(plan.environment, "PATH"));
    discovered = await_slots(*script, std::chrono::seconds(options.elastic_timeout));
  }
  Room room = make_room(options, discovered);
  options.num_proc = plan.job.ranks = static_cast<int>(room.first.size());
  const int descriptors = 2 * options.max_np;  // of line and store
  Ears ears(plan.key, descriptors);
  plan.environment[kRankLineVariable] = ears.rank_place();
  const LeftOutPipe left_out;
  const auto server = make_store_server(script.has_value());
  left_out.hear(*server);
  store::StoreAddress local = server->address();
  local.host = script ? kLoopback : local.host;
  plan.environment[kStoreVariable] = local.text();
  plan.environment[kStoreSecretVariable] = server->address().secret;
  plan.job.starter = "bfrun";
  if (are_here(discovered)) {
    print_placement(options, plan);
  } else {
    say(describe_hosts(room.first));
  }
  OwnRanks ranks = own_ranks(options, plan);
  ranks.slots = std::move(room.first);
  if (script) {
    ranks.far = far_hosts(options, plan.environment, !are_here(discovered), server->address());
  }
  ranks.on_started = [&] {
    server->start(fmt::format("{} suffice for {} ranks", descriptors + RankLine::kOtherDescriptors,
                              options.max_np));
  };
  if (options.is_elastic()) {
    plan.job.growth.emplace(std::move(room.slots),
                            script ? Growth::By::Discovery : Growth::By::Signals, options.min_np);
  }
  if (options.verbose) {
    say(fmt::format("starts {} times{}: {}", ranks.count, names_of_joiners(options),
                    join_shell_words(ranks.words)));
  }
  JobMonitor monitor(plan.job);
  std::optional<HostDiscovery> discovery;
  if (script) {
    const auto on_answer = [&](const std::vector<HostSlots>& hosts) {
      monitor.growth()->set_hosts(hosts);
    };
    discovery.emplace(*script, discovered, on_answer, say, HostDiscovery::Clock::now());
    ranks.discovery = &*discovery;
  }
  ranks.left_out = left_out.descriptor();
  ranks.take_left_out = [&] { return left_out.take(); };
  EndedRanks ended(*server, monitor);
  const auto run = [&](const ChildEvents& events) {
    ChildEvents own = events;
    own.on_rank_end = [&](int rank, bool has_failed, bool may_start_again) {
      const RankFate fate = events.on_rank_end(rank, has_failed, may_start_again);
      if (fate == RankFate::Over) {
        ended.take(rank);
      }
      return fate;
    };
    return run_own_ranks(ranks, own);
  };
  return run_and_follow(run, plan.key, ears, monitor);
}

}  // namespace bluefog::bfrun
