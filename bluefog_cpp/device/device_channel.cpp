#include "bluefog_cpp/device/device_channel.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <system_error>
#include <thread>
#include <utility>

#include "bluefog_cpp/base/message_of.hpp"
#include "bluefog_cpp/device/rank_problems.hpp"
#include "bluefog_cpp/error.hpp"

namespace bluefog {
namespace {

using namespace std::chrono_literals;

/// The device is asked this often whether it is done.
constexpr auto kLookPeriod = 50us;
/// What a rank sent before it left comes within this time.
constexpr auto kLastBytes = 1s;
/// How long a rank that leaves waits for what others may still need of it.
constexpr auto kLongestFarewell = 10s;
/// How long it waits for the link's end, which may be that of graphs, of which it does not know
/// whether they are still there, or that of other ranks' links.
constexpr auto kLinkEnd = 2s;
/// Of as many calls that it has ended a rank tells the others, the first ones: who waits for a later
/// one alone finds out by `BLUEFOG_TIMEOUT`.
constexpr std::size_t kMostToldOf = 64;

}  // namespace

std::shared_ptr<DeviceChannel> DeviceChannel::connect(Bootstrap& bootstrap,
                                                      const gpu::Libraries* libraries, int device,
                                                      const Logger& log, const Settings& settings,
                                                      const MachineLayout& hosts) {
  const Deadline deadline = Deadline::after(settings.timeout);
  std::shared_ptr<DeviceChannel> channel;
  const std::string call = fmt::format("rank {}, use_device", bootstrap.rank());
  const auto problem = problem_of([&] {
    try {
      const gpu::Libraries loaded =
          libraries != nullptr ? *libraries : gpu::Libraries{.cuda = gpu::load_cuda()};
      const int count = loaded.cuda->device_count();
      if (device < 0 || device >= count) {
        throw InvalidArgument(
            count == 0 ? fmt::format("{}: found no CUDA device", call)
                       : fmt::format("{}: expected a device in 0 … {}, found {}", call, count - 1,
                                     device));
      }
      channel.reset(new DeviceChannel(loaded, device, bootstrap, log, settings));
    } catch (const CudaError& error) {
      throw CudaError(error.code(),
                      fmt::format("{}, CUDA device {}: {}", call, device, error.what()));
    } catch (const UnsupportedError& error) {
      throw UnsupportedError(fmt::format("{}: {}", call, error.what()));
    }
  });
  agree_on_problem(bootstrap, "use_device", problem, deadline);
  channel->find_link(bootstrap, libraries == nullptr, hosts, deadline);
  return channel;
}

DeviceChannel::DeviceChannel(gpu::Libraries libraries, int device, const Bootstrap& bootstrap,
                             const Logger& log, const Settings& settings)
    : libraries_(std::move(libraries)),
      device_(device),
      rank_(bootstrap.rank()),
      size_(bootstrap.size()),
      log_(log),
      settings_(settings),
      timeout_(settings.timeout),
      events_(std::make_shared<gpu::EventPool>(libraries_.cuda, device)),
      memory_(std::make_shared<gpu::MemoryPool>(libraries_.cuda, device, gpu::MemoryKind::Device,
                                                is_quiet_)),
      scratch_(libraries_.cuda),
      launched_(static_cast<std::size_t>(size_)) {
  const gpu::DeviceScope scope = enter();
  stream_ = cuda().make_stream();
  lane_ = {.stream = stream_, .scratch = &scratch_, .memory = memory_.get()};
  staging_ = std::make_shared<gpu::HostStaging>(libraries_.cuda, events_, device, is_quiet_);
}

DeviceWay DeviceChannel::way_of(OpKind kind) const noexcept {
  if (!link_) {
    return DeviceWay::Host;
  }
  const auto host_if = [this](bool is_forced) {
    return is_forced ? DeviceWay::Host : link_->way();
  };
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

DeviceChannel::~DeviceChannel() { close(); }

DeviceChannel::LaneScope DeviceChannel::on_lane_of(std::optional<std::uint64_t> capture) {
  if (!capture) {
    return {lane_, lane_};
  }
  if (stream_ == nullptr) {
    throw StateError(fmt::format("rank {}: the context is closed", rank_));
  }
  if (const auto why = failure()) {
    std::rethrow_exception(why);
  }
  if (!captures_) {
    captures_ = std::make_shared<gpu::CaptureLane>(libraries_.cuda, device_);
  }
  return {lane_, {.stream = captures_->stream_for(*capture),
                  .scratch = &captures_->scratch(),
                  .memory = &captures_->memory()}};
}

void DeviceChannel::follow(gpu::StreamHandle other) {
  const gpu::CaptureInfo own = cuda().capture_of(stream());
  const gpu::CaptureInfo found = cuda().capture_of(other);
  if (own.status == found.status && own.id == found.id) {
    const gpu::Event now = take_event();
    cuda().record(now.get(), other);
    cuda().wait(stream(), now.get());
  }
}

gpu::FunctionHandle DeviceChannel::kernel(std::span<const std::byte> image, const char* name) {
  gpu::FunctionHandle& function = kernels_[name];
  if (function == nullptr) {
    function = cuda().load(image, name);
  }
  return function;
}

void DeviceChannel::watch(LaunchedCall call) {
  if (watched_.empty()) {
    moved_ = Clock::now();
  }
  watched_.push_back(std::move(call));
  note_quiet();
}

void DeviceChannel::note_quiet() {
  is_quiet_->store(std::ranges::none_of(
      watched_, [](const LaunchedCall& call) { return call.cut_short != nullptr; }));
}

bool DeviceChannel::take_finished() {
  bool moved = false;
  while (!watched_.empty() && cuda().has_happened(watched_.front().done)) {
    watched_.pop_front();
    death_ = nullptr;
    moved = true;
  }
  if (moved) {
    moved_ = Clock::now();
    note_quiet();
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
      return true;
    }
    if (is_linked()) {
      look(now);
    }
  } catch (const Error&) {
    if (!is_linked()) {
      watched_.clear();  // a device that tells nothing any more
    }
    end(std::current_exception());
  }
  return false;
}

void DeviceChannel::look(Clock::time_point now) {
  const LaunchedCall& first = watched_.front();
  if (const auto error = link_->error()) {
    throw NcclError(
        0, fmt::format("rank {}, call {}, {}: {}", rank_, first.call, first.text, *error));
  }
  if (death_ && link_->has_delivered(dead_rank_)) {
    death_ = nullptr;
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
  return watched_.empty() || !is_linked() || death_ ? std::vector<int>{} : watched_.front().partners;
}

// What was offered comes whatever its sender does afterwards.
void DeviceChannel::hear_failure(int rank, std::uint64_t call, const std::string& reason,
                                 bool is_over) {
  if (is_linked() && link_->offers()) {
    return;
  }
  // A call is there with each of its exchanges, and only the later ones may be with that rank.
  const auto of_call = std::ranges::find_if(watched_, [&](const LaunchedCall& launched) {
    return launched.call == call && (is_over || launched.is_whole) &&
           std::ranges::find(launched.partners, rank) != launched.partners.end();
  });
  if (of_call != watched_.end()) {
    end(std::make_exception_ptr(PeerFailure(
        rank, fmt::format("rank {}, call {}, {}: launched, and rank {} ended it with an error: {}",
                          rank_, call, of_call->text, rank, reason))),
        reason);
  }
}

// A rank may have left when its own part was done: what it sent is on its way.
void DeviceChannel::hear_death(int rank, const std::string& obituary) {
  if (link_->has_delivered(rank)) {
    return;
  }
  const LaunchedCall& first = watched_.front();
  heard_of_death_ = Clock::now();
  dead_rank_ = rank;
  death_ = std::make_exception_ptr(
      PeerFailure(rank, fmt::format("rank {}, call {}, {}: launched, but {}", rank_, first.call,
                                    first.text, obituary)));
}

void DeviceChannel::end(std::exception_ptr why, const std::string& cause) {
  if (!is_linked()) {
    return;
  }
  has_ended_ = true;
  {
    const std::scoped_lock lock(failure_mutex_);
    failure_ = why;
  }
  for (const LaunchedCall& call : watched_) {
    if (call.cut_short != nullptr) {
      call.cut_short->store(true, std::memory_order_release);
      // Its partners' devices may wait for this one's, and their hosts know of nothing.
      const bool is_told = !ended_calls_.empty() && ended_calls_.back().call == call.call;
      if (!link_->offers() && !is_told && ended_calls_.size() < kMostToldOf) {
        ended_calls_.push_back({call.call, cause});
      }
    }
  }
  log_.error(fmt::format("no calls on CUDA device {} any more: {}", device_, message_of(why)));
  try {
    const gpu::DeviceScope scope = enter();
    end_link([](DeviceLink& link) { link.abort(); });
  } catch (const Error& error) {
    log_.error(error.what());
  }
}

// A link with graphs ends with the last of them, and this thread may be the one that holds it. NCCL's
// waits for the other ranks of the host besides, which may wait for this thread: it drives the engine.
void DeviceChannel::end_link(void (*ending)(DeviceLink& link)) {
  if (!captures_ && !link_->ends_with_others()) {
    ending(*link_);
    return;
  }
  std::promise<void> is_over;
  link_end_ = is_over.get_future();
  try {
    std::thread([cuda = libraries_.cuda, device = device_, log = log_, link = link_,
                 captures = captures_, is_over = std::move(is_over), ending]() mutable {
      try {
        const gpu::DeviceScope scope(*cuda, device);
        ending(*link);
        if (captures) {
          captures->free();
        }
      } catch (const Error& error) {
        log.error(error.what());
      }
      is_over.set_value();
    }).detach();
  } catch (const std::system_error& error) {
    log_.error(fmt::format("no thread to end calls on CUDA device {}: {}", device_, error.what()));
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
    if (!has_ended_) {
      wait_for_watched(timeout_.count() == 0
                           ? kLongestFarewell
                           : std::min<std::chrono::nanoseconds>(timeout_, kLongestFarewell));
    }
    if (link_ && !link_end_.valid()) {
      end_link(watched_.empty() ? [](DeviceLink& link) { link.close(true); }
                                : [](DeviceLink& link) { link.close(false); });
    }
    wait_for_watched(1s);  // an aborted link's work ends soon
    const gpu::StreamHandle stream = std::exchange(stream_, nullptr);
    if (watched_.empty() && lost_.empty()) {  // else it may be in use: better lost than used again
      scratch_.free();
      cuda().free_stream(stream);
    }
    staging_.reset();
    memory_.reset();
    if (link_end_.valid() && link_end_.wait_for(kLinkEnd) != std::future_status::ready) {
      log_.info(fmt::format("{} on device {} are still there: what they use is given back after the "
                            "last of them",
                            captures_ ? "CUDA graphs with calls of this context, or other ranks' links,"
                                      : "other ranks' links to this context",
                            device_));
    }
  } catch (const Error& error) {
    log_.error(error.what());
    stream_ = nullptr;
  }
  watched_.clear();
}

}  // namespace bluefog
