#pragma once

#include <unistd.h>
#include <zlib.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <ios>
#include <stdexcept>
#include <string>
#include <vector>

namespace bluefog::examples {

using Bytes = std::vector<std::uint8_t>;

/// A folder of its own for one test, removed at its end.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "bluefog_data_XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) {
      throw std::runtime_error("mkdtemp failed for " + pattern);
    }
    path_ = pattern;
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }

  std::filesystem::path write(const std::string& name, const Bytes& bytes) const {
    const std::filesystem::path file = path_ / name;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream out(file, std::ios::binary);
    out.write(reinterpret_cast<const char*>(bytes.data()),
              static_cast<std::streamsize>(bytes.size()));
    return file;
  }

  std::filesystem::path write_gzip(const std::string& name, const Bytes& bytes) const {
    const std::filesystem::path file = path_ / name;
    gzFile out = gzopen(file.c_str(), "wb");
    gzwrite(out, bytes.data(), static_cast<unsigned>(bytes.size()));
    gzclose(out);
    return file;
  }

 private:
  std::filesystem::path path_;
};

/// An IDX file: magic 0x00000800 + dimensions, the dimensions, the payload.
inline Bytes idx_bytes(const std::vector<std::uint32_t>& shape, const Bytes& payload) {
  Bytes bytes{0, 0, 8, static_cast<std::uint8_t>(shape.size())};
  for (const std::uint32_t side : shape) {
    for (const int shift : {24, 16, 8, 0}) {
      bytes.push_back(static_cast<std::uint8_t>(side >> shift));
    }
  }
  bytes.insert(bytes.end(), payload.begin(), payload.end());
  return bytes;
}

/// A CIFAR record: the label bytes, then 3072 pixels that all equal `pixel`.
inline Bytes cifar_record(const Bytes& labels, std::uint8_t pixel) {
  Bytes record = labels;
  record.insert(record.end(), 3072, pixel);
  return record;
}

}  // namespace bluefog::examples
