#pragma once

#include <optional>
#include <vector>

#include "bluefog_cpp/log.hpp"
#include "optimizers/algorithm.hpp"
#include "optimizers/algorithm_row.hpp"
#include "optimizers/bucket.hpp"
#include "optimizers/buckets/bound_values.hpp"
#include "optimizers/parameter.hpp"

namespace bluefog::optimizers {

/// The parameters of a distributed optimizer between its steps: those that it trains, in their
/// buckets, and the frozen ones. Tells what the caller has changed, and takes it back or refuses it.
class HeldParameters {
 public:
  /// @param rank for messages. @param log, row outlive this object.
  /// @param row of the algorithm, whose carried values may belong to the parameters'
  ///   (`AlgorithmRow::bound_to_values`).
  HeldParameters(int rank, const Logger& log, const AlgorithmRow& row, std::vector<Bucket> buckets,
                 NamedTensors frozen);
  HeldParameters(const HeldParameters&) = delete;
  HeldParameters& operator=(const HeldParameters&) = delete;

  /// Made once, and never moved.
  [[nodiscard]] std::vector<Bucket>& buckets() noexcept { return buckets_; }
  [[nodiscard]] const std::vector<Bucket>& buckets() const noexcept { return buckets_; }

  /// Whether every trained parameter lies in its bucket.
  [[nodiscard]] bool are_bound() const;

  /// Takes parameters whose memory was replaced back into their buckets. Calls in flight still
  /// write there: `algorithm` ends them first, and the new values replace their results.
  /// @throws InvalidArgument naming the parameter if its dtype, shape or device has changed.
  void take_back(Algorithm& algorithm);

  /// The same for a bucket that the wrapped optimizer has just stepped, which may give parameters
  /// new memory; no call writes there.
  void take_back_stepped(const Bucket& bucket);

  /// @throws StateError naming a frozen parameter that requires gradients now.
  void check_frozen() const;

  /// @throws StateError naming a parameter that was set since `note_values`, where values are
  ///   bound.
  void check_values();
  /// A step, or the end of calls in flight, has left the values.
  void note_values();
  /// Whether values are bound, and those that `note_values` has seen are there.
  [[nodiscard]] bool values_hold();
  /// The next step is a first one.
  void forget_values();

 private:
  int rank_;
  const Logger& log_;
  const AlgorithmRow& row_;
  std::vector<Bucket> buckets_;
  NamedTensors frozen_;
  /// Where `AlgorithmRow::bound_to_values` asks for them.
  std::optional<BoundValues> bound_values_;
};

}  // namespace bluefog::optimizers
