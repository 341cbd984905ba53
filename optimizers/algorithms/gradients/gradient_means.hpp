#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "bluefog_cpp/context.hpp"
#include "bluefog_cpp/work.hpp"
#include "ops/compression.hpp"
#include "optimizers/bucket.hpp"
#include "optimizers/parameter.hpp"

namespace bluefog::optimizers {

/// The form in which gradients travel.
struct GradientCode {
  /// C; null: gradients as they are, or of low rank.
  std::shared_ptr<const ops::Compression> compression{};
  /// r of low-rank means; 0: none.
  std::int64_t low_rank = 0;
  /// Whether what a code leaves out comes with the next one.
  bool has_error_feedback = true;
};

/// A way to make gradients of buckets, and their flags, the mean over all ranks. The calls of a round
/// are one for each bucket, in their order, then those of `finish`.
class GradientMeans {
 public:
  GradientMeans() = default;
  GradientMeans(const GradientMeans&) = delete;
  GradientMeans& operator=(const GradientMeans&) = delete;
  virtual ~GradientMeans() = default;

  /// Makes ready what bucket b sends. @param flags that were set in it.
  virtual void prepare(std::size_t /*b*/, std::span<const std::uint8_t> /*flags*/) {}
  /// The call of bucket b.
  [[nodiscard]] virtual Work send(std::size_t b) = 0;
  /// The number of calls that `finish` makes.
  [[nodiscard]] virtual std::size_t later_calls() const { return 0; }
  /// After all calls of buckets: gradients and flags become means. Makes or refuses its own calls.
  virtual void finish() {}
  /// A round has failed: leaves its memory to calls that go on.
  virtual void forget() {}
  /// The values that it carries, as `Algorithm::state`.
  [[nodiscard]] virtual NamedTensors state() const { return {}; }
  virtual void restart() {}
};

/// @param context, buckets outlive it; buckets have gradients.
/// @throws UnsupportedError naming the bucket, where a code cannot take its parameters.
[[nodiscard]] std::unique_ptr<GradientMeans> make_gradient_means(Context& context,
                                                                 std::vector<Bucket>& buckets,
                                                                 const GradientCode& code);

/// The name of a bucket's call.
[[nodiscard]] std::string gradient_name(const Bucket& bucket);

}  // namespace bluefog::optimizers
