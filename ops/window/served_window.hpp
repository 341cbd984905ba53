#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "bluefog_cpp/buffer_view.hpp"
#include "bluefog_cpp/one_sided/window_message.hpp"
#include "ops/window/window_memory.hpp"

namespace bluefog::ops {

/// Serves a window to ranks that share no memory with this one.
class ServedWindow final : public WindowTarget {
 public:
  /// @param sources the ranks that the window has buffers for, rising.
  ServedWindow(const WindowMemory& memory, BufferView tensor, std::vector<std::int32_t> sources,
               TakeLock take)
      : memory_(memory),
        tensor_(std::move(tensor)),
        sources_(std::move(sources)),
        take_(std::move(take)) {}

  void store(int source, const WindowMessage& request, std::span<const std::byte> payload) override;
  std::span<const std::byte> load(int source, double& mass, std::vector<std::byte>& room) override;
  void set_stamp(int source, std::int64_t stamp) override;
  bool try_lock(int source) override;
  [[nodiscard]] int holder() const override { return memory_.mutex().holder(); }
  void unlock(int source) override;

 private:
  WindowMemory memory_;
  BufferView tensor_;
  std::vector<std::int32_t> sources_;
  TakeLock take_;
  /// The rank for which this process holds the mutex.
  int holder_ = -1;
};

}  // namespace bluefog::ops
