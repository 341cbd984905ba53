#pragma once

#include <array>
#include <boost/container/small_vector.hpp>
#include <cstddef>
#include <memory>

#include "bluefog_cpp/buffer_view.hpp"
#include "bluefog_cpp/device/host_staging.hpp"
#include "bluefog_cpp/work.hpp"

namespace bluefog {

/// What a call does with its buffers.
struct StagingRules {
  /// It reads the input.
  bool reads = true;
  /// It writes the output.
  bool writes = true;
  /// Its exchange of `Pace::Together` forms the output from its beginning to its end, each place
  /// from the same place of the input: copies and messages may then overlap.
  bool in_order = false;
  /// The input's copies begin with `begin`: what comes before the call is known when it is made,
  /// and another call stands before it.
  bool held = false;
  /// The output's copies back begin when somebody waits for the call, and come after what is on the
  /// streams by then.
  bool back_on_wait = false;
};

/// The host's side of a call's buffers, which are on a device: page-locked memory, the input's
/// copies into it, which begin with the object unless they are held, and the output's copies back.
///
/// Copies go in pieces, each with an event. Used by one thread at a time.
class StagedBuffers {
 public:
  /// What is on the views' streams by now comes before the copies. @throws CudaError.
  StagedBuffers(std::shared_ptr<gpu::HostStaging> staging, ConstBufferView input, BufferView output,
                const StagingRules& rules);
  StagedBuffers(const StagedBuffers&) = delete;
  StagedBuffers& operator=(const StagedBuffers&) = delete;
  ~StagedBuffers();

  /// Once, where the rules hold it. @throws CudaError.
  void begin();
  [[nodiscard]] const StagingRules& rules() const noexcept { return rules_; }
  /// In the same memory as `host_output`.
  [[nodiscard]] ConstBufferView host_input() const;
  [[nodiscard]] BufferView host_output() const;
  /// Makes `output` what the call writes: memory that was found while it was under way.
  /// @return the host's side of it. @throws CudaError.
  [[nodiscard]] BufferView replace_output(BufferView output);
  /// Where the input is.
  [[nodiscard]] const Device& device() const noexcept { return input_.device; }

  /// How much of the input is on the host. @throws CudaError.
  [[nodiscard]] std::size_t bytes_here();
  [[nodiscard]] bool is_here() { return bytes_here() >= input_.bytes(); }

  /// What is on the views' streams by now, and on that of somebody who waits, comes before the
  /// output's copies back, none of which has begun. @throws CudaError.
  void note_streams(WaitingStream waiting = {});
  /// The first `until` bytes of the output are there: whole pieces of them begin their way to the
  /// device. @throws CudaError.
  void bring_back(std::size_t until);
  /// All of the output is there, and the call uses the host's sides no more. @throws CudaError.
  void finish();
  /// The call has ended without, and uses the host's sides no more. @throws CudaError.
  void end();
  /// After `finish` or `end`: happens when the device uses the buffers no more.
  [[nodiscard]] gpu::EventHandle done() const noexcept { return done_->get(); }
  /// Whether a stream of the views that the call was made with, or that of somebody who waits, goes
  /// into a CUDA graph now. By any thread at any time. @throws CudaError.
  [[nodiscard]] bool is_captured(WaitingStream waiting = {}) const;
  /// After `finish` or `end`: whether that has happened. @throws CudaError.
  [[nodiscard]] bool is_over();
  /// After `finish` or `end`: what comes later on the views' streams, and on that of somebody who
  /// waits, comes after `done`.
  void order_streams(WaitingStream waiting = {});

 private:
  void copy_input();
  void copy_output(std::size_t until);
  void note_stream(gpu::StreamHandle stream);

  std::shared_ptr<gpu::HostStaging> staging_;
  ConstBufferView input_;
  BufferView output_;
  StagingRules rules_;
  gpu::MemoryBlock block_;
  /// Of an output that came later.
  gpu::MemoryBlock output_block_;
  /// Of the views that the call was made with.
  const std::array<gpu::StreamHandle, 2> first_streams_;
  /// Each of them once, and that of an output that came later.
  boost::container::small_vector<gpu::StreamHandle, 2> streams_;
  /// By stream: what was on it before the call, or when it was noted last.
  boost::container::small_vector<gpu::Event, 2> ready_;
  /// By piece of the input: it is on the host.
  boost::container::small_vector<gpu::Event, 4> arrivals_;
  std::size_t arrived_ = 0;
  /// Bytes of the output that are on their way or there.
  std::size_t brought_ = 0;
  bool has_begun_back_ = false;
  std::shared_ptr<const gpu::Event> done_;
};

}  // namespace bluefog
