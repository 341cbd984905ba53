#include "examples/data/cifar.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "bluefog_cpp/error.hpp"
#include "examples/data/labels.hpp"
#include "examples/data/read_file.hpp"

namespace bluefog::examples {
namespace {

namespace fs = std::filesystem;

ImageSet empty_set(CifarKind kind) {
  ImageSet set;
  set.name = kind == CifarKind::Cifar10 ? "CIFAR-10" : "CIFAR-100";
  set.channels = 3;
  set.height = 32;
  set.width = 32;
  set.num_classes = kind == CifarKind::Cifar10 ? 10 : 100;
  return set;
}

void append_file(ImageSet& set, const fs::path& path, std::size_t label_bytes) {
  const auto image_bytes = static_cast<std::size_t>(set.image_bytes());
  const std::size_t record_bytes = label_bytes + image_bytes;
  const std::vector<std::uint8_t> bytes = read_file(path);
  const std::size_t records = bytes.size() / record_bytes;
  if (records == 0 || bytes.size() % record_bytes != 0) {
    throw InvalidArgument(fmt::format(
        "data file {} is truncated or not {}: expected records of {} bytes ({} bytes for {} "
        "records), found {} bytes",
        path.string(), set.name, record_bytes, (records + 1) * record_bytes, records + 1,
        bytes.size()));
  }
  set.pixels.reserve(set.pixels.size() + records * image_bytes);
  set.labels.reserve(set.labels.size() + records);
  for (std::size_t i = 0; i < records; ++i) {
    const std::uint8_t* record = bytes.data() + i * record_bytes;
    set.labels.push_back(record[label_bytes - 1]);
    set.pixels.insert(set.pixels.end(), record + label_bytes, record + record_bytes);
  }
}

}  // namespace

ImageSet read_cifar(std::span<const fs::path> files, CifarKind kind) {
  if (files.empty()) {
    throw InvalidArgument("read_cifar: expected at least one file, found none");
  }
  ImageSet all = empty_set(kind);
  for (const fs::path& path : files) {
    ImageSet part = empty_set(kind);
    append_file(part, path, kind == CifarKind::Cifar10 ? 1 : 2);
    check_labels(part, path);
    all.pixels.insert(all.pixels.end(), part.pixels.begin(), part.pixels.end());
    all.labels.insert(all.labels.end(), part.labels.begin(), part.labels.end());
  }
  return all;
}

}  // namespace bluefog::examples
