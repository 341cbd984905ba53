#include "bluefog_cpp/transport/context.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <new>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "bluefog_cpp/base/error.hpp"
#include "bluefog_cpp/transport/barrier_operation.hpp"
#include "bluefog_cpp/transport/nccl/device_channel.hpp"
#include "bluefog_cpp/transport/network.hpp"
#include "bluefog_cpp/transport/one_sided/one_sided.hpp"
#include "bluefog_cpp/transport/shm/connect.hpp"
#include "bluefog_cpp/transport/shm/host_memory.hpp"

namespace bluefog {
namespace {

using std::chrono::duration_cast;
using std::chrono::milliseconds;

/// Spinning only pays while every rank of the host has a core of its own.
bool has_own_core(int local_size) {
  cpu_set_t set;
  CPU_ZERO(&set);
  const int allowed = ::sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
  const auto online = static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN));
  const bool is_bound_to_one = allowed == 1;
  return local_size <= (is_bound_to_one ? online : allowed);
}

using Lines = std::vector<std::string>;

std::string_view word_of(DeviceWayChoice choice) {
  switch (choice) {
    case DeviceWayChoice::Nccl:
      return "nccl";
    case DeviceWayChoice::Peer:
      return "peer";
    case DeviceWayChoice::Host:
      return "host";
    default:
      return "auto";
  }
}

/// What the way to connect depends on: the same on all ranks.
Lines common_settings(const Settings& settings) {
  return {fmt::format("BLUEFOG_TRANSPORT {}",
                      settings.transport == TransportChoice::Mpi ? "mpi" : "auto"),
          fmt::format("BLUEFOG_NODES_PER_MACHINE {}", settings.nodes_per_machine),
          fmt::format("BLUEFOG_SHM_CHUNK_BYTES {}", settings.shm_chunk_bytes),
          fmt::format("BLUEFOG_SHM_SLOTS {}", settings.shm_slots),
          fmt::format("BLUEFOG_MPI_CHUNK_BYTES {}", settings.mpi_chunk_bytes),
          fmt::format("BLUEFOG_MPI_DEPTH {}", settings.mpi_depth),
          fmt::format("BLUEFOG_OPS_ON_CPU {:d}", settings.ops_on_cpu),
          fmt::format("BLUEFOG_DEVICE_WAY {}", word_of(settings.device_way)),
          fmt::format("BLUEFOG_ALLGATHER_BY_MPI {:d}", settings.allgather_by_mpi),
          fmt::format("BLUEFOG_ALLREDUCE_BY_MPI {:d}", settings.allreduce_by_mpi),
          fmt::format("BLUEFOG_BROADCAST_BY_MPI {:d}", settings.broadcast_by_mpi),
          fmt::format("BLUEFOG_HIERARCHICAL_NEIGHBOR_ALLREDUCE_BY_MPI {:d}",
                      settings.hierarchical_neighbor_allreduce_by_mpi),
          fmt::format("BLUEFOG_NEIGHBOR_ALLGATHER_BY_MPI {:d}", settings.neighbor_allgather_by_mpi),
          fmt::format("BLUEFOG_NEIGHBOR_ALLREDUCE_BY_MPI {:d}", settings.neighbor_allreduce_by_mpi),
          fmt::format("BLUEFOG_WIN_ON_CPU {:d}", settings.win_on_cpu),
          fmt::format("BLUEFOG_WIN_OPS_BY_MPI {:d}", settings.win_ops_by_mpi)};
}

Lines split_lines(std::string_view text) {
  Lines lines(1);
  for (const char c : text) {
    if (c == '\n') {
      lines.emplace_back();
    } else {
      lines.back() += c;
    }
  }
  return lines;
}

std::string on_one_line(std::string text) {
  std::ranges::replace(text, '\n', ' ');
  return text;
}

/// Collective. Host ids by rank.
/// @param problem why this rank cannot take part; empty if it can.
/// @throws InvalidArgument on the ranks that have a problem, PeerFailure on the others; InvalidArgument
///   on all ranks where one of `common_settings` differs.
std::vector<std::string> gather_host_ids(Bootstrap& bootstrap, const Settings& settings,
                                         const std::string& problem, Deadline deadline) {
  std::string id = settings.host_id;
  if (id.empty()) {
    // Ranks that are threads are on one host by definition.
    id = bootstrap.in_process() ? "process" : shm::detect_host_id();
  }
  const std::string text = fmt::format("{}\n{}\n{}", fmt::join(common_settings(settings), "\n"),
                                       on_one_line(problem), on_one_line(id));
  std::vector<std::string> ids;
  std::vector<std::string> problems;
  Lines expected;
  const auto blobs = bootstrap.allgather(std::as_bytes(std::span(text)), deadline);
  if (!problem.empty()) {
    throw InvalidArgument(fmt::format("rank {}, Context::create: {}", bootstrap.rank(), problem));
  }
  for (const auto& blob : blobs) {
    Lines lines = split_lines({reinterpret_cast<const char*>(blob.data()), blob.size()});
    ids.push_back(std::move(lines.back()));
    lines.pop_back();
    problems.push_back(std::move(lines.back()));
    lines.pop_back();
    if (expected.empty()) {
      expected = std::move(lines);
      continue;
    }
    const auto [theirs, first] = std::ranges::mismatch(lines, expected);
    if (theirs != lines.end() && first != expected.end()) {
      throw InvalidArgument(fmt::format(
          "rank {}, Context::create: expected the same setting on all ranks, rank 0 has {}, rank {} "
          "has {}",
          bootstrap.rank(), *first, ids.size() - 1, *theirs));
    }
  }
  for (std::size_t rank = 0; rank < problems.size(); ++rank) {
    if (!problems[rank].empty()) {
      throw PeerFailure(static_cast<int>(rank),
                        fmt::format("rank {}, Context::create: rank {} refused: {}",
                                    bootstrap.rank(), rank, problems[rank]));
    }
  }
  return ids;
}

}  // namespace

std::shared_ptr<Context> Context::create(std::shared_ptr<Bootstrap> bootstrap,
                                         const Settings& settings) {
  std::shared_ptr<Context> context(new Context(std::move(bootstrap), settings));
  std::string problem;
  try {
    context->open_files();
  } catch (const InvalidArgument& error) {  // which the other ranks have to hear of
    problem = error.what();
  }
  if (context->rank() == 0) {
    for (const std::string& notice : settings.notices) {
      context->log_.warning(notice);
    }
  }
  context->connect(problem);
  return context;
}

Context::Context(std::shared_ptr<Bootstrap> bootstrap, const Settings& settings)
    : bootstrap_(std::move(bootstrap)),
      rank_(bootstrap_->rank()),
      size_(bootstrap_->size()),
      settings_(settings),
      log_({.level = settings.log_level,
            .hide_time = settings.log_hide_time,
            .rank = rank_}),
      hosts_(MachineLayout::single(1)),
      machines_(MachineLayout::single(1)),
      relatives_(std::make_shared<Relatives>()) {}

Context::~Context() {
  close();
  if (engine_ && engine_->is_forked()) {
    // Destroying them would wait for threads that the fork does not have, and tell the other ranks
    // that this one has left.
    [[maybe_unused]] const auto* kept = new auto(std::tuple(
        std::move(engine_), std::move(one_sided_), std::move(device_), std::move(bootstrap_),
        std::move(timeline_), std::move(recorder_)));
  }
}

void Context::open_files() {
  if (!settings_.timeline.empty()) {
    timeline_ = std::make_shared<Timeline>(settings_.timeline, rank());
  }
  if (!settings_.flight_recorder.empty()) {
    recorder_ =
        std::make_shared<FlightRecorder>(settings_.flight_recorder, rank(), size(), log_);
  }
}

void Context::connect(const std::string& problem) {
  const Deadline deadline = Deadline::after(settings_.timeout);
  const int n = size();
  std::vector<std::string> host_ids = gather_host_ids(*bootstrap_, settings_, problem, deadline);
  EngineParts parts;
  parts.rank = rank();
  parts.size = n;
  parts.log = log_;
  parts.routes.assign(static_cast<std::size_t>(n), nullptr);

  if (settings_.transport == TransportChoice::Auto) {
    auto [transport, errors] = shm::connect(*bootstrap_, "shm", host_ids,
                                              shm::ShmOptions::from(settings_), deadline);
    // A host on which a rank could not share memory counts as several.
    std::vector<std::string> failed_hosts;
    for (std::size_t r = 0; r < errors.size(); ++r) {
      if (!errors[r].empty()) {
        failed_hosts.push_back(host_ids[r]);
        if (static_cast<int>(r) == rank()) {
          log_.warning(fmt::format("no shared memory on this host: {}", errors[r]));
        }
      }
    }
    for (std::size_t r = 0; r < host_ids.size(); ++r) {
      if (std::ranges::find(failed_hosts, host_ids[r]) != failed_hosts.end()) {
        host_ids[r] += fmt::format("#{}", r);
      }
    }
    if (transport) {
      shared_memory_ = transport->make_buffer_memory();
      parts.doorbell = &transport->doorbell();
      for (int peer = 0; peer < n; ++peer) {
        if (transport->reaches(peer)) {
          parts.routes[static_cast<std::size_t>(peer)] = transport.get();
        }
      }
      parts.transports.push_back(std::move(transport));
    }
  }
  hosts_ = MachineLayout::from_host_ids(host_ids);
  try {
    machines_ = settings_.nodes_per_machine > 0 ? hosts_.split(settings_.nodes_per_machine) : hosts_;
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(fmt::format("rank {}, BLUEFOG_NODES_PER_MACHINE={}: {}", rank(),
                                      settings_.nodes_per_machine, error.what()));
  }

  // Collective: all ranks see the same hosts, so all come here or none.
  if (uses_network()) {
    std::unique_ptr<Transport> network = make_network(*bootstrap_, settings_, deadline);
    if (!network) {
      throw UnsupportedError(
          fmt::format("rank {}: the ranks are on {} hosts, but bootstrap '{}' offers no transport "
                      "between hosts",
                      rank(), hosts_.machine_count(), bootstrap_->name()));
    }
    for (int peer = 0; peer < n; ++peer) {
      auto& route = parts.routes[static_cast<std::size_t>(peer)];
      if (route == nullptr && peer != rank()) {
        route = network.get();
      }
    }
    parts.transports.push_back(std::move(network));
  }

  parts.policy.timeout = duration_cast<milliseconds>(settings_.timeout);
  parts.policy.stall_warning = duration_cast<milliseconds>(settings_.stall_warning);
  if (!has_own_core(static_cast<int>(hosts_.ranks_of(hosts_.machine_of(rank())).size()))) {
    parts.policy.spins = 0;
  } else {
    // Nobody here waits for this core: a yield would only hand it to strangers.
    parts.policy.yields = 0;
  }
  parts.timeline = timeline_;
  if (recorder_) {
    parts.recorder = recorder_;
    parts.recorded_context = recorder_->add_context();
  }
  parts.relatives = relatives_;
  engine_ = std::make_shared<Engine>(std::move(parts));
  shutdown_guard_ = bootstrap_->before_shutdown([weak = weak_from_this()] {
    if (const auto context = weak.lock()) {
      context->close();
    }
  });
}

bool Context::uses_network() const noexcept {
  return hosts_.machine_count() > 1 || (settings_.transport == TransportChoice::Mpi && size() > 1);
}

int Context::local_size() const {
  return static_cast<int>(machines_.ranks_of(machines_.machine_of(rank())).size());
}

std::string_view Context::transport_to(int peer) const {
  if (peer == rank()) {
    return "self";
  }
  (void)hosts_.machine_of(peer);  // checks the range
  return engine_->transport_to(peer).name();
}

std::shared_ptr<Context> Context::duplicate() {
  if (const auto obstacle = bootstrap_->concurrency_obstacle(); uses_network() && !obstacle.empty()) {
    throw UnsupportedError(fmt::format(
        "rank {}, duplicate: contexts of several threads use MPI at the same time: {}", rank(),
        obstacle));
  }
  if (engine_->is_closed()) {
    throw StateError(fmt::format("rank {}, duplicate: the context is closed", rank()));
  }
  const Engine::LargerCall whole(*engine_);
  // A call like others: ranks that do not come are named, and the context goes on without the copy.
  BarrierOperation meeting(OpKind::Duplicate, rank(), size());
  engine_->run(meeting);
  const Deadline deadline = Deadline::after(settings_.timeout);
  std::shared_ptr<Context> copy(new Context(bootstrap_->duplicate(deadline), settings_));
  copy->timeline_ = timeline_;
  copy->recorder_ = recorder_;
  copy->relatives_ = relatives_;
  copy->connect({});
  return copy;
}

void Context::use_device(int device, const gpu::Libraries* libraries) {
  if (engine_->is_closed() || device_) {
    throw StateError(fmt::format("rank {}, use_device: {}", rank(),
                                 device_ ? "this context has a device already"
                                         : "the context is closed"));
  }
  const Engine::LargerCall whole(*engine_);
  BarrierOperation meeting(OpKind::UseDevice, rank(), size());
  engine_->run(meeting);
  device_ = DeviceChannel::connect(*bootstrap_, libraries, device, log_, settings_, hosts_);
  engine_->attach(device_);
}

void Context::set_interrupt_check(std::function<void()> check) {
  engine_->set_interrupt_check(std::move(check));
}

std::shared_ptr<std::byte> Context::allocate_shared(std::size_t bytes) {
  constexpr std::align_val_t kAlignment{64};
  if (engine_->is_forked()) {
    throw StateError(fmt::format(
        "rank {}, allocate_shared: expected the process of that rank, found a fork of it", rank()));
  }
  try {
    if (shared_memory_) {
      return shm::HostMemory::allocate_zeros(shared_memory_, bytes);
    }
    auto* const data = static_cast<std::byte*>(
        ::operator new(std::max<std::size_t>(bytes, 1), kAlignment, std::nothrow));
    if (data == nullptr) {
      throw TransportError(fmt::format("the system has no {} bytes", bytes));
    }
    std::memset(data, 0, bytes);
    return {data, [](std::byte* memory) { ::operator delete(memory, kAlignment); }};
  } catch (const TransportError& error) {
    throw TransportError(fmt::format("rank {}, allocate_shared: {}", rank(), error.what()));
  }
}

OneSided& Context::one_sided() {
  if (engine_->is_closed()) {
    throw StateError(fmt::format("rank {}, win_create: the context is closed", rank()));
  }
  if (!one_sided_) {
    one_sided_ = OneSided::connect(*this);
  }
  return *one_sided_;
}

void Context::close() noexcept {
  if (engine_ && engine_->is_forked()) {
    return;
  }
  if (one_sided_) {
    one_sided_->close();
  }
  if (engine_) {
    if (engine_->has_dead_peer()) {
      bootstrap_->note_process_failure();
    }
    if (engine_->has_given_up()) {
      bootstrap_->limit_shutdown(settings_.timeout);
    }
    engine_->close();
  }
  if (one_sided_) {
    one_sided_->leave_devices();
  }
  if (device_) {
    device_->close();
  }
}

}  // namespace bluefog
