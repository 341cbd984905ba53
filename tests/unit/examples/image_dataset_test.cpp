#include "examples/data/image_dataset.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "bluefog_cpp/error.hpp"

namespace bluefog::examples {
namespace {

using ::testing::ElementsAre;
using ::testing::FloatEq;

/// Two images of 2 channels × 1 × 2.
ImageSet small_set() {
  ImageSet set;
  set.name = "small";
  set.channels = 2;
  set.height = 1;
  set.width = 2;
  set.num_classes = 4;
  set.pixels = {0, 255, 51, 51, 255, 0, 51, 51};
  set.labels = {3, 1};
  return set;
}

/// One image of 1 × 3 × 3 with the values 1 to 9.
ImageSet nine_pixels() {
  ImageSet set;
  set.name = "nine";
  set.channels = 1;
  set.height = 3;
  set.width = 3;
  set.num_classes = 1;
  set.pixels = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  set.labels = {0};
  return set;
}

/// Statistics under which a value of the batch is the pixel itself.
PixelStatistics identity(std::size_t channels) {
  return {std::vector<double>(channels, 0.0), std::vector<double>(channels, 1.0 / 255.0)};
}

TEST(PixelStatisticsTest, AreExactAndSafeForConstantChannels) {
  const PixelStatistics statistics = pixel_statistics(small_set());
  EXPECT_THAT(statistics.mean, ElementsAre(0.5, 0.2));
  EXPECT_THAT(statistics.deviation, ElementsAre(0.5, 1.0));
}

TEST(ImageDatasetTest, BatchIsNormalisedPerChannelInTheOrderAsked) {
  const ImageDataset dataset(small_set(), {{0.5, 0.2}, {0.5, 1.0}});
  std::vector<float> images(8);
  std::vector<std::int64_t> labels(2);
  dataset.fill_batch(std::vector<std::int64_t>{1, 0}, images, labels);
  EXPECT_THAT(images, ElementsAre(1.0F, -1.0F, 0.0F, 0.0F, -1.0F, 1.0F, 0.0F, 0.0F));
  EXPECT_THAT(labels, ElementsAre(1, 3));
}

TEST(ImageDatasetTest, EveryAugmentedImageIsAShiftOrMirrorAndAllOccur) {
  const ImageDataset dataset(nine_pixels(), identity(1));
  std::set<std::vector<int>> seen;
  std::vector<float> image(9);
  std::vector<std::int64_t> label(1);
  for (std::uint64_t seed = 0; seed < 1000; ++seed) {
    dataset.fill_batch(std::vector<std::int64_t>{0}, image, label,
                       {.crop_padding = 1, .horizontal_flip = true}, seed);
    std::vector<int> rounded;
    std::transform(image.begin(), image.end(), std::back_inserter(rounded),
                   [](float value) { return static_cast<int>(value + 0.5F); });
    seen.insert(rounded);
  }
  EXPECT_EQ(seen.size(), 18U);  // 3 shifts down × 3 to the right × mirrored or not
  EXPECT_TRUE(seen.contains({1, 2, 3, 4, 5, 6, 7, 8, 9}));
  EXPECT_TRUE(seen.contains({3, 2, 1, 6, 5, 4, 9, 8, 7}));  // mirrored
  EXPECT_TRUE(seen.contains({0, 0, 0, 0, 1, 2, 0, 4, 5}));  // down and right
  EXPECT_TRUE(seen.contains({5, 6, 0, 8, 9, 0, 0, 0, 0}));  // up and left
}

TEST(ImageDatasetTest, SeedDecidesTheAugmentation) {
  const ImageDataset dataset(nine_pixels(), identity(1));
  const std::vector<std::int64_t> samples(16, 0);
  const auto batch = [&](std::uint64_t seed) {
    std::vector<float> images(16 * 9);
    std::vector<std::int64_t> labels(16);
    dataset.fill_batch(samples, images, labels, {.crop_padding = 1, .horizontal_flip = true}, seed);
    return images;
  };
  EXPECT_EQ(batch(1), batch(1));
  EXPECT_NE(batch(1), batch(2));
}

TEST(ImageDatasetTest, BadArgumentsAreRefused) {
  EXPECT_THROW(ImageDataset(small_set(), identity(1)), InvalidArgument);
  EXPECT_THROW(ImageDataset(small_set(), {{0.0, 0.0}, {1.0, 0.0}}), InvalidArgument);
  const ImageDataset dataset(small_set(), identity(2));
  std::vector<float> images(4);
  std::vector<std::int64_t> labels(1);
  const auto fill = [&](std::vector<std::int64_t> samples, Augmentation augmentation = {}) {
    dataset.fill_batch(samples, images, labels, augmentation, 0);
  };
  EXPECT_THROW(fill({2}), InvalidArgument);
  EXPECT_THROW(fill({-1}), InvalidArgument);
  EXPECT_THROW(fill({0, 1}), InvalidArgument);
  EXPECT_THROW(fill({0}, {.crop_padding = -1}), InvalidArgument);
  images.resize(3);
  EXPECT_THROW(fill({0}), InvalidArgument);
}

}  // namespace
}  // namespace bluefog::examples
