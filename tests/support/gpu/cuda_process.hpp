#pragma once

#include <memory>
#include <utility>

#include "tests/support/gpu/cuda_stand_in.hpp"

namespace bluefog::testing {

/// A `CudaStandIn` as one process sees it. Ranks that have one each, although they are threads,
/// must open each other's memory and events before they use them.
class CudaProcess final : public gpu::CudaApi {
 public:
  /// @param number 1 or more, of its own.
  CudaProcess(std::shared_ptr<CudaStandIn> cuda, std::uint64_t number)
      : cuda_(std::move(cuda)), number_(number) {}

  gpu::IpcHandle export_event(gpu::EventHandle event) override {
    return cuda_->export_event(event, number_);
  }
  gpu::EventHandle open_event(const gpu::IpcHandle& handle) override {
    return cuda_->open_event(handle, number_);
  }
  gpu::IpcHandle export_memory(void* memory) override {
    return cuda_->export_memory(memory, number_);
  }
  void* open_memory(const gpu::IpcHandle& handle) override {
    return cuda_->open_memory(handle, number_);
  }
  std::uint64_t process() override { return number_; }

  int device_count() override { return cuda_->device_count(); }
  void enter(int device) override { cuda_->enter(device); }
  void leave() override { cuda_->leave(); }
  gpu::StreamHandle make_stream() override { return cuda_->make_stream(); }
  void free_stream(gpu::StreamHandle stream) override { cuda_->free_stream(stream); }
  gpu::EventHandle make_event() override { return cuda_->make_event(); }
  gpu::EventHandle make_shared_event() override { return cuda_->make_shared_event(); }
  void free_event(gpu::EventHandle event) override { cuda_->free_event(event); }
  void record(gpu::EventHandle event, gpu::StreamHandle stream) override {
    cuda_->record(event, stream);
  }
  bool has_happened(gpu::EventHandle event) override { return cuda_->has_happened(event); }
  void wait(gpu::StreamHandle stream, gpu::EventHandle event) override {
    cuda_->wait(stream, event);
  }
  gpu::CaptureInfo capture_of(gpu::StreamHandle stream) override {
    return cuda_->capture_of(stream);
  }
  gpu::CaptureMode exchange_capture_mode(gpu::CaptureMode mode) override {
    return cuda_->exchange_capture_mode(mode);
  }
  void close_memory(void* memory) override { cuda_->close_memory(memory); }
  void reach(int device) override { cuda_->reach(device); }
  void* allocate(std::size_t bytes) override { return cuda_->allocate(bytes); }
  void free(void* memory) override { cuda_->free(memory); }
  void* allocate_host(std::size_t bytes) override { return cuda_->allocate_host(bytes); }
  void free_host(void* memory) override { cuda_->free_host(memory); }
  void copy(void* to, const void* from, std::size_t bytes, gpu::StreamHandle stream) override {
    cuda_->copy(to, from, bytes, stream);
  }
  void zero(void* memory, std::size_t bytes, gpu::StreamHandle stream) override {
    cuda_->zero(memory, bytes, stream);
  }
  gpu::FunctionHandle load(std::span<const std::byte> image, const char* name) override {
    return cuda_->load(image, name);
  }
  void launch(gpu::FunctionHandle function, gpu::Grid grid, std::span<const std::byte> argument,
              gpu::StreamHandle stream) override {
    cuda_->launch(function, grid, argument, stream);
  }

 private:
  std::shared_ptr<CudaStandIn> cuda_;
  std::uint64_t number_;
};

}  // namespace bluefog::testing
