#include "tests/support/gpu/cuda_stand_in.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "bluefog_cpp/error.hpp"
#include "tests/support/device_sums.hpp"

namespace bluefog::testing {
namespace {

thread_local std::vector<int> entered_devices;

/// CUDA_ERROR_INVALID_HANDLE.
constexpr int kInvalidHandle = 400;

}  // namespace

CudaStandIn::CudaStandIn(int devices) : devices_(devices) {
  for (int device = 0; device < devices; ++device) {
    enter(device);
    default_streams_[device] = static_cast<Stream*>(make_stream());
    leave();
  }
}

CudaStandIn::~CudaStandIn() {
  for (const auto& stream : streams_) {
    push(*stream, nullptr);
  }
  streams_.clear();  // what they still run may call this
}

int CudaStandIn::current_device() { return entered_devices.empty() ? -1 : entered_devices.back(); }

void CudaStandIn::enter(int device) {
  if (device < 0 || device >= devices_) {
    throw CudaError(101, fmt::format("cuDeviceGet of device {}: invalid device ordinal", device));
  }
  entered_devices.push_back(device);
}

void CudaStandIn::leave() {
  if (entered_devices.empty()) {
    report("leave without enter");
    return;
  }
  entered_devices.pop_back();
}

void CudaStandIn::check_entered(const std::string& call) {
  if (entered_devices.empty()) {
    report(call + " without a current device");
  }
  if (const int code = injected(call); code != 0) {
    throw CudaError(code, call + ": an injected error");
  }
}

int CudaStandIn::injected(const std::string& call) {
  const std::scoped_lock lock(mutex_);
  ++counts_[call];
  const auto failure = failures_.find({call, current_device()});
  return failure == failures_.end() || failure->second.times-- <= 0 ? 0 : failure->second.code;
}

void CudaStandIn::fail_next(const std::string& call, int device, int code, int times) {
  const std::scoped_lock lock(mutex_);
  failures_[{call, device}] = {.code = code, .times = times};
}

void CudaStandIn::let_hosts_order() {
  const std::scoped_lock lock(mutex_);
  hosts_order_ = true;
}

std::map<std::string, int> CudaStandIn::counts() const {
  const std::scoped_lock lock(mutex_);
  return counts_;
}

gpu::StreamHandle CudaStandIn::make_stream() {
  check_entered("cuStreamCreate");
  auto stream = std::make_unique<Stream>();
  Stream* const raw = stream.get();
  const std::scoped_lock lock(mutex_);
  raw->number = static_cast<int>(streams_.size());
  raw->device = current_device();
  raw->thread = std::jthread([raw] { run(*raw); });
  streams_.push_back(std::move(stream));
  live_streams_.insert(raw);
  return raw;
}

void CudaStandIn::free_stream(gpu::StreamHandle handle) {
  check_entered("cuStreamDestroy");
  const std::scoped_lock lock(mutex_);
  if (captures_.contains(handle)) {
    spoil(captures_.at(handle).get(), 900, "cuStreamDestroy of a stream that captures");
  }
  if (live_streams_.erase(handle) == 0) {
    book_.report("cuStreamDestroy of no stream");
  }
}

CudaStandIn::Stream& CudaStandIn::stream_of(gpu::StreamHandle handle) {
  if (handle == nullptr) {
    return *default_streams_.at(current_device());
  }
  if (!live_streams_.contains(handle)) {
    book_.report("use of a stream that is none");
    throw CudaError(kInvalidHandle, "invalid resource handle");
  }
  return *static_cast<Stream*>(handle);
}

void CudaStandIn::run(Stream& stream) {
  while (true) {
    std::unique_lock lock(stream.mutex);
    stream.changed.wait(lock, [&] { return !stream.tasks.empty(); });
    const Task task = std::move(stream.tasks.front());
    stream.tasks.pop_front();
    stream.is_at_work = true;
    lock.unlock();
    if (!task) {
      return;
    }
    task();
    lock.lock();
    stream.is_at_work = false;
  }
}

void CudaStandIn::push(Stream& stream, Task task) {
  const std::scoped_lock lock(stream.mutex);
  stream.tasks.push_back(std::move(task));
  stream.changed.notify_one();
}

void CudaStandIn::enqueue(gpu::StreamHandle handle, const std::string& what,
                          const std::vector<Access>& accesses, Task task) {
  const std::scoped_lock lock(mutex_);
  Stream& stream = stream_of(handle);
  if (CaptureUnderWay* const capture = capture_on(handle)) {
    capture->run(handle, what, accesses, std::move(task));
    return;
  }
  const std::uint64_t number = ++stream.enqueued;
  join(stream.clock, hosts_[std::this_thread::get_id()]);
  join(stream.clock, seen_);
  stream.clock[stream.number] = number;
  book_.enqueue(stream.number, number, stream.clock, accesses, what);
  ++counts_[what];
  push(stream, [this, own = stream.number, number, todo = std::move(task)] {
    todo();
    book_.finish(own, number);
  });
}

gpu::EventHandle CudaStandIn::make_event() {
  check_entered("cuEventCreate");
  const std::scoped_lock lock(mutex_);
  auto* const event = reinterpret_cast<gpu::EventHandle>(next_event_++);
  events_[event] = {};
  return event;
}

void CudaStandIn::free_event(gpu::EventHandle event) {
  check_entered("cuEventDestroy");
  if (ipc_.close(event, "cuEventDestroy")) {
    return;
  }
  ipc_.forget(event, "cuEventDestroy");
  const std::scoped_lock lock(mutex_);
  if (events_.erase(event) == 0) {
    book_.report("cuEventDestroy of no event");
  }
}

void CudaStandIn::record(gpu::EventHandle event, gpu::StreamHandle handle) {
  check_entered("cuEventRecord");
  event = ipc_.resolve(event, "cuEventRecord");
  const std::scoped_lock lock(mutex_);
  if (!events_.contains(event)) {
    book_.report("cuEventRecord of no event");
    return;
  }
  Stream& stream = stream_of(handle);
  if (CaptureUnderWay* const capture = capture_on(handle)) {
    events_[event] = {.capture = captures_.at(handle), .mark = capture->record(handle)};
    return;
  }
  auto completion = std::make_shared<Completion>();
  join(stream.clock, hosts_[std::this_thread::get_id()]);
  completion->clock = stream.clock;
  events_[event] = {.completion = completion};
  push(stream, [completion] {
    const std::scoped_lock inner(completion->mutex);
    completion->happened = true;
    completion->changed.notify_all();
  });
}

bool CudaStandIn::has_happened(gpu::EventHandle event) {
  check_entered("cuEventQuery");
  check_capture_mode("cuEventQuery");
  event = ipc_.resolve(event, "cuEventQuery");
  const std::scoped_lock lock(mutex_);
  const auto found = events_.find(event);
  if (found == events_.end()) {
    book_.report("cuEventQuery of no event");
    return true;
  }
  if (const auto& capture = found->second.capture) {
    spoil(capture.get(), 907, "cuEventQuery of an event that was recorded in a capture");
  }
  const auto& completion = found->second.completion;
  if (!completion) {
    return true;  // as CUDA says of one that was never recorded
  }
  const std::scoped_lock inner(completion->mutex);
  if (completion->happened) {
    join(hosts_[std::this_thread::get_id()], completion->clock);
    if (hosts_order_) {
      join(seen_, completion->clock);
    }
  }
  return completion->happened;
}

void CudaStandIn::wait(gpu::StreamHandle handle, gpu::EventHandle event) {
  check_entered("cuStreamWaitEvent");
  const void* const opened = event;
  event = ipc_.resolve(event, "cuStreamWaitEvent");
  const std::scoped_lock lock(mutex_);
  const auto found = events_.find(event);
  if (found == events_.end()) {
    book_.report("cuStreamWaitEvent for no event");
    return;
  }
  Stream& stream = stream_of(handle);
  if (capture_wait(handle, found->second)) {
    return;
  }
  const auto completion = found->second.completion;
  if (!completion) {
    if (opened != event) {
      book_.report("cuStreamWaitEvent for an event that another process has not recorded");
    }
    return;
  }
  join(stream.clock, completion->clock);
  push(stream, [completion] {
    std::unique_lock inner(completion->mutex);
    completion->changed.wait(inner, [&] { return completion->happened; });
  });
}

void CudaStandIn::synchronize(gpu::StreamHandle handle) {
  {
    const std::scoped_lock lock(mutex_);
    if (CaptureUnderWay* const capture = capture_on(handle)) {
      spoil(capture, 900, "cuStreamSynchronize of a stream that captures");
    }
  }
  const gpu::EventHandle event = make_event();
  record(event, handle);
  while (!has_happened(event)) {
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  free_event(event);
}

void CudaStandIn::copy(void* to, const void* from, std::size_t bytes, gpu::StreamHandle stream) {
  check_entered("cuMemcpyAsync");
  from = reached(from, "cuMemcpyAsync");
  to = const_cast<void*>(reached(to, "cuMemcpyAsync"));
  enqueue(stream, "cuMemcpyAsync",
          {{.memory = from, .bytes = bytes, .writes = false},
           {.memory = to, .bytes = bytes, .writes = true}},
          [=] {
            if (bytes > 0) {
              std::memmove(to, from, bytes);
            }
          });
  Task due;
  {
    const std::scoped_lock lock(mutex_);
    const auto later = captures_.contains(stream) ? later_.end() : later_.find(stream);
    if (later != later_.end() && --later->second.copies == 0) {
      due = std::move(later->second.task);
      later_.erase(later);
    }
  }
  if (due) {
    enqueue(stream, "task", {}, std::move(due));
  }
}

void CudaStandIn::zero(void* memory, std::size_t bytes, gpu::StreamHandle stream) {
  check_entered("cuMemsetD8Async");
  memory = const_cast<void*>(reached(memory, "cuMemsetD8Async"));
  enqueue(stream, "cuMemsetD8Async", {{.memory = memory, .bytes = bytes, .writes = true}},
          [=] { std::memset(memory, 0, bytes); });
}

void CudaStandIn::enqueue_after(gpu::StreamHandle stream, int copies, Task task) {
  const std::scoped_lock lock(mutex_);
  later_[stream] = {.copies = copies, .task = std::move(task)};
}

gpu::FunctionHandle CudaStandIn::load(std::span<const std::byte> /*image*/, const char* name) {
  check_entered("cuModuleGetFunction");
  check_capture_mode("cuModuleGetFunction");
  const std::scoped_lock lock(mutex_);
  return const_cast<std::string*>(&*functions_.insert(name).first);
}

void CudaStandIn::launch(gpu::FunctionHandle function, gpu::Grid grid,
                         std::span<const std::byte> argument, gpu::StreamHandle stream) {
  check_entered("cuLaunchKernel");
  if (argument.size() != sizeof(ops::cuda::SumArguments) || grid.blocks == 0 || grid.threads == 0) {
    report("cuLaunchKernel with another argument or grid than the kernel's");
    return;
  }
  const std::string name = *static_cast<const std::string*>(function);
  auto sum = std::make_shared<ops::cuda::SumArguments>();
  std::memcpy(sum.get(), argument.data(), sizeof *sum);
  sum->out = const_cast<void*>(reached(sum->out, name));
  for (int s = 0; s < sum->operand_count; ++s) {
    sum->operands[s].data = reached(sum->operands[s].data, name);
  }
  const auto bytes = static_cast<std::size_t>(sum->count) * sum_element_bytes(name);
  std::vector<Access> accesses{{.memory = sum->out, .bytes = bytes, .writes = true}};
  for (int s = 0; s < sum->operand_count; ++s) {
    accesses.push_back({.memory = sum->operands[s].data, .bytes = bytes, .writes = false});
  }
  const int threads = static_cast<int>(std::min(grid.blocks * grid.threads, 1024U));
  enqueue(stream, name, accesses, [=] { run_sum_kernel(name, *sum, threads); });
}

}  // namespace bluefog::testing
