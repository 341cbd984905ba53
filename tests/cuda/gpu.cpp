#include "tests/cuda/gpu.hpp"

#include <thread>
#include <utility>

#include "bluefog_cpp/base/error.hpp"

namespace bluefog::testing {
namespace {

/// One for the process: contexts of CUDA last as long.
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

}  // namespace

const std::string& why_no_gpu() {
  static const std::string obstacle = find_obstacle();
  return obstacle;
}

Gpu::Gpu(int number) : cuda_(loaded()), device_(number % cuda_->device_count()) {
  cuda_->enter(device_);
  stream_ = cuda_->make_stream();
}

Gpu::~Gpu() {
  try {
    synchronize();
    for (void* const memory : allocated_) {
      cuda_->free(memory);
    }
    cuda_->free_stream(stream_);
    cuda_->leave();
  } catch (const CudaError&) {  // NOLINT: the test has failed already
  }
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
  synchronize();
  return values;
}

void Gpu::synchronize() {
  const gpu::EventHandle event = cuda_->make_event();
  cuda_->record(event, stream_);
  while (!cuda_->has_happened(event)) {
    std::this_thread::yield();
  }
  cuda_->free_event(event);
}

}  // namespace bluefog::testing
