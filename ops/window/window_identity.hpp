#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "bluefog_cpp/buffer_view.hpp"
#include "bluefog_cpp/context.hpp"
#include "bluefog_cpp/error.hpp"
#include "bluefog_cpp/one_sided/one_sided.hpp"
#include "bluefog_cpp/transport/message.hpp"
#include "ops/window.hpp"
#include "ops/window/window_call.hpp"
#include "ops/window/window_memory.hpp"

namespace bluefog::ops {

/// The identity of a window: its tensor, plan and name in its context, and how its calls, errors
/// and requests to other ranks are named by them.
class WindowIdentity {
 public:
  WindowIdentity(Context& context, BufferView tensor, const NeighborPlan& plan, std::string name);
  WindowIdentity(const WindowIdentity&) = delete;
  WindowIdentity& operator=(const WindowIdentity&) = delete;

  /// Takes the window's number, when all ranks are there. Until then there is no `hub`.
  void enter(OneSided& hub);

  [[nodiscard]] Context& context() const noexcept { return *context_; }
  [[nodiscard]] OneSided& hub() const noexcept { return *hub_; }
  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] const BufferView& tensor() const noexcept { return tensor_; }
  /// This rank's tensor, on the stream that a call names.
  [[nodiscard]] BufferView tensor_on(WindowStream stream) const;
  [[nodiscard]] const NeighborPlan& plan() const noexcept { return plan_; }
  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  /// The number of the window, the same on all ranks.
  [[nodiscard]] std::uint32_t number() const noexcept { return number_; }
  /// Ranks that the window has buffers for, in their order.
  [[nodiscard]] const std::vector<std::int32_t>& sources() const noexcept { return sources_; }

  /// Whether the tensor is on a device: others find its value where it is published.
  [[nodiscard]] bool publishes() const noexcept { return tensor_.device.kind != DeviceKind::Cpu; }
  [[nodiscard]] OwnValue own_value() const noexcept {
    return publishes() ? OwnValue::Published : OwnValue::InTensor;
  }
  /// The shape of a rank's part with so many sources.
  [[nodiscard]] WindowMemory::Shape shape_of(std::size_t sources, OwnValue own_value) const;

  /// "rank 1, window 'w', win_put", which messages begin with.
  [[nodiscard]] std::string where(std::string_view call) const;
  /// Begins a call, for the timeline and the flight record.
  [[nodiscard]] WindowCall begin_call(std::string_view name) const {
    return WindowCall(*context_, name, envelope_);
  }
  /// Runs `body` as a call that the timeline and the flight record show.
  template <typename Body>
  void run(std::string_view name, const Body& body) const {
    WindowCall call = begin_call(name);
    try {
      body(call);
    } catch (const std::exception& e) {
      call.fail(e);
      throw;
    }
  }
  /// Runs `function`, whose CudaError gets a place.
  template <typename Function>
  auto placed(std::string_view call, const Function& function) const {
    try {
      return function();
    } catch (const CudaError& error) {
      throw CudaError(error.code(), place_of(call, error));
    }
  }

 private:
  [[nodiscard]] std::string place_of(std::string_view call, const std::exception& error) const;

  std::shared_ptr<Context> context_;
  OneSided* hub_ = nullptr;
  int rank_;
  BufferView tensor_;
  NeighborPlan plan_;
  std::string name_;
  Envelope envelope_;
  std::uint32_t number_ = 0;
  std::vector<std::int32_t> sources_;
};

}  // namespace bluefog::ops
