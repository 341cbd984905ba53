#include "pipeline/runtime/spill_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <system_error>
#include <utility>

#include "bluefog_cpp/error.hpp"

namespace bluefog::pipeline {
namespace {

std::string system_reason() { return std::generic_category().message(errno); }

[[noreturn]] void refuse(const std::string& where) {
  throw InvalidArgument(
      fmt::format("activation cache: expected a file that can be written in '{}', found: {}", where,
                  system_reason()));
}

/// Calls `move` until all bytes have moved, or none any more.
template <typename Move>
std::size_t moved(std::size_t bytes, const char* verb, const std::string& name, Move&& move) {
  std::size_t done = 0;
  while (done < bytes) {
    const ssize_t step = move(done);
    if (step < 0 && errno == EINTR) {
      continue;
    }
    if (step < 0) {
      throw TransportError(
          fmt::format("activation cache: expected to {} {} bytes of '{}', found: {}", verb, bytes,
                      name, system_reason()));
    }
    if (step == 0) {
      break;
    }
    done += static_cast<std::size_t>(step);
  }
  return done;
}

}  // namespace

SpillFile::SpillFile(std::string name, shm::UniqueFd fd)
    : name_(std::move(name)), fd_(std::move(fd)) {}

SpillFile SpillFile::make(const std::string& folder) {
  std::string name = folder + "/bluefog_cache_XXXXXX";
  shm::UniqueFd fd(::mkostemp(name.data(), O_CLOEXEC));
  if (!fd) {
    refuse(folder);
  }
  return {std::move(name), std::move(fd)};
}

SpillFile SpillFile::open(const std::string& name) {
  shm::UniqueFd fd(::open(name.c_str(), O_RDWR | O_CLOEXEC));
  if (!fd) {
    refuse(name);
  }
  return {name, std::move(fd)};
}

void SpillFile::remove_name() const noexcept { ::unlink(name_.c_str()); }

void SpillFile::write(std::uint64_t offset, std::span<const std::byte> bytes) const {
  moved(bytes.size(), "write", name_, [&](std::size_t done) {
    return ::pwrite(fd_.get(), bytes.data() + done, bytes.size() - done,
                    static_cast<off_t>(offset + done));
  });
}

bool SpillFile::read(std::uint64_t offset, std::span<std::byte> bytes) const {
  return moved(bytes.size(), "read", name_, [&](std::size_t done) {
           return ::pread(fd_.get(), bytes.data() + done, bytes.size() - done,
                          static_cast<off_t>(offset + done));
         }) == bytes.size();
}

}  // namespace bluefog::pipeline
