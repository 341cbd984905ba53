#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "ops/calls/device_tensors.hpp"
#include "ops/window.hpp"
#include "ops/window/coded_put.hpp"
#include "ops/window/device/device_buffers.hpp"
#include "ops/window/device/window_tensors.hpp"
#include "ops/window/lock_site.hpp"
#include "ops/window/own_part.hpp"
#include "ops/window/window_call.hpp"
#include "ops/window/window_identity.hpp"
#include "ops/window/window_memory.hpp"
#include "ops/window/window_mutexes.hpp"
#include "ops/window/window_parts.hpp"

namespace bluefog::ops {

/// The calls of a `Window`, on this rank's part of it and the other ranks'.
class WindowCore : public std::enable_shared_from_this<WindowCore> {
 public:
  WindowCore(Context& context, BufferView tensor, const NeighborPlan& plan,
             const WindowOptions& options);

  /// Collective: creates the window.
  void open(WindowFill fill);
  /// Collective: frees it, on all ranks or on none.
  void close();
  /// Frees it without the other ranks: they are told when they come.
  void abandon() noexcept;
  /// @throws StateError after `close`, or in a fork of the process.
  void check_open(std::string_view call) const;

  /// Who holds the memory that a call works on while the device still uses it.
  enum class Caller : std::uint8_t {
    Waits,   ///< whoever made the call, in the order of a stream
    GoesOn,  ///< the call itself, which ends when the device has ended
  };
  /// @param tensors noted for `tensor`; null on the CPU.
  void store(const BufferView& tensor, StoreMode mode, const WindowPutOptions& options,
             DeviceTensors* tensors, Caller caller);
  /// @param tensors noted for this rank's own tensor.
  void fetch(const WindowGetOptions& options, DeviceTensors* tensors);
  void announce(std::int64_t stamp);
  /// `Window::wait_for`, with arguments that were checked.
  [[nodiscard]] bool wait_for(std::span<const WeightedRank> sources, std::int64_t stamp,
                              std::optional<std::chrono::nanoseconds> longest);
  void update(const WindowUpdateOptions& options);
  void fill(WindowFill fill, WindowStream stream);
  void publish(WindowStream stream);
  /// Starts `task`, a call on tensors that were noted.
  [[nodiscard]] Work start(std::shared_ptr<DeviceTensors> tensors, std::function<void()> task);

  [[nodiscard]] const WindowIdentity& identity() const noexcept { return identity_; }
  [[nodiscard]] const WindowTensors& tensors() const noexcept { return tensors_; }
  [[nodiscard]] WindowMutexes& mutexes() noexcept { return mutexes_; }
  [[nodiscard]] const WindowMemory& own() const { return own_.memory(); }
  [[nodiscard]] TaskQueue& tasks() noexcept { return identity_.hub().tasks(); }
  void set_associated_weight(AssociatedWeight state) noexcept { weight_state_ = state; }

 private:
  /// Why the window cannot be freed now, or nothing.
  [[nodiscard]] std::string obstacle_to_freeing();
  [[nodiscard]] bool counts_weight() const { return weight_state_ == AssociatedWeight::On; }
  /// The site of locks of this rank's memory.
  [[nodiscard]] LockSite own_site(WindowCall& call) const;
  void publish_value(WindowCall& call, const std::byte* value, WindowValues* values);
  /// Scales, after a put, the tensor's elements and the associated weight, which was `mass`.
  void scale(std::byte* data, double mass, double self_weight, WindowValues* values);
  /// @param coded null where values travel as they are; else its values are `value`'s.
  void store_at(WindowCall& call, int rank, StoreMode mode, const WeightedBytes& value,
                WindowValues* values, const CodedPut* coded);
  void fetch_from(WindowCall& call, const WeightedRank& source, WindowValues* values);
  /// Fetches through memory that is shared with the source.
  void fetch_shared(WindowCall& call, const WeightedRank& source, const WindowMemory& memory,
                    WindowValues* values);
  /// Fetches by asking the source's server.
  void fetch_by_asking(WindowCall& call, const WeightedRank& source);

  WindowIdentity identity_;
  std::atomic<AssociatedWeight> weight_state_;
  OwnPart own_;
  DeviceBuffers buffers_{identity_};
  WindowTensors tensors_{identity_, buffers_};
  WindowParts parts_{identity_};
  WindowMutexes mutexes_{identity_, parts_};
  std::atomic<bool> is_closed_{false};
  /// Peers know that this rank's part is gone; its memory may be another window's by now.
  std::atomic<bool> has_left_{false};
};

}  // namespace bluefog::ops
