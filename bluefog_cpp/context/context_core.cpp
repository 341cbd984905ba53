#include "bluefog_cpp/context/context_core.hpp"

#include <fmt/format.h>
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

#include "bluefog_cpp/base/alignment.hpp"
#include "bluefog_cpp/base/linger.hpp"
#include "bluefog_cpp/base/prepare_to_throw.hpp"
#include "bluefog_cpp/context/last_calls.hpp"
#include "bluefog_cpp/context/members.hpp"
#include "bluefog_cpp/context/resync.hpp"
#include "bluefog_cpp/context/settings_agreement.hpp"
#include "bluefog_cpp/device/device_channel.hpp"
#include "bluefog_cpp/engine/barrier_operation.hpp"
#include "bluefog_cpp/error.hpp"
#include "bluefog_cpp/one_sided/one_sided.hpp"
#include "bluefog_cpp/transport/host_memory.hpp"
#include "bluefog_cpp/transport/host_sharing.hpp"
#include "bluefog_cpp/transport/network.hpp"

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

/// A host on which a rank could not share memory counts as several.
void split_hosts_of_failures(std::vector<std::string>& host_ids,
                             const std::vector<std::string>& errors) {
  std::vector<std::string> failed_hosts;
  for (std::size_t rank = 0; rank < errors.size(); ++rank) {
    if (!errors[rank].empty()) {
      failed_hosts.push_back(host_ids[rank]);
    }
  }
  for (std::size_t rank = 0; rank < host_ids.size(); ++rank) {
    if (std::ranges::find(failed_hosts, host_ids[rank]) != failed_hosts.end()) {
      host_ids[rank] += fmt::format("#{}", rank);
    }
  }
}

}  // namespace

ContextCore::ContextCore(std::shared_ptr<Bootstrap> bootstrap, const Settings& settings)
    : bootstrap_(std::move(bootstrap)),
      rank_(bootstrap_->rank()),
      size_(bootstrap_->size()),
      settings_(settings),
      log_({.level = settings.log_level, .hide_time = settings.log_hide_time, .rank = rank_}),
      hosts_(MachineLayout::single(1)),
      machines_(MachineLayout::single(1)),
      family_(std::make_shared<ContextFamily>()) {
  for (int rank = 0; rank < size_; ++rank) {
    membership_.ranks.push_back(rank);
  }
}

ContextCore::~ContextCore() {
  if (engine_ && engine_->is_forked()) {
    // Destroying them would wait for threads that the fork does not have, and tell the other ranks
    // that this one has left.
    [[maybe_unused]] const auto* kept =
        new auto(std::tuple(std::move(engine_), std::move(one_sided_), std::move(device_),
                            std::move(bootstrap_), std::move(timeline_), std::move(recorder_)));
  }
}

void ContextCore::open_files() {
  if (bootstrap_->is_applicant()) {
    return;  // its number is not known before the others have taken it in
  }
  const int number = membership_.ranks[static_cast<std::size_t>(rank())];
  if (!settings_.timeline.empty()) {
    timeline_ = std::make_shared<Timeline>(settings_.timeline, number, log_);
  }
  if (!settings_.flight_recorder.empty()) {
    recorder_ = std::make_shared<FlightRecorder>(settings_.flight_recorder, number, size(), log_);
  }
}

void ContextCore::connect(const std::string& problem) {
  prepare_to_throw();
  const Deadline deadline = Deadline::after(settings_.timeout);
  std::vector<std::string> host_ids = agree_on_settings(*bootstrap_, settings_, problem, deadline);
  EngineParts parts;
  parts.routes.assign(static_cast<std::size_t>(size()), nullptr);
  if (settings_.transport == TransportChoice::Auto) {
    share_memory(host_ids, parts, deadline);
  }
  lay_out_machines(host_ids);
  // All ranks see the same hosts: all of them come here, or none.
  if (uses_network()) {
    reach_network(parts, deadline);
  }
  parts.policy = choose_waits();
  start_engine(std::move(parts));
  watch_for_losses();
}

void ContextCore::watch_for_losses() { watch_for_losses(*bootstrap_); }

void ContextCore::watch_for_losses(Bootstrap& bootstrap) const {
  if (settings_.on_failure == OnFailure::Shrink) {
    bootstrap.set_look([held = std::weak_ptr(engine_)] {
      if (const auto engine = held.lock()) {
        engine->check_interrupt();
        engine->check_revoked("a call in which ranks meet");
      }
    });
  }
}

void ContextCore::share_memory(std::vector<std::string>& host_ids, EngineParts& parts,
                               Deadline deadline) {
  auto [transport, errors] = shm::connect(*bootstrap_, "shm", host_ids, arena_,
                                          shm::ShmOptions::from(settings_), deadline);
  const auto own = static_cast<std::size_t>(rank());
  if (own < errors.size() && !errors[own].empty()) {
    log_.warning(fmt::format("no shared memory on this host: {}", errors[own]));
  }
  split_hosts_of_failures(host_ids, errors);
  if (!transport) {
    return;
  }
  shared_memory_ = transport->make_buffer_memory();
  parts.doorbell = &transport->doorbell();
  for (int peer = 0; peer < size(); ++peer) {
    if (transport->reaches(peer)) {
      parts.routes[static_cast<std::size_t>(peer)] = transport.get();
    }
  }
  parts.transports.push_back(std::move(transport));
}

void ContextCore::lay_out_machines(const std::vector<std::string>& host_ids) {
  hosts_ = MachineLayout::from_host_ids(host_ids);
  if (bootstrap_->is_applicant()) {
    machines_ = hosts_;  // others of its machine are where it wants to go
    return;
  }
  if (!former_machines_.empty()) {
    give_newcomers_machines(host_ids, settings_.nodes_per_machine, former_machines_);
    std::vector<std::string> ids;
    for (std::size_t rank = 0; rank < host_ids.size(); ++rank) {
      ids.push_back(fmt::format("{}/{}", host_ids[rank], former_machines_[rank]));
    }
    machines_ = MachineLayout::from_host_ids(ids);
    return;
  }
  try {
    machines_ =
        settings_.nodes_per_machine > 0 ? hosts_.split(settings_.nodes_per_machine) : hosts_;
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(fmt::format("rank {}, BLUEFOG_NODES_PER_MACHINE={}: {}", rank(),
                                      settings_.nodes_per_machine, error.what()));
  }
}

void ContextCore::reach_network(EngineParts& parts, Deadline deadline) {
  std::unique_ptr<Transport> network = make_network(*bootstrap_, settings_, deadline);
  if (!network) {
    throw UnsupportedError(
        fmt::format("rank {}: the ranks are on {} hosts, but bootstrap '{}' offers no transport "
                    "between hosts",
                    rank(), hosts_.machine_count(), bootstrap_->name()));
  }
  for (int peer = 0; peer < size(); ++peer) {
    auto& route = parts.routes[static_cast<std::size_t>(peer)];
    if (route == nullptr && peer != rank()) {
      route = network.get();
    }
  }
  parts.transports.push_back(std::move(network));
}

WaitPolicy ContextCore::choose_waits() const {
  WaitPolicy policy;
  policy.timeout = duration_cast<milliseconds>(settings_.timeout);
  policy.timeout_name = settings_.timeout_name;
  policy.stall_warning = duration_cast<milliseconds>(settings_.stall_warning);
  if (!has_own_core(static_cast<int>(hosts_.ranks_of(hosts_.machine_of(rank())).size()))) {
    policy.spins = 0;
  } else {
    // Nobody here waits for this core: a yield would only hand it to strangers.
    policy.yields = 0;
  }
  return policy;
}

void ContextCore::start_engine(EngineParts parts) {
  parts.rank = rank();
  parts.size = size();
  parts.log = log_;
  parts.timeline = timeline_;
  if (recorder_) {
    parts.recorder = recorder_;
    parts.recorded_context = recorder_->add_context(membership_.epoch, membership_.ranks);
  }
  parts.family = family_;
  parts.losses_revoke = settings_.on_failure == OnFailure::Shrink;
  engine_ = std::make_shared<Engine>(std::move(parts));
}

bool ContextCore::uses_network() const noexcept {
  return hosts_.machine_count() > 1 || (settings_.transport == TransportChoice::Mpi && size() > 1);
}

std::unique_ptr<ContextCore> ContextCore::duplicate() {
  if (const auto obstacle = bootstrap_->concurrency_obstacle();
      uses_network() && !obstacle.empty()) {
    throw UnsupportedError(
        fmt::format("rank {}, duplicate: contexts of several threads use MPI at the same time: {}",
                    rank(), obstacle));
  }
  if (engine_->is_closed()) {
    throw StateError(fmt::format("rank {}, duplicate: the context is closed", rank()));
  }
  // A call like others: ranks that do not come are named, and the context goes on without the copy.
  BarrierOperation meeting(OpKind::Duplicate, rank(), size());
  engine_->run(meeting);
  const Deadline deadline = Deadline::after(settings_.timeout);
  auto copy = std::make_unique<ContextCore>(bootstrap_->duplicate(deadline), settings_);
  copy->timeline_ = timeline_;
  copy->recorder_ = recorder_;
  copy->family_ = family_;
  copy->arena_ = arena_;
  copy->membership_ = membership_;
  copy->former_machines_ = former_machines_;
  watch_for_losses(*copy->bootstrap_);
  return copy;
}

Bootstrap::Regrouped ContextCore::regroup(bool admits) {
  constexpr std::chrono::nanoseconds kLeast = std::chrono::seconds(1);
  constexpr std::chrono::nanoseconds kMost = std::chrono::seconds(30);
  // Ranks that meet to take somebody in may be a step behind; interrupted, they would keep it out.
  const auto patience =
      admits ? std::max(linger::within(kMost, settings_.timeout / 20), kLeast) : kLeast;
  if (const auto rank = lost_rank(*engine_); rank && bootstrap_->late_rank() < 0) {
    bootstrap_->expect_late(*rank, settings_.timeout);
  }
  const auto calls = std::make_shared<LastCalls>(
      family_, fmt::format("rank {} has called shrink()", rank()), patience);
  bootstrap_->set_look([engine = engine_.get()] { engine->check_interrupt(); });
  auto left = bootstrap_->regroup(
      [engine = engine_, calls](int peer) {
        auto cause = engine->cause_of_death(peer);
        calls->look(cause.has_value());
        return cause;
      },
      Deadline::after(settings_.timeout), admits);
  calls->end();
  if (std::ranges::find(left.ranks, bootstrap_->late_rank()) != left.ranks.end()) {
    bootstrap_->forget_late();  // should ranks meet again, it may be the last by a moment
  }
  return left;
}

std::unique_ptr<ContextCore> ContextCore::among(const Bootstrap::Regrouped& left) {
  Settings settings = settings_;
  settings.joins = false;  // it has
  auto core = std::make_unique<ContextCore>(left.bootstrap, settings);
  core->timeline_ = timeline_;
  core->recorder_ = recorder_;
  if (!left.ranks.empty()) {
    core->membership_ = members_of(membership_, left);
  }
  for (const int rank : left.ranks) {
    core->former_machines_.push_back(machines_.machine_of(rank));
  }
  return core;
}

void ContextCore::tell_newcomers(bool is_new) {
  const std::string own = to_text({.members = membership_,
                                   .contexts = recorder_ ? recorder_->next_context() : 0,
                                   .machines = former_machines_});
  const auto texts =
      bootstrap_->allgather(std::as_bytes(std::span(own)), Deadline::after(settings_.timeout));
  // The lowest rank was there before.
  GroupRecord record = group_record_from(
      {reinterpret_cast<const char*>(texts.front().data()), texts.front().size()});
  membership_ = std::move(record.members);
  former_machines_ = std::move(record.machines);
  if (is_new) {
    open_files();
    if (recorder_) {
      recorder_->begin_with_context(record.contexts);
    }
  }
}

void ContextCore::use_device(int device, const gpu::Libraries* libraries) {
  if (engine_->is_closed() || device_) {
    throw StateError(
        fmt::format("rank {}, use_device: {}", rank(),
                    device_ ? "this context has a device already" : "the context is closed"));
  }
  const Engine::LargerCall whole(*engine_);
  BarrierOperation meeting(OpKind::UseDevice, rank(), size());
  engine_->run(meeting);
  device_ = DeviceChannel::connect(*bootstrap_, libraries, device, log_, settings_, hosts_, arena_);
  engine_->attach(device_);
}

std::shared_ptr<std::byte> ContextCore::allocate_shared(std::size_t bytes) {
  constexpr std::align_val_t kAlignment{kCacheLine};
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

OneSided& ContextCore::one_sided() {
  if (engine_->is_closed()) {
    throw StateError(fmt::format("rank {}, win_create: the context is closed", rank()));
  }
  if (!one_sided_) {
    one_sided_ = OneSided::connect({.bootstrap = *bootstrap_,
                                    .engine = engine_,
                                    .hosts = hosts_,
                                    .settings = settings_,
                                    .arena = arena_});
  }
  return *one_sided_;
}

void ContextCore::resync() {
  // Ranks may come late, and cannot try again.
  constexpr std::chrono::nanoseconds kLeast = std::chrono::minutes(1);
  const auto longest =
      settings_.timeout.count() == 0 ? settings_.timeout : std::max(settings_.timeout, kLeast);
  bluefog::resync(*bootstrap_, *engine_, Deadline::after(longest));
  watch_for_losses();
}

void ContextCore::close() noexcept {
  if (engine_ && engine_->is_forked()) {
    return;
  }
  if (one_sided_) {
    one_sided_->close();
  }
  if (engine_) {
    try {
      if (engine_->has_dead_peer()) {
        bootstrap_->note_process_failure();
      }
      if (engine_->has_abandoned()) {
        bootstrap_->limit_shutdown(settings_.timeout);
      }
    } catch (const std::exception&) {  // out of memory: the end may take longer
    }
    engine_->close();
  }
  if (device_) {
    device_->close();
  }
  if (one_sided_) {
    one_sided_->leave_devices();  // CUDA waits for the device's calls where memory is given back
  }
}

}  // namespace bluefog
