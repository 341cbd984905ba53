#include "bluefog_cpp/transport/shm/shared_region.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "bluefog_cpp/error.hpp"

namespace bluefog::shm {
namespace {

// Far more than any model needs; halved where the address space is limited.
constexpr std::size_t kReservedBytes = std::size_t{64} << 30U;
constexpr std::size_t kLeastReservedBytes = std::size_t{64} << 20U;

[[noreturn]] void throw_system_error(const char* what, std::size_t bytes) {
  throw TransportError(
      fmt::format("shared memory: {} of {} bytes failed: {}", what, bytes, std::strerror(errno)));
}

}  // namespace

std::shared_ptr<SharedRegion> SharedRegion::create(std::size_t bytes) {
  UniqueFd fd(::memfd_create("bluefog", MFD_CLOEXEC));
  if (!fd) {
    throw_system_error("memfd_create", bytes);
  }
  auto region = map_reserved(std::move(fd));
  region->grow(bytes);
  return region;
}

std::shared_ptr<SharedRegion> SharedRegion::map(UniqueFd fd) { return map_reserved(std::move(fd)); }

std::shared_ptr<SharedRegion> SharedRegion::map_reserved(UniqueFd fd) {
  for (std::size_t reserved = kReservedBytes; reserved >= kLeastReservedBytes; reserved /= 2) {
    void* const data =
        ::mmap(nullptr, reserved, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd.get(), 0);
    if (data != MAP_FAILED) {
      return std::shared_ptr<SharedRegion>(
          new SharedRegion(std::move(fd), static_cast<std::byte*>(data), reserved));
    }
  }
  throw_system_error("mmap", kLeastReservedBytes);
}

SharedRegion::~SharedRegion() { ::munmap(data_, reserved_); }

void SharedRegion::grow(std::size_t bytes) {
  if (bytes > bytes_) {
    back(bytes_, bytes - bytes_);
    bytes_ = bytes;
  }
}

void SharedRegion::back(std::size_t begin, std::size_t bytes) {
  if (begin > reserved_ || bytes > reserved_ - begin) {
    throw TransportError(fmt::format(
        "shared memory: {} bytes are needed, but only {} bytes of addresses could be reserved",
        begin + bytes, reserved_));
  }
  int result = 0;
  do {
    result = ::fallocate(fd_.get(), 0, static_cast<off_t>(begin), static_cast<off_t>(bytes));
  } while (result != 0 && errno == EINTR);
  if (result != 0) {
    throw_system_error("reservation", bytes);
  }
  // Faults now are cheaper than faults one by one in the first exchange; older kernels refuse.
  ::madvise(data_ + begin, bytes, MADV_POPULATE_WRITE);
}

void SharedRegion::give_back(std::size_t begin, std::size_t bytes) noexcept {
  // The memory stays where the system cannot take it back.
  (void)::fallocate(fd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                    static_cast<off_t>(begin), static_cast<off_t>(bytes));
}

}  // namespace bluefog::shm
