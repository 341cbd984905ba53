#include "examples/data/idx.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bluefog_cpp/error.hpp"
#include "tests/support/error_of.hpp"
#include "tests/unit/examples/temporary_folder.hpp"

namespace bluefog::examples {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const Bytes kPixels{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 255};  // 2 images of 2 × 3
const Bytes kLabels{7, 2};

class IdxTest : public ::testing::Test {
 protected:
  std::string failure(const std::filesystem::path& images, const std::filesystem::path& labels) {
    return testing::error_of<InvalidArgument>([&] { (void)read_idx(images, labels, "MNIST"); });
  }

  TemporaryFolder folder_;
  std::filesystem::path images_ = folder_.write("images", idx_bytes({2, 2, 3}, kPixels));
  std::filesystem::path labels_ = folder_.write("labels", idx_bytes({2}, kLabels));
};

TEST_F(IdxTest, ReadsPlainFiles) {
  const ImageSet set = read_idx(images_, labels_, "MNIST");
  EXPECT_EQ(set.name, "MNIST");
  EXPECT_EQ(set.count(), 2);
  EXPECT_EQ(set.channels, 1);
  EXPECT_EQ(set.height, 2);
  EXPECT_EQ(set.width, 3);
  EXPECT_EQ(set.num_classes, 10);
  EXPECT_EQ(set.pixels, kPixels);
  EXPECT_EQ(set.labels, kLabels);
  EXPECT_EQ(set.image(1)[0], 6);
}

TEST_F(IdxTest, ReadsGzippedFilesWhateverTheirName) {
  const auto images = folder_.write_gzip("packed", idx_bytes({2, 2, 3}, kPixels));
  const auto labels = folder_.write_gzip("labels.gz", idx_bytes({2}, kLabels));
  const ImageSet set = read_idx(images, labels, "MNIST");
  EXPECT_EQ(set.pixels, kPixels);
  EXPECT_EQ(set.labels, kLabels);
}

TEST_F(IdxTest, MissingFileNamesPathAndRemedy) {
  EXPECT_THAT(failure(folder_.path() / "absent", labels_),
              AllOf(HasSubstr((folder_.path() / "absent").string()),
                    HasSubstr("apt-get install dataset-fashion-mnist"), HasSubstr("--data")));
}

TEST_F(IdxTest, FolderInPlaceOfFileIsRefused) {
  EXPECT_THAT(failure(folder_.path(), labels_), HasSubstr("expected a regular file"));
}

TEST_F(IdxTest, TruncatedPayloadNamesBothSizes) {
  Bytes bytes = idx_bytes({2, 2, 3}, kPixels);
  bytes.pop_back();
  EXPECT_THAT(failure(folder_.write("short", bytes), labels_),
              AllOf(HasSubstr("is truncated"), HasSubstr("expected 28 bytes, found 27")));
}

TEST_F(IdxTest, TruncatedHeaderIsRefused) {
  EXPECT_THAT(failure(folder_.write("short", {0, 0, 8, 3, 0}), labels_),
              HasSubstr("expected an IDX header of 16 bytes, found 5 bytes"));
  EXPECT_THAT(failure(folder_.write("empty", {}), labels_), HasSubstr("found 0 bytes"));
}

TEST_F(IdxTest, TrailingBytesAreRefused) {
  Bytes bytes = idx_bytes({2}, kLabels);
  bytes.push_back(0);
  EXPECT_THAT(failure(images_, folder_.write("long", bytes)),
              AllOf(HasSubstr("is too long"), HasSubstr("expected 10 bytes, found 11")));
}

TEST_F(IdxTest, TruncatedGzipIsRefused) {
  const auto packed = folder_.write_gzip("packed", idx_bytes({2, 2, 3}, kPixels));
  std::filesystem::resize_file(packed, std::filesystem::file_size(packed) - 12);
  EXPECT_THAT(failure(packed, labels_), HasSubstr("is truncated: the gzip stream ends too early"));
}

TEST_F(IdxTest, DamagedGzipIsRefused) {
  const auto packed = folder_.write_gzip("packed", idx_bytes({2, 2, 3}, kPixels));
  std::fstream file(packed, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(-8, std::ios::end);  // the checksum
  file.put('\x55').put('\x55');
  file.close();
  EXPECT_THAT(failure(packed, labels_), HasSubstr("cannot be read: "));
}

TEST_F(IdxTest, WrongMagicNamesBoth) {
  EXPECT_THAT(failure(labels_, labels_), HasSubstr("expected an IDX header of 16 bytes"));
  EXPECT_THAT(failure(images_, images_),
              AllOf(HasSubstr("magic number 0x00000801"), HasSubstr("found 0x00000803")));
}

TEST_F(IdxTest, EmptyAndAbsurdDimensionsAreRefused) {
  EXPECT_THAT(failure(folder_.write("none", idx_bytes({0, 2, 3}, {})), labels_),
              HasSubstr("expected dimension 0 from 1 to 268435456, found 0"));
  EXPECT_THAT(failure(folder_.write("huge", idx_bytes({2, 0xffffffffU, 0xffffffffU}, {})), labels_),
              HasSubstr("expected dimension 1 from 1 to 16384, found 4294967295"));
}

TEST_F(IdxTest, CountsMustAgree) {
  const auto labels = folder_.write("three", idx_bytes({3}, {1, 2, 3}));
  EXPECT_THAT(failure(images_, labels), HasSubstr("found 2 images and 3 labels"));
}

TEST_F(IdxTest, LabelOutOfRangeNamesRecord) {
  const auto labels = folder_.write("bad", idx_bytes({2}, {9, 10}));
  EXPECT_THAT(failure(images_, labels), HasSubstr("expected labels 0 to 9, found 10 in record 1"));
}

}  // namespace
}  // namespace bluefog::examples
