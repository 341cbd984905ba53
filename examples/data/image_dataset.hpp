#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "examples/data/image_set.hpp"

namespace bluefog::examples {

/// Statistics of each channel, of pixels scaled to 0 … 1.
struct PixelStatistics {
  std::vector<double> mean;
  std::vector<double> deviation;
};

/// The mean and standard deviation of every channel over all images of `set`. A channel without
/// variation gets the deviation 1, so that division by it is safe.
[[nodiscard]] PixelStatistics pixel_statistics(const ImageSet& set);

/// Changes of a batch's images besides normalisation.
struct Augmentation {
  int crop_padding = 0;          ///< shifts by up to this many pixels each way, filled with black
  bool horizontal_flip = false;  ///< mirrors every second image, on average
};

/// An `ImageSet` that hands out normalised float batches. Images stay bytes; only a requested batch
/// becomes float32: out = (pixel / 255 − mean) / deviation, by a table of 256 values per channel.
///
/// Reading from several threads is safe.
class ImageDataset {
 public:
  /// @throws InvalidArgument if `statistics` does not have one entry per channel, or a deviation
  ///   is not positive.
  ImageDataset(ImageSet set, const PixelStatistics& statistics);

  [[nodiscard]] const ImageSet& set() const noexcept { return set_; }
  [[nodiscard]] std::int64_t count() const noexcept { return set_.count(); }

  /// Writes the images and labels of `samples`.
  ///
  /// @param samples indices below `count()`.
  /// @param images samples.size() × channels × height × width values, contiguous.
  /// @param labels samples.size() values.
  /// @throws InvalidArgument if an index is out of range or a length does not fit.
  void fill_batch(std::span<const std::int64_t> samples, std::span<float> images,
                  std::span<std::int64_t> labels) const;

  /// The same, with every image shifted and mirrored at random.
  ///
  /// @param seed equal seeds give equal batches; pass another one for each batch.
  /// @throws InvalidArgument also if `crop_padding` is negative.
  void fill_batch(std::span<const std::int64_t> samples, std::span<float> images,
                  std::span<std::int64_t> labels, const Augmentation& augmentation,
                  std::uint64_t seed) const;

 private:
  struct Placement {
    std::int64_t down = 0;
    std::int64_t right = 0;
    bool mirrored = false;
  };

  void check_batch(std::span<const std::int64_t> samples, std::span<float> images,
                   std::span<std::int64_t> labels) const;
  void write_image(std::int64_t sample, const Placement& placement, float* out) const;

  ImageSet set_;
  std::vector<float> table_;  // 256 per channel
};

}  // namespace bluefog::examples
