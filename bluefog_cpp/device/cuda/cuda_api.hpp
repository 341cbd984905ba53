#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace bluefog::gpu {

/// CUstream, CUevent and CUfunction: no CUDA header is needed to hand them on. A null stream is the
/// device's default stream.
using StreamHandle = void*;
using EventHandle = void*;
using FunctionHandle = void*;

/// CUipcMemHandle and CUipcEventHandle: the keys by which another process opens memory or an event.
using IpcHandle = std::array<std::byte, 64>;

/// Blocks of a launch, and threads of each.
struct Grid {
  unsigned blocks = 1;
  unsigned threads = 1;
};

/// The fate of work that is put on a stream.
enum class CaptureStatus : std::uint8_t {
  /// The work runs.
  None,
  /// The work goes into a graph instead.
  Active,
  /// The work goes nowhere: the graph was spoilt.
  Invalidated,
};

struct CaptureInfo {
  CaptureStatus status = CaptureStatus::None;
  /// The number of the capture while there is one; no other capture of the process has the same.
  std::uint64_t id = 0;
};

/// Whether a thread may make calls that no graph would replay, such as taking memory.
enum class CaptureMode : std::uint8_t {
  /// No, while any thread captures in this mode, in which threads begin.
  Global = 0,
  /// No, while this thread captures.
  ThreadLocal = 1,
  Relaxed = 2,
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
  /// The event happens when all work that is on the stream by now is done.
  virtual void record(EventHandle event, StreamHandle stream) = 0;
  [[nodiscard]] virtual bool has_happened(EventHandle event) = 0;
  /// Later work on the stream waits for the event as it was last recorded.
  virtual void wait(StreamHandle stream, EventHandle event) = 0;

  /// An event that other processes may open.
  [[nodiscard]] virtual EventHandle make_shared_event() = 0;
  [[nodiscard]] virtual IpcHandle export_event(EventHandle event) = 0;
  /// Opens an event of another process for `wait` and `has_happened`, which then mean what that
  /// process has recorded by then. `free_event` gives it back, before its owner frees it.
  [[nodiscard]] virtual EventHandle open_event(const IpcHandle& handle) = 0;

  /// Exports memory of `allocate`, with all that lies in the same 2 MiB.
  [[nodiscard]] virtual IpcHandle export_memory(void* memory) = 0;
  /// Opens another process's memory, also of another device where the current one reaches that.
  /// `close_memory` gives it back, before its owner frees it.
  [[nodiscard]] virtual void* open_memory(const IpcHandle& handle) = 0;
  virtual void close_memory(void* memory) = 0;
  /// Makes the memory of `device` reachable from the current device, in this process.
  virtual void reach(int device) = 0;
  /// The identity of the process that owns the handles: handles are only opened in other processes.
  [[nodiscard]] virtual std::uint64_t process() = 0;

  /// @throws CudaError for the default stream while a stream that waits for it captures.
  [[nodiscard]] virtual CaptureInfo capture_of(StreamHandle stream) = 0;
  /// Sets the calling thread's mode. @return the one before.
  virtual CaptureMode exchange_capture_mode(CaptureMode mode) = 0;

  [[nodiscard]] virtual void* allocate(std::size_t bytes) = 0;
  /// Frees the memory; may wait for the device.
  virtual void free(void* memory) = 0;
  /// Memory of the host that is locked to its pages: the device copies from and to it while the
  /// host goes on.
  [[nodiscard]] virtual void* allocate_host(std::size_t bytes) = 0;
  virtual void free_host(void* memory) = 0;
  /// Copies between memory of the device, or of it and the host.
  virtual void copy(void* to, const void* from, std::size_t bytes, StreamHandle stream) = 0;
  /// Sets memory of the device to zero.
  virtual void zero(void* memory, std::size_t bytes, StreamHandle stream) = 0;

  /// The kernel `name` of a fat binary, for the current device. Valid as long as this object.
  [[nodiscard]] virtual FunctionHandle load(std::span<const std::byte> image, const char* name) = 0;
  /// @param argument the bytes of the kernel's only argument; copied.
  virtual void launch(FunctionHandle function, Grid grid, std::span<const std::byte> argument,
                      StreamHandle stream) = 0;
};

/// CUDA's driver, loaded from `library`: one for the process, with the kernels that were loaded.
/// @throws UnsupportedError where this build has no CUDA, or there is no such library, or it lacks
///   a function. @throws CudaError where there is one that finds no device.
[[nodiscard]] std::shared_ptr<CudaApi> load_cuda(const std::string& library = "libcuda.so.1");

}  // namespace bluefog::gpu
