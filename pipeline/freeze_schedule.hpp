#pragma once

#include <cstdint>
#include <span>

/// Elastic pipelines: models in stages over ranks, which freeze, shrink and widen while they train.
namespace bluefog::pipeline {

/// Whether the last layer may be frozen: without it nothing of the encoder learns any more.
enum class LastLayer : std::uint8_t {
  StaysTrained,  ///< the depth is at most layers - 1
  MayFreeze,     ///< the depth may reach `layers`
};

/// How `FreezeSchedule` freezes.
struct FreezeOptions {
  int layers = 0;      ///< L, the encoder's layers, without embedding and head; at least 1
  double alpha = 0.5;  ///< the share of the unfrozen layers that freezes at a time, in (0, 1)
  LastLayer last = LastLayer::StaysTrained;  ///< whether layer L may freeze
};

/// The most layers that may be frozen after `times` decisions, of `layers` layers:
///
///     bound(T) = ceil(L (1 − (1−α)^T) − 1e-9).
///
/// @throws InvalidArgument for fewer than 1 layer, an α outside (0, 1) or negative `times`.
/// Source: PipeTransformer, arXiv 2102.03161, equation 1 in closed form.
[[nodiscard]] int freeze_bound(int layers, double alpha, int times);

/// The number of layers that are frozen, L_f(T), decision by decision (one an epoch, say), from the
/// first layer on. L_f(0) = 0; it never falls; head and embedding are not counted.
///
/// A value, the same on all ranks that give it the same. One thread at a time.
/// Source: AutoFreeze of PipeTransformer, arXiv 2102.03161, section 3.1.
class FreezeSchedule {
 public:
  /// @throws InvalidArgument as `freeze_bound`.
  explicit FreezeSchedule(const FreezeOptions& options);

  /// The decision by the bound alone: L_f(T) = bound(T).
  /// @return the new depth.
  int advance();

  /// The decision with the gradients of the last steps: with ℓ the number, from 1, of the unfrozen
  /// layer whose norm is least (of several the first),
  ///
  ///     L_f(T) = min(bound(T), ℓ).
  ///
  /// @param norms of the unfrozen layers, depth() + 1 to L.
  /// @throws InvalidArgument for another number of norms, or one that is negative or no number;
  ///   nothing has changed then.
  int advance(std::span<const double> norms);

  /// L_f(T).
  [[nodiscard]] int depth() const noexcept { return depth_; }
  /// T, the number of decisions so far.
  [[nodiscard]] int times() const noexcept { return times_; }
  /// L.
  [[nodiscard]] int layers() const noexcept { return options_.layers; }

 private:
  int freeze_up_to(int limit);

  FreezeOptions options_;
  int times_ = 0;
  int depth_ = 0;
};

}  // namespace bluefog::pipeline
