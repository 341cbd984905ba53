#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace bluefog::examples {

/// Labelled images as bytes, in the order of the file: image-major, then channel, row, column.
///
/// `pixels` holds count × channels × height × width bytes, `labels` holds count bytes, each below
/// `num_classes`. A reader returns only sets for which that is true.
struct ImageSet {
  std::string name;
  std::int64_t channels = 0;
  std::int64_t height = 0;
  std::int64_t width = 0;
  int num_classes = 0;
  std::vector<std::uint8_t> pixels;
  std::vector<std::uint8_t> labels;

  [[nodiscard]] std::int64_t count() const noexcept {
    return static_cast<std::int64_t>(labels.size());
  }
  [[nodiscard]] std::int64_t image_bytes() const noexcept { return channels * height * width; }
  [[nodiscard]] const std::uint8_t* image(std::int64_t index) const noexcept {
    return pixels.data() + static_cast<std::size_t>(index * image_bytes());
  }
};

/// The images that a model learns from and those that it is judged by.
struct TrainTest {
  ImageSet train;
  ImageSet test;
};

}  // namespace bluefog::examples
