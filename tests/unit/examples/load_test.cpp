#include "examples/data/load.hpp"

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

Bytes grey_image(std::uint32_t side) { return Bytes(std::size_t{side} * side, 1); }

void write_mnist(const TemporaryFolder& folder, const std::string& separator,
                 std::uint32_t test_side = 4) {
  folder.write("train-images" + separator + "idx3-ubyte", idx_bytes({1, 4, 4}, grey_image(4)));
  folder.write("train-labels" + separator + "idx1-ubyte", idx_bytes({1}, {3}));
  folder.write("t10k-images" + separator + "idx3-ubyte",
               idx_bytes({1, test_side, test_side}, grey_image(test_side)));
  folder.write("t10k-labels" + separator + "idx1-ubyte", idx_bytes({1}, {8}));
}

std::string failure(const std::filesystem::path& folder) {
  return testing::error_of<InvalidArgument>([&] { (void)load_image_data(folder); });
}

TEST(LoadTest, FindsIdxFilesInBothSpellings) {
  for (const char* separator : {"-", "."}) {
    const TemporaryFolder folder;
    write_mnist(folder, separator);
    const TrainTest data = load_image_data(folder.path());
    EXPECT_EQ(data.train.name, "MNIST");
    EXPECT_THAT(data.train.labels, ElementsAre(3));
    EXPECT_THAT(data.test.labels, ElementsAre(8));
  }
}

TEST(LoadTest, FindsGzippedIdxFiles) {
  const TemporaryFolder folder;
  folder.write_gzip("train-images-idx3-ubyte.gz", idx_bytes({1, 4, 4}, grey_image(4)));
  folder.write_gzip("train-labels-idx1-ubyte.gz", idx_bytes({1}, {3}));
  folder.write_gzip("t10k-images-idx3-ubyte.gz", idx_bytes({1, 4, 4}, grey_image(4)));
  folder.write_gzip("t10k-labels-idx1-ubyte.gz", idx_bytes({1}, {8}));
  EXPECT_THAT(load_image_data(folder.path()).test.labels, ElementsAre(8));
}

TEST(LoadTest, FindsCifar10AlsoOneFolderDeeper) {
  const TemporaryFolder folder;
  for (const std::string inner : {"", "cifar-10-batches-bin/"}) {
    for (std::uint8_t i = 1; i <= 5; ++i) {
      folder.write(inner + "data_batch_" + std::to_string(i) + ".bin", cifar_record({i}, i));
    }
    folder.write(inner + "test_batch.bin", cifar_record({7}, 1));
    const TrainTest data = load_image_data(folder.path());
    EXPECT_EQ(data.train.name, "CIFAR-10");
    EXPECT_THAT(data.train.labels, ElementsAre(1, 2, 3, 4, 5));
    EXPECT_THAT(data.test.labels, ElementsAre(7));
    std::filesystem::remove(folder.path() / "data_batch_1.bin");
  }
}

TEST(LoadTest, FindsCifar100) {
  const TemporaryFolder folder;
  folder.write("train.bin", cifar_record({1, 42}, 1));
  folder.write("test.bin", cifar_record({1, 43}, 1));
  const TrainTest data = load_image_data(folder.path());
  EXPECT_EQ(data.train.name, "CIFAR-100");
  EXPECT_THAT(data.train.labels, ElementsAre(42));
  EXPECT_THAT(data.test.labels, ElementsAre(43));
}

TEST(LoadTest, MissingFolderSaysHowToGetTheData) {
  EXPECT_THAT(failure("/nowhere/at/all"),
              AllOf(HasSubstr("/nowhere/at/all"),
                    HasSubstr("apt-get install dataset-fashion-mnist"), HasSubstr("--data")));
}

TEST(LoadTest, UnknownContentListsWhatWasLookedFor) {
  const TemporaryFolder folder;
  folder.write("readme.txt", {1});
  EXPECT_THAT(failure(folder.path()),
              AllOf(HasSubstr("train-images-idx3-ubyte"), HasSubstr("data_batch_1.bin"),
                    HasSubstr("train.bin"), HasSubstr("found readme.txt")));
}

TEST(LoadTest, FoldersWithoutASetSayWhatTheyHave) {
  const TemporaryFolder folder;
  EXPECT_THAT(failure(folder.path()), HasSubstr("found no files at all"));
  for (int i = 10; i < 20; ++i) {
    folder.write("file" + std::to_string(i), {1});
  }
  EXPECT_THAT(failure(folder.path()), HasSubstr("found file10, file11, file12, file13, file14, "
                                                "file15, file16, file17 and 2 more"));
  folder.write("data_batch_1", {1});
  EXPECT_THAT(failure(folder.path()), HasSubstr("fetch its binary version"));
}

TEST(LoadTest, PartsOfCifarSayWhichFileIsMissing) {
  const TemporaryFolder folder;
  folder.write("data_batch_1.bin", cifar_record({1}, 1));
  EXPECT_THAT(failure(folder.path()), AllOf(HasSubstr("the files of CIFAR-10: data_batch_1.bin"),
                                            HasSubstr("data_batch_2.bin does not exist")));
  std::filesystem::remove(folder.path() / "data_batch_1.bin");
  folder.write("train.bin", cifar_record({1, 42}, 1));
  EXPECT_THAT(failure(folder.path()),
              AllOf(HasSubstr("CIFAR-100"), HasSubstr("test.bin does not exist")));
}

TEST(LoadTest, MissingPartNamesTheFile) {
  const TemporaryFolder folder;
  write_mnist(folder, "-");
  std::filesystem::remove(folder.path() / "t10k-labels-idx1-ubyte");
  EXPECT_THAT(failure(folder.path()),
              AllOf(HasSubstr("t10k-labels-idx1-ubyte"), HasSubstr("does not exist")));
}

TEST(LoadTest, TestImagesMustHaveTheShapeOfTrainingImages) {
  const TemporaryFolder folder;
  write_mnist(folder, "-", 5);
  EXPECT_THAT(failure(folder.path()), HasSubstr("expected test images of 4x4 pixels like the "
                                                "training images, found 5x5"));
}

TEST(LoadTest, ReadsTheInstalledFashionMnist) {
  if (!std::filesystem::is_directory(kDefaultDataFolder)) {
    GTEST_SKIP() << "dataset-fashion-mnist is not installed";
  }
  const TrainTest data = load_image_data();
  EXPECT_EQ(data.train.name, "Fashion-MNIST");
  EXPECT_EQ(data.train.count(), 60000);
  EXPECT_EQ(data.test.count(), 10000);
  EXPECT_EQ(data.train.image_bytes(), 28 * 28);
  std::vector<int> per_class(10, 0);
  for (const std::uint8_t label : data.train.labels) {
    ++per_class[label];
  }
  EXPECT_THAT(per_class, ::testing::Each(6000));
}

}  // namespace
}  // namespace bluefog::examples
