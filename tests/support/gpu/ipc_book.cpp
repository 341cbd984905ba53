#include "tests/support/gpu/ipc_book.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "bluefog_cpp/error.hpp"

namespace bluefog::testing {
namespace {

constexpr std::size_t kPage = 4096;
/// CUDA_ERROR_INVALID_CONTEXT, as of a handle that is opened where it was made; and
/// CUDA_ERROR_INVALID_VALUE.
constexpr int kInvalidContext = 201;
constexpr int kInvalidValue = 1;

std::size_t pages_for(std::size_t bytes) { return (bytes / kPage + 2) * kPage; }

std::size_t place_in_page(const void* what) {
  return reinterpret_cast<std::uintptr_t>(what) % kPage;
}

}  // namespace

IpcBook::~IpcBook() {
  for (const auto& [begin, opened] : opened_) {
    ::munmap(const_cast<std::byte*>(begin) - place_in_page(begin), pages_for(opened.bytes));
  }
}

gpu::IpcHandle IpcBook::show(void* what, std::size_t bytes, std::uint64_t process) {
  const std::scoped_lock lock(mutex_);
  const std::uint64_t number = shown_.size() + 1;
  shown_[number] = {.what = what, .bytes = bytes, .process = process};
  gpu::IpcHandle handle{};
  std::memcpy(handle.data(), &number, sizeof number);
  return handle;
}

void* IpcBook::open(const gpu::IpcHandle& handle, std::uint64_t process, const std::string& call) {
  const std::scoped_lock lock(mutex_);
  std::uint64_t number = 0;
  std::memcpy(&number, handle.data(), sizeof number);
  const auto shown = shown_.find(number);
  if (shown == shown_.end() || shown->second.what == nullptr) {
    report_(call + " of nothing that was shown, or not any more");
    throw CudaError(kInvalidValue, call + ": invalid argument");
  }
  const auto& [what, bytes, owner] = shown->second;
  if (owner == process) {
    report_(call + " in the process that has shown it");
    throw CudaError(kInvalidContext, call + ": invalid device context");
  }
  void* const pages = ::mmap(nullptr, pages_for(bytes), PROT_NONE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (pages == MAP_FAILED) {
    throw CudaError(2, call + ": out of memory");
  }
  auto* const begin = static_cast<std::byte*>(pages) + place_in_page(what);
  opened_[begin] = {.what = what, .bytes = bytes};
  return begin;
}

bool IpcBook::close(const void* opened, const std::string& call) {
  const std::scoped_lock lock(mutex_);
  const auto found = opened_.find(static_cast<const std::byte*>(opened));
  if (found == opened_.end()) {
    return false;
  }
  if (found->second.is_closed) {
    report_(call + " of what was closed");
  }
  found->second.is_closed = true;
  return true;
}

void* IpcBook::resolve(const void* place, const std::string& call) {
  const std::scoped_lock lock(mutex_);
  const auto* const address = static_cast<const std::byte*>(place);
  auto found = opened_.upper_bound(address);
  if (found == opened_.begin()) {
    return const_cast<void*>(place);
  }
  --found;
  const auto& [begin, opened] = *found;
  const auto offset = static_cast<std::size_t>(address - begin);
  if (offset >= std::max<std::size_t>(opened.bytes, 1)) {
    return const_cast<void*>(place);
  }
  if (opened.is_closed) {
    report_(call + " uses what another process has shown, and this one has closed");
  }
  return static_cast<std::byte*>(opened.what) + offset;
}

void IpcBook::forget(const void* what, const std::string& call) {
  const std::scoped_lock lock(mutex_);
  if (std::ranges::any_of(opened_, [what](const auto& entry) {
        return entry.second.what == what && !entry.second.is_closed;
      })) {
    report_(call + " of what another process has open");
  }
  for (auto& [number, shown] : shown_) {
    if (shown.what == what) {
      shown.what = nullptr;
    }
  }
}

}  // namespace bluefog::testing
