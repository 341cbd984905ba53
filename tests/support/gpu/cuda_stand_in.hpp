#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "bluefog_cpp/device/cuda/cuda_api.hpp"
#include "tests/support/gpu/captured_graph.hpp"
#include "tests/support/gpu/ipc_book.hpp"
#include "tests/support/gpu/memory_book.hpp"

namespace bluefog::testing {

/// CUDA without a GPU: device memory is the host's, each stream runs its operations on a thread of
/// its own, and events alone order streams. All ranks of a test share one.
///
/// Mistakes that a GPU may forgive are recorded: memory used outside of its life or its bounds, or
/// by two streams without an order, calls outside of `enter` and `leave`, handles of others, memory
/// of a device that another one does not reach. Ranks are threads of one process, unless each has a
/// `CudaProcess`.
/// Kernels are the sums of tests/support/device_sums.hpp.
///
/// Memory is given back, as by CUDA, when all work of its device is done: who would wait for ever
/// makes a mistake.
///
/// A capturing stream puts its operations into a graph, whose replays are checked like everything
/// else. Mistakes that spoil a capture on a GPU spoil it here, and are recorded: streams of other
/// captures or none, queries and waits of the host, calls that a thread's mode prohibits, streams
/// that are not joined at its end.
class CudaStandIn final : public gpu::CudaApi {
 public:
  /// The work of a stream's operation when its turn comes; true from `stopped` ends a wait.
  using Task = std::function<void()>;

  explicit CudaStandIn(int devices);
  ~CudaStandIn() override;

  int device_count() override { return devices_; }
  void enter(int device) override;
  void leave() override;
  gpu::StreamHandle make_stream() override;
  void free_stream(gpu::StreamHandle stream) override;
  gpu::EventHandle make_event() override;
  void free_event(gpu::EventHandle event) override;
  void record(gpu::EventHandle event, gpu::StreamHandle stream) override;
  bool has_happened(gpu::EventHandle event) override;
  void wait(gpu::StreamHandle stream, gpu::EventHandle event) override;
  gpu::CaptureInfo capture_of(gpu::StreamHandle stream) override;
  gpu::CaptureMode exchange_capture_mode(gpu::CaptureMode mode) override;
  gpu::EventHandle make_shared_event() override;
  gpu::IpcHandle export_event(gpu::EventHandle event) override { return export_event(event, 0); }
  gpu::EventHandle open_event(const gpu::IpcHandle& handle) override {
    return open_event(handle, 0);
  }
  gpu::IpcHandle export_memory(void* memory) override { return export_memory(memory, 0); }
  void* open_memory(const gpu::IpcHandle& handle) override { return open_memory(handle, 0); }
  void close_memory(void* memory) override;
  void reach(int device) override;
  std::uint64_t process() override { return 0; }
  void* allocate(std::size_t bytes) override;
  void free(void* memory) override;
  void* allocate_host(std::size_t bytes) override;
  void free_host(void* memory) override;
  void copy(void* to, const void* from, std::size_t bytes, gpu::StreamHandle stream) override;
  void zero(void* memory, std::size_t bytes, gpu::StreamHandle stream) override;
  gpu::FunctionHandle load(std::span<const std::byte> image, const char* name) override;
  void launch(gpu::FunctionHandle function, gpu::Grid grid, std::span<const std::byte> argument,
              gpu::StreamHandle stream) override;

  // The calls of the same names, made in `process`.
  gpu::IpcHandle export_event(gpu::EventHandle event, std::uint64_t process);
  gpu::EventHandle open_event(const gpu::IpcHandle& handle, std::uint64_t process);
  gpu::IpcHandle export_memory(void* memory, std::uint64_t process);
  void* open_memory(const gpu::IpcHandle& handle, std::uint64_t process);

  /// Operations put on the stream from now on, by this thread or others, go into a graph.
  void begin_capture(gpu::StreamHandle stream, gpu::CaptureMode mode = gpu::CaptureMode::Global);
  /// @throws CudaError for a capture that was spoilt, or whose streams are not joined.
  [[nodiscard]] std::shared_ptr<CapturedGraph> end_capture(gpu::StreamHandle stream);
  /// Runs the captured operations, after those already on the stream.
  void replay(const std::shared_ptr<CapturedGraph>& graph, gpu::StreamHandle stream);
  /// `object` lasts as long as the graph that the stream's capture makes.
  void keep_in_graph(gpu::StreamHandle stream, std::shared_ptr<const void> object);

  /// Enqueues an operation that touches `accesses`.
  void enqueue(gpu::StreamHandle stream, const std::string& what,
               const std::vector<Access>& accesses, Task task);
  /// Enqueues `task` after the stream's next `copies` copies, once.
  void enqueue_after(gpu::StreamHandle stream, int copies, Task task);
  /// Returns when everything on the stream has run; operations that the calling thread enqueues
  /// later, on any stream, come after it.
  void synchronize(gpu::StreamHandle stream);

  /// Orders everything that any host has seen done before everything that any host enqueues later:
  /// hosts order each other by locks that the stand-in does not see. Lucky orders count too.
  void let_hosts_order();

  /// Frees memory as an allocator does that keeps it for later: nobody waits for the device.
  void keep_freed(void* memory);

  /// The next calls of that name by threads that have entered `device` fail with that code.
  void fail_next(const std::string& call, int device, int code, int times = 1);
  /// Throws the error that `fail_next` has asked for. @throws CudaError.
  [[nodiscard]] int injected(const std::string& call);
  [[nodiscard]] static int current_device();

  void report(const std::string& mistake) { book_.report(mistake); }
  [[nodiscard]] std::vector<std::string> mistakes() const { return book_.mistakes(); }
  /// Numbers of calls and of enqueued operations so far, by name.
  [[nodiscard]] std::map<std::string, int> counts() const;

 private:
  struct Completion {
    std::mutex mutex;
    std::condition_variable changed;
    bool happened = false;
    Clock clock;
  };
  struct Stream {
    int number = 0;
    int device = 0;
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<Task> tasks;
    bool is_at_work = false;
    /// Operations so far, and those before the next one. Under the stand-in's mutex.
    std::uint64_t enqueued = 0;
    Clock clock;
    std::jthread thread;
  };

  /// The last record of an event.
  struct Recorded {
    std::shared_ptr<Completion> completion{};
    /// The place on a stream that captured.
    std::shared_ptr<CaptureUnderWay> capture{};
    std::size_t mark = 0;
  };

  /// Null if the stream does not capture. @throws CudaError if its capture was spoilt.
  [[nodiscard]] CaptureUnderWay* capture_on(gpu::StreamHandle handle);
  /// Whether the wait went into a graph.
  [[nodiscard]] bool capture_wait(gpu::StreamHandle handle, const Recorded& recorded);
  void check_capture_mode(const std::string& call);
  [[noreturn]] void spoil(CaptureUnderWay* capture, int code, const std::string& mistake);

  [[nodiscard]] Stream& stream_of(gpu::StreamHandle handle);
  void check_entered(const std::string& call);
  /// Returns when all work that is on the current device by now is done.
  void wait_for_device(const std::string& call);
  /// The real place of `memory`, of a call on the current device.
  [[nodiscard]] const void* reached(const void* memory, const std::string& call);
  static void run(Stream& stream);
  static void push(Stream& stream, Task task);

  const int devices_;
  MemoryBook book_;
  IpcBook ipc_{[this](const std::string& mistake) { report(mistake); }};
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<Stream>> streams_;
  std::set<const void*> live_streams_;
  std::map<int, Stream*> default_streams_;
  std::map<const void*, Recorded> events_;
  /// The capture of each stream.
  std::map<const void*, std::shared_ptr<CaptureUnderWay>> captures_;
  std::uint64_t captures_begun_ = 0;
  std::uintptr_t next_event_ = 1;
  std::set<const void*> shared_events_;
  struct DeviceBlock {
    std::size_t bytes = 0;
    int device = 0;
  };
  /// Blocks of `allocate`.
  std::map<const std::byte*, DeviceBlock> blocks_;
  /// Pairs of devices of which the first reaches the second.
  std::set<std::pair<int, int>> reached_;
  std::set<std::string> functions_;
  std::map<std::thread::id, Clock> hosts_;
  bool hosts_order_ = false;
  /// Operations that any host has seen done, if hosts order each other.
  Clock seen_;
  struct Failure {
    int code = 0;
    int times = 0;
  };
  std::map<std::pair<std::string, int>, Failure> failures_;
  std::map<std::string, int> counts_;
  struct Later {
    int copies = 0;
    Task task;
  };
  /// The waiting task of each stream.
  std::map<const void*, Later> later_;
};

}  // namespace bluefog::testing
