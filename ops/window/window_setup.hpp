#pragma once

#include <exception>
#include <functional>
#include <vector>

#include "ops/window/device/device_buffers.hpp"
#include "ops/window/device/window_tensors.hpp"
#include "ops/window/own_part.hpp"
#include "ops/window/window_identity.hpp"
#include "ops/window/window_parts.hpp"
#include "ops/window/window_record.hpp"

namespace bluefog::ops {

/// The creation of a window by all ranks together: they tell each other what each asks for, check
/// that it fits, make room on their devices or on the host, and connect. All get the window, or
/// none.
class WindowSetup {
 public:
  /// The parts of the window, which the setup fills in.
  struct Parts {
    WindowIdentity& window;
    OwnPart& own;
    DeviceBuffers& buffers;
    WindowTensors& tensors;
    WindowParts& ranks;
  };

  WindowSetup(const Parts& parts, AssociatedWeight weight)
      : window_(parts.window),
        own_(parts.own),
        buffers_(parts.buffers),
        tensors_(parts.tensors),
        ranks_(parts.ranks),
        weight_(weight) {}

  /// Collective, once. Leaves nothing behind where it fails.
  /// @throws InvalidArgument, UnsupportedError, CudaError on a rank that cannot, PeerFailure on the
  ///   others; MismatchError.
  void open(WindowFill fill);

 private:
  /// This rank's part, as far as its arguments tell. @throws InvalidArgument, UnsupportedError.
  [[nodiscard]] WindowRecord describe() const;
  void agree_and_connect(WindowFill fill);
  /// Collective, where all ranks may. @return false, on all ranks, where that does not work:
  /// nothing
  ///   is left of it.
  [[nodiscard]] bool open_on_devices(WindowRecord record, WindowFill fill);
  /// Collective. @return why some rank could not open the others' buffers; empty where all could.
  [[nodiscard]] std::string open_others(const std::vector<WindowRecord>& records);
  void leave_devices(const std::string& obstacle);
  /// Collective.
  void open_on_host(WindowRecord record, WindowFill fill);
  void allocate(WindowFill fill);
  /// The error of `step`, as `create` says it to all ranks, or null.
  [[nodiscard]] std::exception_ptr attempt(const std::function<void()>& step) const;
  /// Collective. Exchanges what all ranks say. @throws `refusal`, where this rank has one, and
  ///   PeerFailure on the others; MismatchError.
  [[nodiscard]] std::vector<WindowRecord> exchange(WindowRecord own, std::exception_ptr refusal);
  /// Collective.
  void connect(const std::vector<WindowRecord>& records);

  WindowIdentity& window_;
  OwnPart& own_;
  DeviceBuffers& buffers_;
  WindowTensors& tensors_;
  WindowParts& ranks_;
  AssociatedWeight weight_;
  /// Another rank may have this rank's buffers on its device open.
  bool may_be_open_ = false;
};

}  // namespace bluefog::ops
