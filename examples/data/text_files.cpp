#include "examples/data/text_files.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <system_error>

#include "bluefog_cpp/error.hpp"

namespace bluefog::examples {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse(const fs::path& path, const std::string& reason) {
  throw InvalidArgument(
      fmt::format("--data: expected files that can be read, found {}: {}", path.string(), reason));
}

std::vector<fs::path> files_of(const fs::path& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) {
    return {path};
  }
  std::vector<fs::path> files;
  for (fs::directory_iterator entry(path, error), end; !error && entry != end;
       entry.increment(error)) {
    std::error_code of_entry;  // a link to nothing is no file
    if (entry->is_regular_file(of_entry) && !entry->is_symlink(of_entry)) {
      files.push_back(entry->path());
    }
  }
  if (error) {
    refuse(path, error.message());
  }
  std::ranges::sort(files);
  return files;
}

}  // namespace

std::string read_texts(const std::vector<fs::path>& paths) {
  std::string text;
  for (const fs::path& path : paths) {
    for (const fs::path& file : files_of(path)) {
      errno = 0;
      std::ifstream stream(file, std::ios::binary);
      text.append(std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>());
      if (!stream) {
        refuse(file, std::strerror(errno));
      }
    }
  }
  return text;
}

}  // namespace bluefog::examples
