#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "bluefog_cpp/error.hpp"
#include "examples/data/idx.hpp"
#include "examples/data/image_dataset.hpp"
#include "tests/fuzz/memory_file.hpp"

using namespace bluefog;

// The first byte says how many of the last ones are the labels' file; before them are the images'.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) {
    return 0;
  }
  const std::span bytes(data + 1, size - 1);
  const std::size_t label_bytes = std::min<std::size_t>(data[0], bytes.size());
  testing::parse_or_refuse<InvalidArgument>([&] {
    const testing::MemoryFile images(bytes.first(bytes.size() - label_bytes));
    const testing::MemoryFile labels(bytes.last(label_bytes));
    const examples::ImageSet set = examples::read_idx(images.path(), labels.path(), "fuzz");
    testing::check(set.count() >= 1);
    testing::check(std::cmp_equal(set.pixels.size(), set.count() * set.image_bytes()));
    testing::check(std::ranges::all_of(set.labels, [](int label) { return label < 10; }));
    const examples::ImageDataset dataset(set, examples::pixel_statistics(set));
  });
  return 0;
}
