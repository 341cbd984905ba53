#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bluefog_cpp/buffer_view.hpp"
#include "optimizers/parameter.hpp"

namespace bluefog::optimizers {

/// A parameter's place in a bucket.
struct Segment {
  std::string name;  ///< the parameter's, as the model knows it
  /// The user's parameter: its memory is the segment.
  at::Tensor parameter;
  /// Element at which the segment starts; a multiple of 64 bytes.
  std::int64_t offset = 0;
  std::vector<std::int64_t> sizes;    ///< the shape that it had when the bucket was made, and keeps
  std::vector<std::int64_t> strides;  ///< in elements: the layout that it has in the bucket

  /// The parameter's elements, without padding.
  [[nodiscard]] std::int64_t count() const noexcept { return parameter.numel(); }
};

/// Whether `parameter` lies in a bucket that exists: averages are written into it from there.
[[nodiscard]] bool is_in_a_bucket(const at::Tensor& parameter);

/// Flat tensors of `count` zeros.
using MakeZeros = std::function<at::Tensor(std::int64_t count, const at::TensorOptions& options)>;

/// Parameters in one piece of memory, so that one operation serves all of them.
///
/// The parameters stay the same objects for their owner; only their memory moves: each has a
/// storage of its own that begins and ends with its segment, so that saving a parameter saves its
/// own elements and no others. Between segments lie zeros.
///
/// Memory layout is kept (channels_last stays so); a parameter with holes or overlaps in memory
/// becomes contiguous.
///
/// Cost: the parameters' memory, which replaces their former memory, and at most 63 bytes of
/// padding for each.
class Bucket {
 public:
  /// Moves the parameters into memory of this bucket.
  /// @param index the bucket's place among all of them.
  /// @param parameters dense, of one floating dtype, on one device; not empty.
  /// @param zeros makes the bucket's memory.
  Bucket(int index, const NamedTensors& parameters, MakeZeros zeros);

  /// The bucket's place among all of them, from 0, the same on all ranks.
  [[nodiscard]] int index() const noexcept { return index_; }
  /// "bucket 3 (fc.bias … fc.weight)".
  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  /// The parameters' places, in the order in which they lie.
  [[nodiscard]] const std::vector<Segment>& segments() const noexcept { return segments_; }

  /// All parameters, padding included. Keeps the memory alive; on a device ordered by the stream
  /// that is current in this thread.
  [[nodiscard]] BufferView values() const { return on_current_stream(values_); }

  /// Memory for an algorithm's state: flat, in the layout of `values`, zeros, with `extra` elements
  /// behind it.
  [[nodiscard]] at::Tensor make_state(std::int64_t extra = 0) const;

  /// `values` as a tensor, in the same memory.
  [[nodiscard]] const at::Tensor& flat() const noexcept { return flat_; }

  /// True if every parameter still lies in this bucket.
  [[nodiscard]] bool is_bound() const;
  /// True if the parameter of `segment` does.
  [[nodiscard]] bool is_bound(const Segment& segment) const;

  /// Takes back parameters whose memory was replaced (`torch::load`, `set_data`, a change of
  /// memory format): the value goes into the bucket, in the bucket's layout, and the parameter
  /// refers to the bucket again.
  /// @return names of the parameters that were taken back.
  /// @throws InvalidArgument naming the parameter if its dtype, shape or device has changed;
  ///   nothing is bound again then.
  std::vector<std::string> rebind();

  /// Tells autograd that the parameters' values have changed, so that a backward pass over older
  /// ones is refused.
  void note_change() const;

  /// Makes room for the gradients, in the layout of `values`, followed by one flag per parameter.
  /// Zeros at first. Cost: as much memory as the parameters.
  void add_gradients();

  /// Gradients and flags; valid after `add_gradients`.
  [[nodiscard]] BufferView gradients() const { return on_current_stream(gradients_); }

  /// `gradients` as a tensor, in the same memory.
  [[nodiscard]] const at::Tensor& flat_gradients() const noexcept { return flat_gradients_; }

  /// The gradient of parameter `i` as it lies in `gradients`: a tensor like the parameter.
  [[nodiscard]] const at::Tensor& gradient(std::size_t i) const { return gradient_tensors_[i]; }

  /// A number per parameter that lies behind the gradients and travels with them: set to 1 or 0,
  /// read (`flags_of`) as whether it is positive: after an average, whether any rank has set it.
  /// On a device the host goes on.
  void set_flags(const std::vector<std::uint8_t>& flags);

  /// All gradients and flags become zero.
  void zero_gradients();

 private:
  friend std::vector<std::vector<std::uint8_t>> flags_of(const std::vector<const Bucket*>& buckets);
  [[nodiscard]] at::Tensor alias(const at::Tensor& flat, std::int64_t offset,
                                 const Segment& segment) const;

  /// Lives as long as this bucket; the memory of its parameters may live longer.
  std::shared_ptr<const int> presence_;
  int index_;
  MakeZeros zeros_;
  std::string name_;
  std::vector<Segment> segments_;
  std::int64_t count_ = 0;
  at::Tensor flat_;
  BufferView values_;
  at::Tensor flat_gradients_;
  BufferView gradients_;
  std::vector<at::Tensor> gradient_tensors_;
  at::Tensor flag_tensor_;
};

/// Each bucket's flags. On a device the host waits for the current stream's work, once for all.
[[nodiscard]] std::vector<std::vector<std::uint8_t>> flags_of(
    const std::vector<const Bucket*>& buckets);

/// Distributes parameters over buckets of at most `bucket_bytes` each (a larger parameter has one
/// for itself), of one dtype each.
///
/// Buckets hold the parameters in reverse order, so that the first ones are ready first in a
/// backward pass; the first bucket may be smaller (`first_bucket_bytes`), so that something leaves
/// early in it. The result depends on names, shapes, dtypes and order alone: it is the same on
/// every rank of the same model.
/// 0 gives each parameter a bucket of its own. @throws InvalidArgument if a size is below 0.
[[nodiscard]] std::vector<Bucket> make_buckets(const NamedTensors& parameters,
                                               std::int64_t bucket_bytes,
                                               std::int64_t first_bucket_bytes,
                                               const MakeZeros& zeros);

}  // namespace bluefog::optimizers
