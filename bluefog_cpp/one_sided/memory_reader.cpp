#include "bluefog_cpp/one_sided/memory_reader.hpp"

#include <fmt/format.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <span>

#include "bluefog_cpp/base/copy.hpp"
#include "bluefog_cpp/error.hpp"
#include "bluefog_cpp/transport/fd_channel.hpp"

namespace bluefog {
namespace {

/// Bytes per call: the kernel handles at most 2 GiB at once.
constexpr std::size_t kMostBytes = std::size_t{1} << 30U;

/// The place of a token in a rank's memory, and the token itself.
struct Probe {
  int process = 0;
  std::uintptr_t address = 0;
  std::array<std::byte, 16> token{};
};

}  // namespace

MemoryReader::MemoryReader(Bootstrap& bootstrap, const std::vector<int>& ranks, Deadline deadline)
    : is_in_process_(bootstrap.in_process()),
      processes_(static_cast<std::size_t>(bootstrap.size())),
      can_read_(static_cast<std::size_t>(bootstrap.size()), false) {
  Probe own{.process = static_cast<int>(::getpid()), .token = shm::random_token()};
  own.address = reinterpret_cast<std::uintptr_t>(own.token.data());
  const auto blobs = bootstrap.allgather(std::as_bytes(std::span(&own, 1)), deadline);
  for (const int rank : ranks) {
    const auto index = static_cast<std::size_t>(rank);
    Probe probe;
    if (blobs[index].size() != sizeof(probe)) {
      continue;
    }
    std::memcpy(&probe, blobs[index].data(), sizeof(probe));
    processes_[index] = probe.process;
    std::array<std::byte, 16> found{};
    try {
      read(rank, probe.address, found.data(), found.size());
      can_read_[index] = found == probe.token;
    } catch (const Error&) {
      can_read_[index] = false;
    }
  }
  bootstrap.barrier(deadline);  // tokens stay where they are until all have looked
}

void MemoryReader::read(int rank, std::uintptr_t address, std::byte* to, std::size_t bytes) const {
  if (is_in_process_) {
    copy_bytes(to, reinterpret_cast<const std::byte*>(address), bytes);
    return;
  }
  std::size_t done = 0;
  while (done < bytes) {
    const std::size_t part = std::min(bytes - done, kMostBytes);
    iovec local{.iov_base = to + done, .iov_len = part};
    iovec remote{.iov_base = reinterpret_cast<void*>(address + done), .iov_len = part};
    const ssize_t count =
        ::process_vm_readv(processes_[static_cast<std::size_t>(rank)], &local, 1, &remote, 1, 0);
    if (count < 0 && errno == ESRCH) {
      throw PeerFailure(rank, fmt::format("rank {}'s process has ended", rank));
    }
    if (count <= 0) {
      throw TransportError(fmt::format("reading {} bytes of rank {}'s memory: {}", bytes, rank,
                                       count < 0 ? std::strerror(errno) : "nothing came"));
    }
    done += static_cast<std::size_t>(count);
  }
}

}  // namespace bluefog
