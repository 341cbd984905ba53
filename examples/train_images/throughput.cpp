#include "examples/train_images/throughput.hpp"

#include <fmt/format.h>

#include <cmath>
#include <numeric>

#include "bluefog_cpp/error.hpp"

namespace bluefog::examples {

Throughput::Throughput(std::int64_t window_steps) : window_steps_(window_steps) {
  if (window_steps < 1) {
    throw InvalidArgument(
        fmt::format("Throughput: expected windows of at least 1 step, found {}", window_steps));
  }
}

void Throughput::add_step(std::int64_t images, Duration time) {
  ++steps_;
  images_ += images;
  time_ += time;
  if (steps_ == window_steps_) {
    rates_.push_back(static_cast<double>(images_) / time_.count());
    steps_ = 0;
    images_ = 0;
    time_ = Duration{0};
  }
}

std::vector<double> Throughput::window_rates() const {
  if (rates_.empty() && steps_ > 0) {
    return {static_cast<double>(images_) / time_.count()};
  }
  const auto warm = rates_.begin() + (rates_.size() > 1 ? 1 : 0);
  return {warm, rates_.end()};
}

RateSummary summarize(std::span<const double> rates) {
  if (rates.empty()) {
    return {};
  }
  const auto count = static_cast<double>(rates.size());
  const double mean = std::accumulate(rates.begin(), rates.end(), 0.0) / count;
  double sum_of_squares = 0.0;
  for (const double rate : rates) {
    sum_of_squares += (rate - mean) * (rate - mean);
  }
  return {mean, 1.96 * std::sqrt(sum_of_squares / count)};
}

std::string total_line(int ranks, const std::string& device, const RateSummary& total) {
  return fmt::format("Total img/sec on {} {}(s): {:.1f} +- {:.1f}", ranks, device, total.mean,
                     total.half_width);
}

}  // namespace bluefog::examples
