#include "examples/data/read_file.hpp"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string>
#include <type_traits>

#include "bluefog_cpp/error.hpp"

namespace bluefog::examples {
namespace {

namespace fs = std::filesystem;

struct CloseGzip {
  void operator()(gzFile file) const noexcept { gzclose(file); }
};
using GzipFile = std::unique_ptr<std::remove_pointer_t<gzFile>, CloseGzip>;

GzipFile open_file(const fs::path& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (!fs::exists(status)) {
    throw InvalidArgument(
        fmt::format("data file {} does not exist: install the default data with 'apt-get install "
                    "dataset-fashion-mnist', or name the folder of another data set with --data",
                    path.string()));
  }
  if (!fs::is_regular_file(status)) {
    throw InvalidArgument(
        fmt::format("data file {}: expected a regular file, found something else", path.string()));
  }
  errno = 0;
  GzipFile file(gzopen(path.c_str(), "rb"));
  if (!file) {
    throw InvalidArgument(
        fmt::format("data file {} cannot be opened: {}", path.string(), std::strerror(errno)));
  }
  gzbuffer(file.get(), 1U << 18);
  return file;
}

/// Reads up to `capacity` bytes into `out`; fewer only at the end of the file.
std::size_t read_some(gzFile file, const fs::path& path, std::uint8_t* out, std::size_t capacity) {
  const int got = gzread(file, out, static_cast<unsigned>(capacity));
  int code = Z_OK;
  const char* message = gzerror(file, &code);
  if (code == Z_BUF_ERROR) {
    throw InvalidArgument(
        fmt::format("data file {} is truncated: the gzip stream ends too early", path.string()));
  }
  if (got < 0 || (code != Z_OK && code != Z_STREAM_END)) {
    const std::string reason = code == Z_ERRNO ? std::strerror(errno) : message;
    throw InvalidArgument(fmt::format("data file {} cannot be read: {}", path.string(), reason));
  }
  return static_cast<std::size_t>(got);
}

}  // namespace

std::vector<std::uint8_t> read_file(const fs::path& path, std::size_t max_bytes) {
  constexpr std::size_t kFirstBytes = std::size_t{64} << 10;
  constexpr std::size_t kMostPieceBytes = std::size_t{8} << 20;
  const GzipFile file = open_file(path);
  std::vector<std::uint8_t> bytes;
  for (;;) {
    const std::size_t begin = bytes.size();
    const std::size_t next = std::clamp(begin, kFirstBytes, kMostPieceBytes);
    const std::size_t piece = std::min(next, max_bytes - begin + 1);
    bytes.resize(begin + piece);
    const std::size_t got = read_some(file.get(), path, bytes.data() + begin, piece);
    bytes.resize(begin + got);
    if (bytes.size() > max_bytes) {
      throw InvalidArgument(fmt::format("data file {}: expected at most {} bytes, found more",
                                        path.string(), max_bytes));
    }
    if (got < piece) {
      return bytes;
    }
  }
}

}  // namespace bluefog::examples
