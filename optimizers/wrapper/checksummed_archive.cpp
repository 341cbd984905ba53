#include "optimizers/wrapper/checksummed_archive.hpp"

#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <array>
#include <boost/crc.hpp>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string_view>
#include <system_error>

#include "bluefog_cpp/error.hpp"

namespace bluefog::optimizers {
namespace {

constexpr const char* kKey = "checksum";
constexpr std::string_view kLineBegin = "\nbluefog_cpp crc32 ";
constexpr std::size_t kLineBytes = kLineBegin.size() + 8 + 1;

std::string line_of(std::uint32_t checksum) {
  return fmt::format("{}{:08x}\n", kLineBegin, checksum);
}

/// A file for torch's writer, which ends the process where its callback fails: errors are kept
/// until `close`.
class OutputFile {
 public:
  explicit OutputFile(const std::string& path)
      : path_(path), file_(std::fopen(path.c_str(), "wb")) {
    if (file_ == nullptr) {
      note_error();
      check();
    }
  }

  void write(const void* data, std::size_t size) noexcept {
    checksum_.process_bytes(data, size);
    if (error_ == 0 && std::fwrite(data, 1, size, file_.get()) != size) {
      note_error();
    }
  }

  void close() {
    if (error_ == 0 && std::fclose(file_.release()) != 0) {
      note_error();
    }
    check();
  }

  [[nodiscard]] std::uint32_t checksum() const { return checksum_.checksum(); }

 private:
  void note_error() noexcept { error_ = errno != 0 ? errno : EIO; }

  void check() const {
    if (error_ != 0) {
      throw InvalidArgument(fmt::format("checkpoint file '{}': expected to write it, found: {}",
                                        path_, std::generic_category().message(error_)));
    }
  }

  struct Closer {
    void operator()(std::FILE* file) const noexcept { std::fclose(file); }
  };

  std::string path_;
  std::unique_ptr<std::FILE, Closer> file_;
  boost::crc_32_type checksum_;
  int error_ = 0;
};

/// The last line of a file, and the checksum of the bytes before it.
struct Checksummed {
  std::uint32_t checksum = 0;
  std::string line;
};

/// Nothing if the last line of `file` is no checksum, or the file cannot be read.
std::optional<Checksummed> read_checksummed(const std::string& file) {
  std::error_code error;
  const std::uintmax_t size = std::filesystem::file_size(file, error);
  std::ifstream stream(file, std::ios::binary);
  if (error || !stream || size < kLineBytes) {
    return std::nullopt;
  }
  Checksummed found{.checksum = 0, .line = std::string(kLineBytes, '\0')};
  stream.seekg(static_cast<std::streamoff>(size - kLineBytes));
  stream.read(found.line.data(), static_cast<std::streamsize>(kLineBytes));
  if (!stream || !found.line.starts_with(kLineBegin)) {
    return std::nullopt;
  }
  boost::crc_32_type checksum;
  std::array<char, 1 << 16> block;
  stream.seekg(0);
  for (std::uintmax_t left = size - kLineBytes; left > 0 && stream;) {
    const std::uintmax_t wanted = std::min<std::uintmax_t>(left, block.size());
    stream.read(block.data(), static_cast<std::streamsize>(wanted));
    checksum.process_bytes(block.data(), static_cast<std::size_t>(stream.gcount()));
    left -= wanted;
  }
  found.checksum = checksum.checksum();
  return found;
}

[[noreturn]] void refuse(const std::string& file, std::string_view found) {
  throw InvalidArgument(fmt::format(
      "checkpoint file '{}': expected a whole checkpoint of this library, found {}", file, found));
}

}  // namespace

void save_with_checksum(torch::serialize::OutputArchive& archive, const std::string& file) {
  archive.write(kKey, c10::IValue(std::string("crc32")));
  OutputFile output(file);
  archive.save_to([&output](const void* data, std::size_t size) {
    output.write(data, size);
    return size;
  });
  const std::string line = line_of(output.checksum());
  output.write(line.data(), line.size());
  output.close();
}

void load_with_checksum(torch::serialize::InputArchive& archive, const std::string& file) {
  const std::optional<Checksummed> found = read_checksummed(file);
  if (found && found->line != line_of(found->checksum)) {
    refuse(file, "bytes that have changed since they were written (their checksum is another)");
  }
  archive.load_from(file);
  c10::IValue key;
  if (!found && archive.try_read(kKey, key)) {
    refuse(file, "an archive without the checksum that it was written with");
  }
}

}  // namespace bluefog::optimizers
