#include "examples/data/idx.hpp"

#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <vector>

#include "bluefog_cpp/error.hpp"
#include "examples/data/labels.hpp"
#include "examples/data/read_file.hpp"

namespace bluefog::examples {
namespace {

namespace fs = std::filesystem;

std::uint32_t big_endian_32(const std::uint8_t* bytes) {
  return std::uint32_t{bytes[0]} << 24 | std::uint32_t{bytes[1]} << 16 |
         std::uint32_t{bytes[2]} << 8 | std::uint32_t{bytes[3]};
}

/// An IDX file: its dimensions, and its bytes without the header.
template <std::size_t kDimensions>
struct IdxFile {
  std::array<std::int64_t, kDimensions> shape{};
  std::vector<std::uint8_t> payload;
};

/// Dimensions are bounded one by one, so that their product cannot overflow.
std::int64_t checked_dimension(std::uint32_t value, std::size_t which, const fs::path& path) {
  constexpr std::uint32_t kMaxCount = 1U << 28;
  constexpr std::uint32_t kMaxSide = 1U << 14;
  const std::uint32_t limit = which == 0 ? kMaxCount : kMaxSide;
  if (value == 0 || value > limit) {
    throw InvalidArgument(fmt::format("data file {}: expected dimension {} from 1 to {}, found {}",
                                      path.string(), which, limit, value));
  }
  return value;
}

template <std::size_t kDimensions>
IdxFile<kDimensions> read_idx_file(const fs::path& path) {
  constexpr std::size_t kHeaderBytes = 4 + 4 * kDimensions;
  constexpr std::uint32_t kMagic = 0x00000800U + static_cast<std::uint32_t>(kDimensions);
  IdxFile<kDimensions> file;
  file.payload = read_file(path);
  const std::vector<std::uint8_t>& bytes = file.payload;
  if (bytes.size() < kHeaderBytes) {
    throw InvalidArgument(
        fmt::format("data file {} is truncated: expected an IDX header of {} bytes, found {} bytes",
                    path.string(), kHeaderBytes, bytes.size()));
  }
  if (const std::uint32_t magic = big_endian_32(bytes.data()); magic != kMagic) {
    throw InvalidArgument(fmt::format(
        "data file {}: expected the IDX magic number {:#010x} ({} dimensions of bytes), found "
        "{:#010x}",
        path.string(), kMagic, kDimensions, magic));
  }
  std::int64_t payload_bytes = 1;
  for (std::size_t i = 0; i < kDimensions; ++i) {
    file.shape[i] = checked_dimension(big_endian_32(bytes.data() + 4 + 4 * i), i, path);
    payload_bytes *= file.shape[i];
  }
  const auto expected = static_cast<std::uint64_t>(payload_bytes) + kHeaderBytes;
  if (bytes.size() != expected) {
    throw InvalidArgument(fmt::format("data file {} {}: expected {} bytes, found {}", path.string(),
                                      bytes.size() < expected ? "is truncated" : "is too long",
                                      expected, bytes.size()));
  }
  file.payload.erase(file.payload.begin(), file.payload.begin() + kHeaderBytes);
  return file;
}

}  // namespace

ImageSet read_idx(const fs::path& images, const fs::path& labels, const std::string& name,
                  int num_classes) {
  auto image_file = read_idx_file<3>(images);
  auto label_file = read_idx_file<1>(labels);
  if (image_file.shape[0] != label_file.shape[0]) {
    throw InvalidArgument(
        fmt::format("data files {} and {}: expected one label per image, found {} "
                    "images and {} labels",
                    images.string(), labels.string(), image_file.shape[0], label_file.shape[0]));
  }
  ImageSet set;
  set.name = name;
  set.channels = 1;
  set.height = image_file.shape[1];
  set.width = image_file.shape[2];
  set.num_classes = num_classes;
  set.pixels = std::move(image_file.payload);
  set.labels = std::move(label_file.payload);
  check_labels(set, labels);
  return set;
}

}  // namespace bluefog::examples
