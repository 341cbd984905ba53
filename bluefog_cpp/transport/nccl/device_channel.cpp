#include "bluefog_cpp/transport/nccl/device_channel.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

#include "bluefog_cpp/base/error.hpp"
#include "bluefog_cpp/base/message_of.hpp"

namespace bluefog {
namespace {

using namespace std::chrono_literals;

/// The device is asked this often whether it is done.
constexpr auto kLookPeriod = 50us;
/// What a rank sent before it left comes within this time.
constexpr auto kLastBytes = 1s;
/// How long a rank that leaves waits for what others may still need of it.
constexpr auto kLongestFarewell = 10s;

/// Collective. What each rank says, as text.
std::vector<std::string> tell_all(Bootstrap& bootstrap, const std::string& own, Deadline deadline) {
  std::vector<std::string> texts;
  for (const auto& blob : bootstrap.allgather(std::as_bytes(std::span(own)), deadline)) {
    texts.emplace_back(reinterpret_cast<const char*>(blob.data()), blob.size());
  }
  return texts;
}

/// A rank that could not do something, and why.
struct Problem {
  int rank = -1;
  std::string text{};
};

/// Collective. The first rank with a problem, or −1.
/// @param own what this rank could not do, or null.
Problem first_problem(Bootstrap& bootstrap, const std::exception_ptr& own, Deadline deadline) {
  const auto problems = tell_all(bootstrap, own ? message_of(own) : std::string(), deadline);
  const auto found = std::ranges::find_if(problems, [](const auto& text) { return !text.empty(); });
  return found == problems.end()
             ? Problem{}
             : Problem{.rank = static_cast<int>(found - problems.begin()), .text = *found};
}

/// Collective. @throws `own`, or PeerFailure where another rank could not.
void agree(Bootstrap& bootstrap, const std::exception_ptr& own, Deadline deadline) {
  const Problem problem = first_problem(bootstrap, own, deadline);
  if (own) {
    std::rethrow_exception(own);
  }
  if (problem.rank >= 0) {
    throw PeerFailure(problem.rank, fmt::format("rank {}, use_device: rank {} could not: {}",
                                                bootstrap.rank(), problem.rank, problem.text));
  }
}

template <typename Step>
std::exception_ptr error_of(Step&& step) {
  try {
    step();
  } catch (const Error&) {
    return std::current_exception();
  }
  return nullptr;
}

}  // namespace

std::shared_ptr<DeviceChannel> DeviceChannel::connect(Bootstrap& bootstrap,
                                                      const gpu::Libraries* libraries, int device,
                                                      const Logger& log, const Settings& settings) {
  const Deadline deadline = Deadline::after(settings.timeout);
  std::shared_ptr<DeviceChannel> channel;
  agree(bootstrap, error_of([&] {
          const gpu::Libraries loaded =
              libraries != nullptr ? *libraries : gpu::Libraries{.cuda = gpu::load_cuda()};
          const int count = loaded.cuda->device_count();
          if (device < 0 || device >= count) {
            throw InvalidArgument(
                fmt::format("rank {}, use_device: expected a device in 0 … {}, found {}",
                            bootstrap.rank(), count - 1, device));
          }
          channel.reset(new DeviceChannel(loaded, device, bootstrap.rank(), log, settings));
        }),
        deadline);
  const std::string obstacle = channel->find_way(bootstrap, libraries == nullptr, deadline);
  channel->uses_nccl_ = obstacle.empty();
  if (bootstrap.rank() == 0) {
    if (obstacle.empty()) {
      log.info("calls on CUDA devices go by NCCL");
    } else if (settings.ops_on_cpu) {
      log.info(fmt::format("calls on CUDA devices go through the host's memory: {}", obstacle));
    } else {
      log.warning(fmt::format("calls on CUDA devices go through the host's memory: {}", obstacle));
    }
  }
  return channel;
}

DeviceChannel::DeviceChannel(gpu::Libraries libraries, int device, int rank, const Logger& log,
                             const Settings& settings)
    : libraries_(std::move(libraries)),
      device_(device),
      rank_(rank),
      log_(log),
      settings_(settings),
      timeout_(settings.timeout),
      events_(std::make_shared<gpu::EventPool>(libraries_.cuda, device)) {
  const gpu::DeviceScope scope = enter();
  stream_ = cuda().make_stream();
  staging_ = std::make_shared<gpu::HostStaging>(libraries_.cuda, events_, device);
}

std::string DeviceChannel::find_way(Bootstrap& bootstrap, bool loads_nccl, Deadline deadline) {
  if (settings_.ops_on_cpu) {
    return "BLUEFOG_OPS_ON_CPU is set";
  }
  gpu::NcclId id{};
  const auto loading = first_problem(
      bootstrap, error_of([&] {
        if (loads_nccl) {
          libraries_.nccl = gpu::load_nccl();
        } else if (!libraries_.nccl) {
          throw UnsupportedError("there is no NCCL");
        }
        if (rank_ == 0) {
          id = libraries_.nccl->make_id();
        }
      }),
      deadline);
  if (loading.rank >= 0) {
    return fmt::format("rank {}: {}", loading.rank, loading.text);
  }
  const auto ids = bootstrap.allgather(id, deadline);
  std::memcpy(id.data(), ids.front().data(), std::min(id.size(), ids.front().size()));
  const auto joining =
      first_problem(bootstrap, error_of([&] { join(bootstrap, id); }), deadline);
  if (joining.rank < 0) {
    return {};
  }
  if (comm_ != nullptr) {
    const gpu::DeviceScope scope = enter();
    const auto error =
        error_of([&] { libraries_.nccl->abort(std::exchange(comm_, nullptr)); });
    if (error) {
      log_.error(message_of(error));
    }
  }
  return fmt::format("rank {}: {}", joining.rank, joining.text);
}

DeviceWay DeviceChannel::way_of(OpKind kind) const noexcept {
  const auto host_if = [](bool is_forced) { return is_forced ? DeviceWay::Host : DeviceWay::Nccl; };
  if (!uses_nccl_) {
    return DeviceWay::Host;
  }
  switch (kind) {
    case OpKind::Allgather:
      return host_if(settings_.allgather_by_mpi);
    case OpKind::Allreduce:
      return host_if(settings_.allreduce_by_mpi);
    case OpKind::Broadcast:
      return host_if(settings_.broadcast_by_mpi);
    case OpKind::HierarchicalNeighborAllreduce:
      return host_if(settings_.hierarchical_neighbor_allreduce_by_mpi);
    case OpKind::NeighborAllgather:
      return host_if(settings_.neighbor_allgather_by_mpi);
    case OpKind::NeighborAllreduce:
      return host_if(settings_.neighbor_allreduce_by_mpi);
    default:
      return DeviceWay::Host;
  }
}

void DeviceChannel::join(Bootstrap& bootstrap, const gpu::NcclId& id) {
  const gpu::DeviceScope scope = enter();
  comm_ = libraries_.nccl->init(bootstrap.size(), id, bootstrap.rank());
}

DeviceChannel::~DeviceChannel() { close(); }

std::byte* DeviceChannel::scratch(std::size_t bytes) {
  if (bytes > scratch_bytes_) {
    const std::size_t more = std::max(bytes, 2 * scratch_bytes_);
    scratch_ = static_cast<std::byte*>(cuda().allocate(more));
    allocated_.push_back(scratch_);
    scratch_bytes_ = more;
  }
  return scratch_;
}

gpu::FunctionHandle DeviceChannel::kernel(std::span<const std::byte> image, const char* name) {
  gpu::FunctionHandle& function = kernels_[name];
  if (function == nullptr) {
    function = cuda().load(image, name);
  }
  return function;
}

void DeviceChannel::transfer(std::span<const DeviceTransfer> sends,
                             std::span<const DeviceTransfer> receives) {
  struct Group {
    gpu::NcclApi& nccl;
    bool open = true;
    explicit Group(gpu::NcclApi& api) : nccl(api) { nccl.group_start(); }
    void end() {
      open = false;
      nccl.group_end();
    }
    ~Group() {
      if (open) {
        try {
          nccl.group_end();
        } catch (const NcclError&) {  // NOLINT: the first error is on its way
        }
      }
    }
  };
  Group group(*libraries_.nccl);
  for (const DeviceTransfer& send : sends) {
    libraries_.nccl->send(send.data, send.bytes, send.peer, comm_, stream_);
  }
  for (const DeviceTransfer& receive : receives) {
    libraries_.nccl->receive(receive.data, receive.bytes, receive.peer, comm_, stream_);
  }
  group.end();
}

void DeviceChannel::watch(LaunchedCall call) {
  if (watched_.empty()) {
    moved_ = Clock::now();
  }
  watched_.push_back(std::move(call));
}

bool DeviceChannel::take_finished() {
  bool moved = false;
  while (!watched_.empty() && cuda().has_happened(watched_.front().done)) {
    watched_.pop_front();
    death_ = nullptr;
    moved = true;
  }
  return moved;
}

bool DeviceChannel::attend() {
  const auto now = Clock::now();
  if (watched_.empty() || now - last_look_ < kLookPeriod) {
    return false;
  }
  last_look_ = now;
  try {
    const gpu::DeviceScope scope = enter();
    if (take_finished()) {
      moved_ = now;
      return true;
    }
    if (comm_ != nullptr) {
      look(now);
    }
  } catch (const Error&) {
    if (comm_ == nullptr) {
      watched_.clear();  // a device that tells nothing any more
    }
    end(std::current_exception());
  }
  return false;
}

void DeviceChannel::look(Clock::time_point now) {
  const LaunchedCall& first = watched_.front();
  if (const auto error = libraries_.nccl->async_error(comm_)) {
    throw NcclError(0, fmt::format("rank {}, call {}, {}: NCCL reports: {}", rank_, first.call,
                                   first.text, *error));
  }
  if (death_ && now - heard_of_death_ >= kLastBytes) {
    std::rethrow_exception(death_);
  }
  if (timeout_.count() != 0 && now - moved_ >= timeout_) {
    throw TimeoutError(fmt::format(
        "rank {}, call {}, {}: launched, and not done on the device after {:.1f} s "
        "(BLUEFOG_TIMEOUT)",
        rank_, first.call, first.text, std::chrono::duration<double>(timeout_).count()));
  }
}

std::vector<int> DeviceChannel::awaited_ranks() const {
  return watched_.empty() || comm_ == nullptr || death_ ? std::vector<int>{}
                                                        : watched_.front().partners;
}

void DeviceChannel::hear_failure(int rank, std::uint64_t call, const std::string& reason) {
  const auto of_call = std::ranges::find(watched_, call, &LaunchedCall::call);
  if (of_call != watched_.end() &&
      std::ranges::find(of_call->partners, rank) != of_call->partners.end()) {
    end(std::make_exception_ptr(PeerFailure(
        rank, fmt::format("rank {}, call {}, {}: launched, and rank {} ended it with an error: {}",
                          rank_, call, of_call->text, rank, reason))));
  }
}

// A rank may have left when its own part was done: what it sent is on its way.
void DeviceChannel::hear_death(int rank, const std::string& obituary) {
  const LaunchedCall& first = watched_.front();
  heard_of_death_ = Clock::now();
  death_ = std::make_exception_ptr(
      PeerFailure(rank, fmt::format("rank {}, call {}, {}: launched, but {}", rank_, first.call,
                                    first.text, obituary)));
}

void DeviceChannel::end(std::exception_ptr why) {
  if (comm_ == nullptr) {
    return;
  }
  {
    const std::scoped_lock lock(failure_mutex_);
    failure_ = why;
  }
  for (const LaunchedCall& call : watched_) {
    if (call.cut_short != nullptr) {
      call.cut_short->store(true, std::memory_order_release);
    }
  }
  log_.error(fmt::format("no calls on CUDA device {} any more: {}", device_, message_of(why)));
  try {
    const gpu::DeviceScope scope = enter();
    libraries_.nccl->abort(std::exchange(comm_, nullptr));
  } catch (const Error& error) {
    log_.error(error.what());
  }
}

std::exception_ptr DeviceChannel::failure() const {
  const std::scoped_lock lock(failure_mutex_);
  return failure_;
}

void DeviceChannel::wait_for_watched(std::chrono::nanoseconds longest) {
  const Deadline deadline = Deadline::after(longest);
  while (!watched_.empty() && !deadline.expired()) {
    if (!take_finished()) {
      std::this_thread::sleep_for(kLookPeriod);
    }
  }
}

void DeviceChannel::close() noexcept {
  if (stream_ == nullptr) {
    return;
  }
  try {
    const gpu::DeviceScope scope = enter();
    if (comm_ != nullptr || !uses_nccl_) {
      wait_for_watched(timeout_.count() == 0
                           ? kLongestFarewell
                           : std::min<std::chrono::nanoseconds>(timeout_, kLongestFarewell));
    }
    if (comm_ != nullptr) {
      const gpu::CommHandle comm = std::exchange(comm_, nullptr);
      if (watched_.empty()) {
        libraries_.nccl->destroy(comm);
      } else {
        libraries_.nccl->abort(comm);
      }
    }
    wait_for_watched(1s);  // an aborted communicator's work ends soon
    const gpu::StreamHandle stream = std::exchange(stream_, nullptr);
    if (watched_.empty()) {  // else the device may still use it: better lost than used again
      for (void* const memory : allocated_) {
        cuda().free(memory);
      }
      cuda().free_stream(stream);
    }
    staging_.reset();
  } catch (const Error& error) {
    log_.error(error.what());
    stream_ = nullptr;
  }
  watched_.clear();
}

}  // namespace bluefog
