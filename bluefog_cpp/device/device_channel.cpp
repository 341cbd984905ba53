#include "bluefog_cpp/device/device_channel.hpp"

#include <fmt/format.h>

#include <utility>

#include "bluefog_cpp/base/linger.hpp"
#include "bluefog_cpp/base/message_of.hpp"
#include "bluefog_cpp/deadline.hpp"
#include "bluefog_cpp/device/links/link_search.hpp"
#include "bluefog_cpp/device/rank_problems.hpp"
#include "bluefog_cpp/error.hpp"

namespace bluefog {

std::shared_ptr<DeviceChannel> DeviceChannel::connect(Bootstrap& bootstrap,
                                                      const gpu::Libraries* libraries, int device,
                                                      const Logger& log, const Settings& settings,
                                                      const MachineLayout& hosts,
                                                      std::shared_ptr<shm::HostArena> arena) {
  const Deadline deadline = Deadline::after(settings.timeout);
  std::shared_ptr<DeviceChannel> channel;
  const std::string call = fmt::format("rank {}, use_device", bootstrap.rank());
  const auto problem = problem_of([&] {
    try {
      const gpu::Libraries loaded =
          libraries != nullptr ? *libraries : gpu::Libraries{.cuda = gpu::load_cuda()};
      const int count = loaded.cuda->device_count();
      if (device < 0 || device >= count) {
        throw InvalidArgument(count == 0 ? fmt::format("{}: found no CUDA device", call)
                                         : fmt::format("{}: expected a device in 0 to {}, found {}",
                                                       call, count - 1, device));
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
  using Nccl = LinkSearch::Parts::Nccl;
  channel->link_ = LinkSearch(bootstrap,
                              {.libraries = channel->libraries_,
                               .nccl = libraries == nullptr ? Nccl::Load : Nccl::AsGiven,
                               .device = device,
                               .stream = channel->stream_,
                               .staging = channel->staging_,
                               .kernels = channel->kernels_,
                               .settings = channel->settings_,
                               .hosts = hosts,
                               .arena = std::move(arena),
                               .log = log},
                              deadline)
                       .find();
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
      launched_(libraries_.cuda, rank_, settings.timeout),
      launches_(size_),
      events_(std::make_shared<gpu::EventPool>(libraries_.cuda, device)),
      memory_(std::make_shared<gpu::MemoryPool>(libraries_.cuda, device, gpu::MemoryKind::Device,
                                                launched_.is_quiet())),
      scratch_(libraries_.cuda),
      link_end_(libraries_.cuda, device, log),
      kernels_(libraries_.cuda) {
  const gpu::DeviceScope scope = enter();
  stream_ = cuda().make_stream();
  lane_ = {.stream = stream_, .scratch = &scratch_, .memory = memory_.get()};
  staging_ =
      std::make_shared<gpu::HostStaging>(libraries_.cuda, events_, device, launched_.is_quiet());
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
  return {lane_,
          {.stream = captures_->stream_for(*capture),
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

bool DeviceChannel::attend() {
  const auto now = LaunchedCalls::Clock::now();
  if (!launched_.is_due(now)) {
    return false;
  }
  try {
    const gpu::DeviceScope scope = enter();
    if (launched_.take_finished()) {
      return true;
    }
    if (is_linked()) {
      launched_.check(*link_, now);
    }
  } catch (const Error&) {
    if (!is_linked()) {
      launched_.clear();  // a device that tells nothing any more
    }
    end(std::current_exception());
  }
  return false;
}

std::vector<int> DeviceChannel::awaited_ranks() const {
  return is_linked() ? launched_.awaited_ranks() : std::vector<int>{};
}

// Offered payloads come whatever their sender does afterwards.
void DeviceChannel::note_failure(int rank, std::uint64_t call, const std::string& reason,
                                 bool is_over) {
  if (is_linked() && link_->offers()) {
    return;
  }
  if (const auto why = launched_.failure_by(rank, call, reason, is_over)) {
    end(why, reason);
  }
}

// A rank may have left when its own part was done: the bytes that it sent are on their way.
void DeviceChannel::note_death(int rank, const std::string& cause_of_death) {
  if (!link_->has_delivered(rank)) {
    launched_.note_death(rank, cause_of_death);
  }
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
  using Notify = LaunchedCalls::Notify;
  launched_.cut_short(cause, link_->offers() ? Notify::Nobody : Notify::OtherRanks);
  log_.error(fmt::format("no calls on CUDA device {} any more: {}", device_, message_of(why)));
  try {
    const gpu::DeviceScope scope = enter();
    link_end_.begin(link_, captures_, [](DeviceLink& link) { link.abort(); });
  } catch (const Error& error) {
    log_.error(error.what());
  }
}

std::exception_ptr DeviceChannel::failure() const {
  const std::scoped_lock lock(failure_mutex_);
  return failure_;
}

void DeviceChannel::close() noexcept {
  if (stream_ == nullptr) {
    return;
  }
  try {
    const gpu::DeviceScope scope = enter();
    if (!has_ended_) {
      launched_.wait(linger::within(linger::kDeviceCalls, settings_.timeout));
    }
    if (link_ && !link_end_.has_thread()) {
      link_end_.begin(
          link_, captures_,
          launched_.is_empty() ? [](DeviceLink& link) { link.close(true); }
                               : [](DeviceLink& link) { link.close(false); });
    }
    launched_.wait(linger::kAbortedWork);
    launched_.give_up();
    const gpu::StreamHandle stream = std::exchange(stream_, nullptr);
    if (launched_.is_empty() &&
        lost_.empty()) {  // else it may be in use: better lost than used again
      scratch_.free();
      cuda().free_stream(stream);
    }
    staging_.reset();
    memory_.reset();
    if (!link_end_.wait(linger::kDeviceLink)) {
      log_.info(
          fmt::format("{} on device {} are still there: what they use is given back after the "
                      "last of them",
                      captures_ ? "CUDA graphs with calls of this context, or other ranks' links,"
                                : "other ranks' links to this context",
                      device_));
    }
  } catch (const Error& error) {
    log_.error(error.what());
    stream_ = nullptr;
  }
  launched_.clear();
}

}  // namespace bluefog
