#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace bluefog::examples {

/// Images per second, over windows of a fixed number of steps.
///
/// Windows are counted in steps, not in time, so that every rank of a run has the same number of
/// them and window k is the same piece of work everywhere.
class Throughput {
 public:
  using Duration = std::chrono::duration<double>;

  /// @throws InvalidArgument if `window_steps` < 1.
  explicit Throughput(std::int64_t window_steps);

  /// One step that handled `images` images in `time`.
  void add_step(std::int64_t images, Duration time);

  /// The rate of each whole window, without the first where there are several: it warms up. With no
  /// whole window the rate of all steps; empty before the first step.
  [[nodiscard]] std::vector<double> window_rates() const;

 private:
  std::int64_t window_steps_;
  std::int64_t steps_ = 0;
  std::int64_t images_ = 0;
  Duration time_{0};
  std::vector<double> rates_;
};

/// A mean with the half-width of its 95 % interval.
struct RateSummary {
  double mean = 0.0;
  double half_width = 0.0;
};

/// mean(rates) and 1.96 σ(rates), σ of the population; zeros for no rates.
[[nodiscard]] RateSummary summarize(std::span<const double> rates);

/// The line that benchmark scripts look for: `Total img/sec on 2 CPU(s): 812.3 +- 4.5`.
[[nodiscard]] std::string total_line(int ranks, const std::string& device,
                                     const RateSummary& total);

}  // namespace bluefog::examples
