#include "tests/cuda/gpu.hpp"

#include <chrono>
#include <thread>
#include <utility>

#include "bluefog_cpp/deadline.hpp"
#include "bluefog_cpp/device/cuda/shared_object.hpp"
#include "bluefog_cpp/error.hpp"

namespace bluefog::testing {
namespace {

/// The process loads CUDA once: its contexts last as long.
const std::shared_ptr<gpu::CudaApi>& loaded() {
  static const std::shared_ptr<gpu::CudaApi> cuda = gpu::load_cuda();
  return cuda;
}

std::string find_obstacle() {
  try {
    return loaded()->device_count() > 0 ? "" : "no CUDA device";
  } catch (const Error& error) {
    return error.what();
  }
}

/// cuLaunchHostFunc, or null.
auto* host_function_launcher() {
  using Launcher = int(void* stream, void (*function)(void*), void* argument);
  static Launcher* const launcher = [] {
    Launcher* found = nullptr;
    gpu::SharedObject("libcuda.so.1").bind_if_there(found, "cuLaunchHostFunc");
    return found;
  }();
  return launcher;
}

using Gate = std::shared_ptr<std::atomic<bool>>;

void wait_at_gate(void* argument) {
  const std::unique_ptr<Gate> gate(static_cast<Gate*>(argument));
  (*gate)->wait(false);
}

}  // namespace

const std::string& why_no_gpu() {
  static const std::string obstacle = find_obstacle();
  return obstacle;
}

Gpu::Gpu(int number) : cuda_(loaded()), device_(number % cuda_->device_count()) {
  cuda_->enter(device_);
  stream_ = make_stream();
}

Gpu::~Gpu() {
  open();
  try {
    for (gpu::StreamHandle const stream : streams_) {
      synchronize(stream);
    }
    for (void* const memory : allocated_) {
      cuda_->free(memory);
    }
    for (gpu::StreamHandle const stream : streams_) {
      cuda_->free_stream(stream);
    }
    cuda_->leave();
  } catch (const Error&) {  // NOLINT: the test has failed already
  }
}

gpu::StreamHandle Gpu::make_stream() {
  streams_.push_back(cuda_->make_stream());
  return streams_.back();
}

std::byte* Gpu::allocate(std::size_t bytes, std::size_t shift) {
  void* const memory = cuda_->allocate(bytes + shift + 1);
  allocated_.push_back(memory);
  return static_cast<std::byte*>(memory) + shift;
}

BufferView Gpu::upload(Values values, std::size_t shift) {
  BufferView view = values.view();
  view.data = allocate(view.bytes(), shift);
  if (view.count > 0) {
    cuda_->copy(view.data, values.bytes().data(), view.bytes(), stream_);
  }
  synchronize();  // the values end here
  view.device = {.kind = DeviceKind::Cuda, .index = device_};
  view.stream = stream_;
  return view;
}

Values Gpu::download(const BufferView& view) {
  Values values(view.dtype, static_cast<std::size_t>(view.count));
  if (view.count > 0) {
    cuda_->copy(values.bytes().data(), view.data, view.bytes(), view.stream);
  }
  synchronize(view.stream);
  return values;
}

void Gpu::copy(const BufferView& to, const BufferView& from) {
  if (to.count > 0) {
    cuda_->copy(to.data, from.data, to.bytes(), to.stream);
  }
}

void Gpu::synchronize(gpu::StreamHandle stream) {
  const auto deadline = Deadline::after(std::chrono::minutes(1));
  const gpu::EventHandle event = cuda_->make_event();
  cuda_->record(event, stream);
  while (!cuda_->has_happened(event)) {
    if (deadline.expired()) {
      throw TimeoutError("a stream of CUDA device " + std::to_string(device_) +
                         " is not done after a minute");
    }
    std::this_thread::yield();
  }
  cuda_->free_event(event);
}

std::string Gpu::why_not_shut() {
  return host_function_launcher() == nullptr ? "the driver calls no functions of the host" : "";
}

void Gpu::shut(gpu::StreamHandle stream) {
  if (host_function_launcher() == nullptr) {
    return;
  }
  if (!is_open_) {
    is_open_ = std::make_shared<std::atomic<bool>>(false);
  }
  auto gate = std::make_unique<Gate>(is_open_);
  if (const int code = host_function_launcher()(stream, wait_at_gate, gate.get()); code != 0) {
    throw CudaError(code, "cuLaunchHostFunc");
  }
  (void)gate.release();  // the function's
}

void Gpu::open() {
  if (is_open_) {
    is_open_->store(true);
    is_open_->notify_all();
    is_open_.reset();
  }
}

}  // namespace bluefog::testing
