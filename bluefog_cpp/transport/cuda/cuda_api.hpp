#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace bluefog::gpu {

/// CUstream, CUevent and CUfunction: no CUDA header is needed to hand them on. A null stream is the
/// device's default stream.
using StreamHandle = void*;
using EventHandle = void*;
using FunctionHandle = void*;

/// Blocks of a launch, and threads of each.
struct Grid {
  unsigned blocks = 1;
  unsigned threads = 1;
};

/// The calls of CUDA that this library makes: the driver's, or a stand-in's in tests.
///
/// All but `device_count` and `enter` are made between `enter` and `leave` of the device that the
/// handle or memory belongs to. Thread-safe. Every call throws CudaError with CUDA's own code.
class CudaApi {
 public:
  CudaApi() = default;
  CudaApi(const CudaApi&) = delete;
  CudaApi& operator=(const CudaApi&) = delete;
  virtual ~CudaApi() = default;

  [[nodiscard]] virtual int device_count() = 0;

  /// Makes `device` the calling thread's current one; `leave` brings back the one before. They
  /// nest.
  virtual void enter(int device) = 0;
  virtual void leave() = 0;

  /// A stream of the highest priority, which does not wait for the default stream.
  [[nodiscard]] virtual StreamHandle make_stream() = 0;
  virtual void free_stream(StreamHandle stream) = 0;

  [[nodiscard]] virtual EventHandle make_event() = 0;
  virtual void free_event(EventHandle event) = 0;
  /// The event happens when what is on the stream by now is done.
  virtual void record(EventHandle event, StreamHandle stream) = 0;
  [[nodiscard]] virtual bool has_happened(EventHandle event) = 0;
  /// What comes later on the stream waits for the event, as it was recorded last.
  virtual void wait(StreamHandle stream, EventHandle event) = 0;

  [[nodiscard]] virtual void* allocate(std::size_t bytes) = 0;
  /// May wait for the device.
  virtual void free(void* memory) = 0;
  /// Memory of the host that is locked to its pages: the device copies from and to it while the host
  /// goes on.
  [[nodiscard]] virtual void* allocate_host(std::size_t bytes) = 0;
  virtual void free_host(void* memory) = 0;
  /// Between memory of the device, or of it and the host.
  virtual void copy(void* to, const void* from, std::size_t bytes, StreamHandle stream) = 0;

  /// The kernel `name` of a fat binary, for the current device. Valid as long as this object.
  [[nodiscard]] virtual FunctionHandle load(std::span<const std::byte> image, const char* name) = 0;
  /// @param argument the bytes of the kernel's only argument; copied.
  virtual void launch(FunctionHandle function, Grid grid, std::span<const std::byte> argument,
                      StreamHandle stream) = 0;
};

/// CUDA's driver, loaded from `library`.
/// @throws UnsupportedError where this build has no CUDA, or there is no such library, or it lacks
/// a
///   function. @throws CudaError where there is one that finds no device.
[[nodiscard]] std::shared_ptr<CudaApi> load_cuda(const std::string& library = "libcuda.so.1");

}  // namespace bluefog::gpu
