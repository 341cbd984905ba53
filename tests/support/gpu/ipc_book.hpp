#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>

#include "bluefog_cpp/device/cuda/cuda_api.hpp"

namespace bluefog::testing {

/// The memory and events that the processes of a stand-in have shown each other and opened. Opened
/// ones get addresses of their own, at which nothing lies. Finds handles that are opened where they
/// were made, closed twice, used after closing, or freed by their owner while open. Thread-safe.
class IpcBook {
 public:
  /// @param report takes mistakes.
  explicit IpcBook(std::function<void(const std::string&)> report) : report_(std::move(report)) {}
  ~IpcBook();

  [[nodiscard]] gpu::IpcHandle show(void* what, std::size_t bytes, std::uint64_t process);
  /// @param call for messages. @throws CudaError for a handle of that process's own, or of none.
  [[nodiscard]] void* open(const gpu::IpcHandle& handle, std::uint64_t process,
                           const std::string& call);
  /// @return whether it was opened, and is closed now.
  bool close(const void* opened, const std::string& call);
  /// The owner's address behind `place`; `place` itself if it was not opened.
  [[nodiscard]] void* resolve(const void* place, const std::string& call);
  /// Called when the owner gives `what` back.
  void forget(const void* what, const std::string& call);

 private:
  struct Shown {
    void* what = nullptr;
    std::size_t bytes = 0;
    std::uint64_t process = 0;
  };
  struct Opened {
    void* what = nullptr;
    std::size_t bytes = 0;
    bool is_closed = false;
  };

  std::function<void(const std::string&)> report_;
  std::mutex mutex_;
  std::map<std::uint64_t, Shown> shown_;
  std::map<const std::byte*, Opened> opened_;
};

}  // namespace bluefog::testing
