#include "examples/data/image_dataset.hpp"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <random>
#include <utility>

#include "bluefog_cpp/error.hpp"

namespace bluefog::examples {
namespace {

constexpr int kLevels = 256;

/// How often each byte value occurs in a channel: statistics from it are exact in any order.
std::array<std::int64_t, kLevels> histogram(const ImageSet& set, std::int64_t channel) {
  std::array<std::int64_t, kLevels> counts{};
  const std::int64_t plane = set.height * set.width;
  for (std::int64_t i = 0; i < set.count(); ++i) {
    const std::uint8_t* pixel = set.image(i) + channel * plane;
    for (std::int64_t k = 0; k < plane; ++k) {
      ++counts[pixel[k]];
    }
  }
  return counts;
}

}  // namespace

PixelStatistics pixel_statistics(const ImageSet& set) {
  PixelStatistics statistics;
  const auto pixels = static_cast<double>(set.count() * set.height * set.width);
  for (std::int64_t channel = 0; channel < set.channels; ++channel) {
    const auto counts = histogram(set, channel);
    double sum = 0.0;
    double sum_of_squares = 0.0;
    for (int level = 0; level < kLevels; ++level) {
      const auto occurrences = static_cast<double>(counts[static_cast<std::size_t>(level)]);
      sum += level * occurrences;
      sum_of_squares += static_cast<double>(level) * level * occurrences;
    }
    const double mean = sum / pixels;
    const double variance = sum_of_squares / pixels - mean * mean;
    statistics.mean.push_back(mean / 255.0);
    statistics.deviation.push_back(variance > 1e-9 ? std::sqrt(variance) / 255.0 : 1.0);
  }
  return statistics;
}

ImageDataset::ImageDataset(ImageSet set, const PixelStatistics& statistics) : set_(std::move(set)) {
  const auto channels = static_cast<std::size_t>(set_.channels);
  if (statistics.mean.size() != channels || statistics.deviation.size() != channels) {
    throw InvalidArgument(fmt::format(
        "ImageDataset {}: expected statistics of {} channels, found {} means and {} deviations",
        set_.name, channels, statistics.mean.size(), statistics.deviation.size()));
  }
  for (std::size_t channel = 0; channel < channels; ++channel) {
    const double deviation = statistics.deviation[channel];
    if (!(deviation > 0.0)) {
      throw InvalidArgument(
          fmt::format("ImageDataset {}: expected a positive deviation of channel {}, found {}",
                      set_.name, channel, deviation));
    }
    for (int level = 0; level < kLevels; ++level) {
      table_.push_back(static_cast<float>((level / 255.0 - statistics.mean[channel]) / deviation));
    }
  }
}

void ImageDataset::fill_batch(std::span<const std::int64_t> samples, std::span<float> images,
                              std::span<std::int64_t> labels) const {
  fill_batch(samples, images, labels, Augmentation{}, 0);
}

void ImageDataset::fill_batch(std::span<const std::int64_t> samples, std::span<float> images,
                              std::span<std::int64_t> labels, const Augmentation& augmentation,
                              std::uint64_t seed) const {
  check_batch(samples, images, labels);
  const int padding = augmentation.crop_padding;
  if (padding < 0) {
    throw InvalidArgument(
        fmt::format("ImageDataset {}: expected crop_padding >= 0, found {}", set_.name, padding));
  }
  std::mt19937_64 random(seed);
  std::uniform_int_distribution<int> shift(-padding, padding);
  std::bernoulli_distribution mirror(augmentation.horizontal_flip ? 0.5 : 0.0);
  float* out = images.data();
  for (std::size_t i = 0; i < samples.size(); ++i) {
    Placement placement;
    if (padding > 0) {
      placement.down = shift(random);
      placement.right = shift(random);
    }
    placement.mirrored = augmentation.horizontal_flip && mirror(random);
    write_image(samples[i], placement, out);
    labels[i] = set_.labels[static_cast<std::size_t>(samples[i])];
    out += set_.image_bytes();
  }
}

void ImageDataset::check_batch(std::span<const std::int64_t> samples, std::span<float> images,
                               std::span<std::int64_t> labels) const {
  const std::size_t expected = samples.size() * static_cast<std::size_t>(set_.image_bytes());
  if (images.size() != expected || labels.size() != samples.size()) {
    throw InvalidArgument(
        fmt::format("ImageDataset {}: expected room for {} values and {} labels, found {} and {}",
                    set_.name, expected, samples.size(), images.size(), labels.size()));
  }
  for (const std::int64_t sample : samples) {
    if (sample < 0 || sample >= count()) {
      throw InvalidArgument(fmt::format("ImageDataset {}: expected samples 0 to {}, found {}",
                                        set_.name, count() - 1, sample));
    }
  }
}

void ImageDataset::write_image(std::int64_t sample, const Placement& placement, float* out) const {
  const std::uint8_t* in = set_.image(sample);
  for (std::int64_t channel = 0; channel < set_.channels; ++channel) {
    const float* value_of = table_.data() + channel * kLevels;
    for (std::int64_t y = 0; y < set_.height; ++y) {
      const std::int64_t from_y = y - placement.down;
      const bool row_is_inside = from_y >= 0 && from_y < set_.height;
      for (std::int64_t x = 0; x < set_.width; ++x) {
        const std::int64_t shifted = x - placement.right;
        const bool is_inside = row_is_inside && shifted >= 0 && shifted < set_.width;
        const std::int64_t from_x = placement.mirrored ? set_.width - 1 - shifted : shifted;
        *out++ = value_of[is_inside ? in[from_y * set_.width + from_x] : 0];
      }
    }
    in += set_.height * set_.width;
  }
}

}  // namespace bluefog::examples
