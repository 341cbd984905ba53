#include "bluefog_cpp/base/whole_file.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "bluefog_cpp/base/error.hpp"

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

}  // namespace

void write_whole_file(const std::string& path, std::string_view text) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    refuse(path, std::make_error_code(std::errc::is_a_directory));
  }
  if (std::filesystem::is_other(path, error)) {
    write(path, text, path);
    return;
  }
  const std::string unfinished = path + ".part";
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

}  // namespace bluefog
