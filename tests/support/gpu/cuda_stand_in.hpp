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

#include "bluefog_cpp/transport/cuda/cuda_api.hpp"
#include "tests/support/gpu/memory_book.hpp"

namespace bluefog::testing {

/// CUDA without a GPU: device memory is the host's, each stream runs its operations on a thread of
/// its own, events order streams and nothing else does. All ranks of a test share one.
///
/// Mistakes that a GPU may forgive are written down: memory used outside of its life or its bounds,
/// by two streams without an order, calls outside of `enter` and `leave`, handles of others.
/// Kernels are the sums of tests/support/device_sums.hpp.
class CudaStandIn final : public gpu::CudaApi {
 public:
  /// What an operation of a stream does when its turn comes; true from `stopped` ends a wait.
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
  void* allocate(std::size_t bytes) override;
  void free(void* memory) override;
  void* allocate_host(std::size_t bytes) override;
  void free_host(void* memory) override;
  void copy(void* to, const void* from, std::size_t bytes, gpu::StreamHandle stream) override;
  gpu::FunctionHandle load(std::span<const std::byte> image, const char* name) override;
  void launch(gpu::FunctionHandle function, gpu::Grid grid, std::span<const std::byte> argument,
              gpu::StreamHandle stream) override;

  /// Enqueues an operation that touches `accesses`.
  void enqueue(gpu::StreamHandle stream, const std::string& what,
               const std::vector<Access>& accesses, Task task);
  /// Enqueues `task` after the stream's next `copies` copies, once.
  void enqueue_after(gpu::StreamHandle stream, int copies, Task task);
  /// Returns when everything on the stream has run; what the calling thread enqueues later, on any
  /// stream, comes after it.
  void synchronize(gpu::StreamHandle stream);

  /// The next call of that name by a thread that has entered `device` fails with that code.
  void fail_next(const std::string& call, int device, int code);
  /// Throws what `fail_next` has asked for. @throws CudaError.
  [[nodiscard]] int injected(const std::string& call);
  [[nodiscard]] static int current_device();

  void report(const std::string& mistake) { book_.report(mistake); }
  [[nodiscard]] std::vector<std::string> mistakes() const { return book_.mistakes(); }
  /// Calls and what was enqueued so far, by name.
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
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<Task> tasks;
    bool ends = false;
    /// Operations so far, and what comes before the next one. Under the stand-in's mutex.
    std::uint64_t enqueued = 0;
    Clock clock;
    std::jthread thread;
  };

  [[nodiscard]] Stream& stream_of(gpu::StreamHandle handle);
  void check_entered(const std::string& call);
  static void run(Stream& stream);
  static void push(Stream& stream, Task task);

  const int devices_;
  MemoryBook book_;
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<Stream>> streams_;
  std::set<const void*> live_streams_;
  std::map<int, Stream*> default_streams_;
  /// By event: what it was recorded for last.
  std::map<const void*, std::shared_ptr<Completion>> events_;
  std::uintptr_t next_event_ = 1;
  std::set<std::string> functions_;
  std::map<std::thread::id, Clock> hosts_;
  std::map<std::pair<std::string, int>, int> failures_;
  std::map<std::string, int> counts_;
  struct Later {
    int copies = 0;
    Task task;
  };
  /// By stream.
  std::map<const void*, Later> later_;
};

}  // namespace bluefog::testing
