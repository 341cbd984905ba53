#include "bluefog_cpp/base/files/whole_file.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "bluefog_cpp/error.hpp"

namespace bluefog {
namespace {

[[noreturn]] void refuse(const std::string& path, const std::error_code& reason) {
  throw InvalidArgument(fmt::format("cannot write {}: {}", path, reason.message()));
}

std::error_code last_error() { return {errno, std::generic_category()}; }

void write(const std::string& file_name, std::string_view text, const std::string& path) {
  std::ofstream file(file_name, std::ios::trunc | std::ios::binary);
  file << text;
  file.close();
  if (!file) {
    refuse(path, last_error());
  }
}

/// The file that holds the text until it is whole: `path` itself where that is a pipe or device.
std::string unfinished_of(const std::string& path) {
  std::error_code absent;
  if (std::filesystem::is_directory(path, absent)) {
    refuse(path, std::make_error_code(std::errc::is_a_directory));
  }
  return std::filesystem::is_other(path, absent) ? path : path + ".part";
}

}  // namespace

void write_whole_file(const std::string& path, std::string_view text) {
  const std::string unfinished = unfinished_of(path);
  if (unfinished == path) {
    write(path, text, path);
    return;
  }
  std::error_code error;
  try {
    write(unfinished, text, path);
    std::filesystem::rename(unfinished, path, error);
    if (error) {
      refuse(path, error);
    }
  } catch (...) {
    std::filesystem::remove(unfinished, error);
    throw;
  }
}

void check_writable(const std::string& path) {
  const std::string unfinished = unfinished_of(path);
  if (unfinished != path) {
    write(unfinished, "", path);
    std::error_code ignored;
    std::filesystem::remove(unfinished, ignored);
  }
}

}  // namespace bluefog
