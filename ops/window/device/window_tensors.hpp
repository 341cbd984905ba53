#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string_view>
#include <utility>

#include "bluefog_cpp/device/rank_problems.hpp"
#include "ops/calls/device_tensors.hpp"
#include "ops/window/device/device_buffers.hpp"
#include "ops/window/window_call.hpp"
#include "ops/window/window_identity.hpp"
#include "ops/window/window_values.hpp"

namespace bluefog::ops {

/// The tensors of a window's calls, brought to where its buffers are: on the host, where tensors of
/// a device are copied to page-locked memory, or on devices, where they are used as they are.
class WindowTensors {
 public:
  WindowTensors(const WindowIdentity& window, const DeviceBuffers& buffers)
      : window_(window), buffers_(buffers) {}

  /// Notes the tensors of a call, which from now on is ordered behind what is on their streams.
  /// Null on the CPU. @throws StateError, CudaError, UnsupportedError.
  [[nodiscard]] std::shared_ptr<DeviceTensors> note(std::string_view call,
                                                    const ConstBufferView& input,
                                                    const BufferView& output,
                                                    StagingRules rules) const;
  /// Notes those of a put or an accumulate of `tensor`.
  [[nodiscard]] std::shared_ptr<DeviceTensors> note_put(std::string_view call,
                                                        const BufferView& tensor,
                                                        const WindowPutOptions& options) const {
    return note(call, tensor, tensor, {.writes = options.self_weight != 1.0, .held = true});
  }
  /// Notes this rank's tensor, for a call that only reads it.
  [[nodiscard]] std::shared_ptr<DeviceTensors> note_own(std::string_view call,
                                                        WindowStream stream) const {
    const BufferView own = window_.tensor_on(stream);
    return note(call, own, own, {.writes = false, .held = true});
  }

  /// Runs `body` on the elements of a tensor where the window's buffers are: on `data`, or on its
  /// copy on the host, which then goes back as far as the call writes it. `body` also gets what
  /// forms values there.
  /// @param tensors null on the CPU, and where the call concerns buffers alone.
  template <typename Body>
  void on_values(WindowCall& call, void* data, DeviceTensors* tensors, const Body& body) const {
    if (buffers_.are_used()) {
      on_device(call, tensors, static_cast<std::byte*>(data), std::ref(body));
    } else if (tensors == nullptr) {
      body(static_cast<std::byte*>(data), nullptr);
    } else {
      on_copy(call, *tensors->staged(), std::ref(body));
    }
  }

  /// After a call: what comes later on the streams of its tensors comes after it.
  static void order_streams(DeviceTensors* tensors);
  /// Runs `body`, a whole call; where it fails the streams of its tensors are ordered.
  template <typename Body>
  static void ordered_if_it_fails(DeviceTensors* tensors, Body&& body) {
    try {
      std::forward<Body>(body)();
    } catch (...) {
      const auto also = problem_of([tensors] { order_streams(tensors); });
      throw;
    }
  }
  /// Runs `body`, a whole call; the streams are ordered whether it fails or not.
  template <typename Body>
  static void in_order(DeviceTensors* tensors, Body&& body) {
    ordered_if_it_fails(tensors, std::forward<Body>(body));
    order_streams(tensors);
  }

 private:
  using ValueBody = std::function<void(std::byte*, WindowValues*)>;
  void on_copy(WindowCall& call, StagedBuffers& staged, const ValueBody& body) const;
  void on_device(WindowCall& call, DeviceTensors* tensors, std::byte* data,
                 const ValueBody& body) const;

  const WindowIdentity& window_;
  const DeviceBuffers& buffers_;
};

}  // namespace bluefog::ops
