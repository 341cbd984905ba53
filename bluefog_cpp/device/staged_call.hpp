#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <span>

#include "bluefog_cpp/device/device_channel.hpp"
#include "bluefog_cpp/device/staged_buffers.hpp"
#include "bluefog_cpp/engine/operation.hpp"
#include "bluefog_cpp/work.hpp"

namespace bluefog {

/// A call whose buffers are on a device, by the CPU's operation on their staged copies.
///
/// It begins when the input is on the host, or with its first piece where results come in order:
/// copies to the host, messages, sums and copies to the device then overlap. To other ranks it is
/// the CPU's call.
///
/// The result of a call that is held back until somebody waits (`StagingRules::back_on_wait`) stays
/// on the host until then, also where its messages were taken earlier, for a later call.
class StagedCall final : public Operation, private Supply {
 public:
  /// @param operation on the buffers' host sides.
  StagedCall(std::shared_ptr<DeviceChannel> channel, std::shared_ptr<Operation> operation,
             std::shared_ptr<StagedBuffers> buffers);

  [[nodiscard]] const Envelope& envelope() const noexcept override {
    return operation_->envelope();
  }
  [[nodiscard]] int partner() const noexcept override { return operation_->partner(); }
  bool next(ExchangeSpec& spec) override;
  void receive(std::size_t offset, std::size_t bytes, std::span<const Piece> pieces) override;
  [[nodiscard]] bool may_begin() override;
  void finish() override;
  void give_up() noexcept override;

  /// Lets a result go to the device that was held back until somebody waits, after the work that is
  /// by now on the buffers' streams and on `waiting`. @throws CudaError.
  void take_result(WaitingStream waiting);
  /// Does the work of `take_result`, once the call has ended, where nobody will wait for it.
  void note_dropped() noexcept;
  /// Orders later work on the buffers' streams and on `waiting` after the call, which has ended.
  void order_streams(WaitingStream waiting);
  /// @throws StateError in the capture of a CUDA graph on one of these streams: no such call can be
  ///   part of it.
  void check_capture(WaitingStream waiting) const;
  [[nodiscard]] Device device() const noexcept { return buffers_->device(); }
  [[nodiscard]] bool has_happened();

 private:
  [[nodiscard]] std::size_t bytes_here() override { return buffers_->bytes_here(); }
  void watch();
  void bring_result_back(WaitingStream waiting);

  std::shared_ptr<DeviceChannel> channel_;
  std::shared_ptr<Operation> operation_;
  std::shared_ptr<StagedBuffers> buffers_;
  /// Whether the exchange under way forms the output in order.
  bool is_in_order_ = false;
  /// Whether the buffers' last use is known.
  bool has_ended_ = false;
  /// Guards a result that is held back: whoever waits and the engine's drivers come in any order.
  std::mutex result_mutex_;
  bool has_result_ = false;
  bool is_dropped_ = false;
};

/// A `StagedCall` under way: `wait` returns when the result is on its way to the device.
class StagedWork final : public Pending {
 public:
  StagedWork(std::shared_ptr<Engine> engine, std::shared_ptr<StagedCall> call)
      : engine_(std::move(engine)), call_(std::move(call)) {}
  ~StagedWork() override { call_->note_dropped(); }

  void wait(WaitingStream stream) override;
  void synchronize() override;
  [[nodiscard]] bool done() const noexcept override;
  [[nodiscard]] Device device() const noexcept override { return call_->device(); }

 private:
  void end(WaitingStream stream);

  std::shared_ptr<Engine> engine_;
  std::shared_ptr<StagedCall> call_;
};

}  // namespace bluefog
