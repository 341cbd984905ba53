#pragma once

#include <array>
#include <boost/container/small_vector.hpp>
#include <cstddef>
#include <memory>

#include "bluefog_cpp/buffer_view.hpp"
#include "bluefog_cpp/device/host_staging.hpp"
#include "bluefog_cpp/work.hpp"

namespace bluefog {

/// The ways in which a call uses its buffers.
struct StagingRules {
  /// The call reads the input.
  bool reads = true;
  /// The call writes the output.
  bool writes = true;
  /// The call's exchange of `Pace::Together` forms the output from its beginning to its end, each
  /// place from the same place of the input: copies and messages may then overlap.
  bool in_order = false;
  /// The input's copies begin with `begin`: the work before the call is known when it is made, and
  /// another call stands before it.
  bool held = false;
  /// The output's copies back begin when somebody waits for the call, and come after the work that
  /// is on the streams by then.
  bool back_on_wait = false;
};

/// The host's side of a call's buffers, which are on a device: page-locked memory, the input's
/// copies into it, which begin with the object unless they are held, and the output's copies back.
///
/// Copies go in pieces, each with an event. Used by one thread at a time.
class StagedBuffers {
 public:
  /// The copies come after the work that is on the views' streams by now. @throws CudaError.
  StagedBuffers(std::shared_ptr<gpu::HostStaging> staging, ConstBufferView input, BufferView output,
                const StagingRules& rules);
  StagedBuffers(const StagedBuffers&) = delete;
  StagedBuffers& operator=(const StagedBuffers&) = delete;
  ~StagedBuffers();

  /// Begins the input's copies, once, where the rules hold them. @throws CudaError.
  void begin();
  [[nodiscard]] const StagingRules& rules() const noexcept { return rules_; }
  /// The input's copy, in the same memory as `host_output`.
  [[nodiscard]] ConstBufferView host_input() const;
  [[nodiscard]] BufferView host_output() const;
  /// Makes `output` what the call writes: memory that was found while the call was under way.
  /// @return its host side. @throws CudaError.
  [[nodiscard]] BufferView replace_output(BufferView output);
  /// The device of the buffers.
  [[nodiscard]] const Device& device() const noexcept { return input_.device; }

  /// The number of bytes of the input that are on the host. @throws CudaError.
  [[nodiscard]] std::size_t bytes_here();
  [[nodiscard]] bool is_here() { return bytes_here() >= input_.bytes(); }

  /// Makes the output's copies back, none of which has begun, come after the work that is by now on
  /// the views' streams and on that of somebody who waits. @throws CudaError.
  void note_streams(WaitingStream waiting = {});
  /// Sends the first `until` bytes of the output, which are there, to the device in whole pieces.
  /// @throws CudaError.
  void bring_back(std::size_t until);
  /// Ends a call with all its output there; it uses the host's sides no more. @throws CudaError.
  void finish();
  /// Ends a call that brings no output, and uses the host's sides no more. @throws CudaError.
  void end();
  /// The event, after `finish` or `end`, that happens when the device uses the buffers no more.
  [[nodiscard]] gpu::EventHandle done() const noexcept { return done_->get(); }
  /// Whether a stream of the views that the call was made with, or that of somebody who waits, goes
  /// into a CUDA graph now. Any thread may ask at any time. @throws CudaError.
  [[nodiscard]] bool is_captured(WaitingStream waiting = {}) const;
  /// Whether `done` has happened, after `finish` or `end`. @throws CudaError.
  [[nodiscard]] bool is_over();
  /// Makes later work on the views' streams, and on that of somebody who waits, come after `done`;
  /// after `finish` or `end`.
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
  /// The host's side of an output that came later.
  gpu::MemoryBlock output_block_;
  /// The streams of the views that the call was made with.
  const std::array<gpu::StreamHandle, 2> first_streams_;
  /// Each of `first_streams_` once, and the stream of an output that came later.
  boost::container::small_vector<gpu::StreamHandle, 2> streams_;
  /// The events of the streams: work before the call, or before the stream was noted last.
  boost::container::small_vector<gpu::Event, 2> ready_;
  /// The events of the input's pieces: the piece is on the host.
  boost::container::small_vector<gpu::Event, 4> arrivals_;
  std::size_t arrived_ = 0;
  /// Bytes of the output that are on their way or there.
  std::size_t brought_ = 0;
  bool has_begun_back_ = false;
  std::shared_ptr<const gpu::Event> done_;
};

}  // namespace bluefog
