#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "bluefog_cpp/error.hpp"
#include "examples/data/cifar.hpp"
#include "examples/data/image_dataset.hpp"
#include "tests/fuzz/memory_file.hpp"

using namespace bluefog;

// The first byte says which of the two formats the rest is.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) {
    return 0;
  }
  const auto kind = data[0] % 2 == 0 ? examples::CifarKind::Cifar10 : examples::CifarKind::Cifar100;
  testing::parse_or_refuse<InvalidArgument>([&] {
    const testing::MemoryFile file(std::span(data + 1, size - 1));
    const std::array files{file.path(), file.path()};
    const examples::ImageSet set = examples::read_cifar(files, kind);
    testing::check(set.count() >= 2 && set.count() % 2 == 0);
    testing::check(std::cmp_equal(set.pixels.size(), set.count() * set.image_bytes()));
    testing::check(
        std::ranges::all_of(set.labels, [&](int label) { return label < set.num_classes; }));
    const examples::ImageDataset dataset(set, examples::pixel_statistics(set));
  });
  return 0;
}
