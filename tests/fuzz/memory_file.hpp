#pragma once

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <span>

#include "bluefog_cpp/base/files/unique_fd.hpp"
#include "tests/fuzz/refusal.hpp"

namespace bluefog::testing {

/// A file in memory, for parsers that open what they read by name.
class MemoryFile {
 public:
  explicit MemoryFile(std::span<const std::uint8_t> bytes)
      : file_(memfd_create("fuzz", MFD_CLOEXEC)) {
    check(file_ &&
          write(file_.get(), bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()));
  }

  [[nodiscard]] std::filesystem::path path() const {
    return fmt::format("/proc/self/fd/{}", file_.get());
  }

 private:
  shm::UniqueFd file_;
};

}  // namespace bluefog::testing
