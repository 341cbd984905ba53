#include "examples/train_images/metrics_file.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "bluefog_cpp/error.hpp"

namespace bluefog::examples {

MetricsFile::MetricsFile(const std::filesystem::path& path, Mode mode) : path_(path) {
  if (path_.empty()) {
    return;
  }
  errno = 0;
  file_.open(path_, mode == Mode::Append ? std::ios::app : std::ios::trunc);
  if (!file_) {
    throw InvalidArgument(fmt::format("metrics file {} cannot be opened for writing: {}",
                                      path_.string(), std::strerror(errno)));
  }
}

void MetricsFile::write(const nlohmann::json& line) {
  if (path_.empty()) {
    return;
  }
  errno = 0;
  file_ << line.dump() << '\n' << std::flush;
  if (!file_) {
    throw Error(
        fmt::format("metrics file {} cannot be written: {}", path_.string(), std::strerror(errno)));
  }
}

}  // namespace bluefog::examples
