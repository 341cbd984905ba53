#include "examples/data/cifar.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bluefog_cpp/error.hpp"
#include "tests/support/error_of.hpp"
#include "tests/unit/examples/temporary_folder.hpp"

namespace bluefog::examples {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

namespace fs = std::filesystem;

Bytes joined(const Bytes& a, const Bytes& b) {
  Bytes both = a;
  both.insert(both.end(), b.begin(), b.end());
  return both;
}

std::string failure(const std::vector<fs::path>& files, CifarKind kind) {
  return testing::error_of<InvalidArgument>([&] { (void)read_cifar(files, kind); });
}

TEST(CifarTest, ReadsCifar10FilesInOrder) {
  const TemporaryFolder folder;
  const std::vector<fs::path> files{
      folder.write("a", joined(cifar_record({3}, 11), cifar_record({9}, 22))),
      folder.write("b", cifar_record({0}, 33))};
  const ImageSet set = read_cifar(files, CifarKind::Cifar10);
  EXPECT_EQ(set.name, "CIFAR-10");
  EXPECT_EQ(set.num_classes, 10);
  EXPECT_EQ(set.image_bytes(), 3 * 32 * 32);
  EXPECT_THAT(set.labels, ElementsAre(3, 9, 0));
  EXPECT_EQ(set.pixels.size(), 3U * 3072U);
  EXPECT_EQ(set.image(1)[0], 22);
  EXPECT_EQ(set.image(2)[3071], 33);
}

TEST(CifarTest, Cifar100UsesTheFineLabel) {
  const TemporaryFolder folder;
  const std::vector<fs::path> files{folder.write("a", cifar_record({19, 99}, 5))};
  const ImageSet set = read_cifar(files, CifarKind::Cifar100);
  EXPECT_EQ(set.num_classes, 100);
  EXPECT_THAT(set.labels, ElementsAre(99));
  EXPECT_EQ(set.image(0)[0], 5);
}

TEST(CifarTest, TruncatedFileNamesBothSizes) {
  const TemporaryFolder folder;
  Bytes bytes = joined(cifar_record({3}, 11), cifar_record({9}, 22));
  bytes.pop_back();
  EXPECT_THAT(failure({folder.write("a", bytes)}, CifarKind::Cifar10),
              AllOf(HasSubstr("is truncated or not CIFAR-10"), HasSubstr("records of 3073 bytes"),
                    HasSubstr("6146 bytes for 2 records"), HasSubstr("found 6145 bytes")));
}

TEST(CifarTest, Cifar10FileIsNotCifar100) {
  const TemporaryFolder folder;
  EXPECT_THAT(failure({folder.write("a", cifar_record({3}, 11))}, CifarKind::Cifar100),
              HasSubstr("not CIFAR-100"));
}

TEST(CifarTest, EmptyAndMissingFilesAreRefused) {
  const TemporaryFolder folder;
  EXPECT_THAT(failure({folder.write("a", {})}, CifarKind::Cifar10), HasSubstr("found 0 bytes"));
  EXPECT_THAT(failure({folder.path() / "absent"}, CifarKind::Cifar10), HasSubstr("does not exist"));
  EXPECT_THAT(failure({}, CifarKind::Cifar10), HasSubstr("at least one file"));
}

TEST(CifarTest, LabelOutOfRangeNamesFileAndRecord) {
  const TemporaryFolder folder;
  const auto bytes = joined(cifar_record({9}, 1), cifar_record({10}, 1));
  EXPECT_THAT(failure({folder.write("a", cifar_record({0}, 1)), folder.write("b", bytes)},
                      CifarKind::Cifar10),
              AllOf(HasSubstr("/b: "), HasSubstr("expected labels 0 to 9, found 10 in record 1")));
}

}  // namespace
}  // namespace bluefog::examples
